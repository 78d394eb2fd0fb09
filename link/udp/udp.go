// Package udp is the driver without privilege for every system: plain UDP
// sockets on port 4791. The kernel writes the IP and UDP headers.
//
// On Linux the driver sends and receives in bulk. It builds consecutive packets of equal size to one destination, the last one perhaps shorter, back to
// back, and sends them as one UDP segmentation offload (GSO) super-packet of up to 128 packets (64 before Linux 6.9), with several super-packets in one
// sendmmsg(2). Packets for queue pairs that are not equal modulo share.Slots, which may belong to several processes of the peer, do not share a
// super-packet, and neither do management datagrams. With generic receive offload (GRO) super-packets also arrive as one, and Recv returns their segments
// in place. Without GSO or GRO the driver sends or receives packets one by one, and Info says so. The Port also sends packets one by one to a peer to which
// the kernel has refused super-packets three times in a row, and has then accepted their packets. It tries super-packets again after some seconds, then at
// increasing intervals of at most five minutes. An error of a firewall or a shortage of memory does not count as a refusal. On other systems a Port uses
// package net, with one call for each packet.
//
// # Protection by the ICRC
//
// The ICRC covers the IP header, which a socket neither writes nor sees. For
// IPv6 the Port knows all covered fields, so the check is complete. For IPv4
// it does not know the Identification.
//
//   - Sending: Linux, macOS and FreeBSD give a datagram that must not be fragmented Identification
//     0, and segment k of a Linux super-packet has k. The Port computes the ICRC for this
//     Identification, so it is right on the wire, for any peer, also if a network card or the
//     kernel divides the super-packet. Windows chooses Identifications itself, so that only peers
//     which do not see the Identification accept such packets: for other peers use IPv6 on Windows.
//   - Receiving: the Port computes the Identification that makes the ICRC right, and drops the packet if there is none. 16 of the 32 bits
//     of the check remain: one damaged packet in 65536 passes. A connected queue pair then compares the Identification with those that
//     its peer has used before. If these are regular, about 22 bits remain while packets arrive continuously, fewer after a pause (go
//     test ./qp -run TestDamagedPackets -v -damaged 10000000). 16 remain for the first packets, for a peer with random Identifications,
//     and for datagrams; WeakICRC counts such packets of connected queue pairs. The kernel also checks the UDP checksum, but only peers
//     that are plain UDP sockets send one: rxe and network cards do not.
//
// # Source port
//
// The source port of all packets is 4791, the port that the socket is bound to.
// Info().SrcPort has it. Paths must have that port, because the ICRC covers it. In RoCEv2 a
// sender may choose any source port, to spread flows over links and receive queues. Where
// this helps (many paths between switches, hardware peers that hash by port), use link/raw.
//
// The socket is not connected, even if there is only one peer: Linux numbers the IPv4 packets
// of a connected socket from a random Identification that no system call returns.
//
// # ICMP
//
// On Linux no ICMP message changes the packets of a Port. The MTU is that of the interface. The Port ignores path MTUs
// from ICMP messages (IP_PMTUDISC_PROBE), for two reasons: a host that knows the two IP addresses can forge such a
// message, and a connection has agreed on its path MTU when it was set up. If a router on the path has a smaller MTU,
// larger packets are lost: open the device on an interface with that MTU. Redirects change the host's routes, as for
// all sockets, if net.ipv4.conf.*.accept_redirects is set.
//
// # Other programs on the host
//
// On Linux, Ports with Config.Shared, of processes of one user, share an interface or address:
// see docs/sharing.md. All sockets of the address are in one group (SO_REUSEPORT); a BPF program
// delivers each packet to the process with its queue pair, connection or listener.
//
// Any other Port needs UDP port 4791 of its addresses exclusively; otherwise Open fails with
// EADDRINUSE. link/raw, xdp and a Port on an interface take the port of their interface; rxe takes
// the port of the whole host. Devices on different addresses of one host reach each other, for
// instance 127.0.0.1 and 127.0.0.2, with two exceptions. A Port on ::1 is bound to the loopback
// interface, from which Linux has no route to addresses of other interfaces. And if a Port on an
// address is opened while another device holds the port of another interface, the Port uses its
// own interface only; a note in Info says so. On Linux any program of the same user can add sockets to
// the group of a Port, if it has several queues or a queue of management datagrams.
//
// # Management datagrams
//
// On Linux packets for queue pair 1 arrive at a separate socket, in one group with that of
// the Port (SO_REUSEPORT); a BPF program chooses the socket by the BTH. A flood of them
// fills only the buffer of that socket, of 4 MiB at most. The Port reads the data first.
// The program sees the first segment of a super-packet, so a Port may receive a few
// packets of either kind at the other socket. A Port that is the only queue divides the
// packets from the first management datagram on ([link.MADSplitter]), because the choice
// makes each packet cost more. Where the kernel refuses the socket or the
// program, there is one socket, and a note or Mode in Info says so.
//
// # Floods
//
// While the device reports a flood of strange packets, a BPF program on the sockets accepts only
// packets from the addresses of peers, packets to queue pairs that accept every source, and
// packets to queue pairs that are paused or were removed. Stats counts floods in RxFloods, and
// dropped packets in RxDrops.
package udp

import (
	"cmp"
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
)

// Config configures a Port, either on an interface or on an address.
type Config struct {
	// Interface is the name of a network interface of any kind: the Port sends
	// and receives on it, with all its addresses and multicast groups.
	Interface string

	// Addr is one address of the host. Routing determines the interface. The
	// Port does not receive datagrams to groups.
	Addr netip.Addr

	// RxBuffer and TxBuffer are the sizes of the socket buffers in bytes; 0
	// means 32 MiB and 8 MiB. Without CAP_NET_ADMIN, net.core.rmem_max and
	// wmem_max limit them, and a note in Info says so. The kernel drops
	// packets if the receive buffer is full; on Linux Stats.RxDrops counts
	// them.
	RxBuffer, TxBuffer int

	// NoGSO sends every packet separately, NoGRO receives every packet
	// separately. Other systems than Linux always do so.
	NoGSO, NoGRO bool

	// Shared lets other processes of this user use the interface or address, too: see package
	// share. It has no effect on other systems than Linux.
	Shared bool

	noIPv6 bool // for tests: as if the kernel had no IPv6
	tied   bool // the socket is bound to the interface that has Addr, because another socket has the port of another interface
}

const (
	// maxBody is the largest UDP payload over IPv4, and thus of a
	// super-packet.
	maxBody = 65535 - 20 - 8

	// maxMTU limits the MTU to the largest IP packet: the MTU of the loopback is larger.
	maxMTU = 65535

	// hopLimit is the default hop limit of the sockets: most paths have it.
	hopLimit = 64
)

// withDefaults sets the defaults of zero fields.
func (c Config) withDefaults() Config {
	c.RxBuffer, c.TxBuffer = cmp.Or(c.RxBuffer, 32<<20), cmp.Or(c.TxBuffer, 8<<20)
	c.Addr = c.Addr.Unmap()
	return c
}

// check refuses a configuration that no system supports.
func (c *Config) check(queues int) error {
	why := ""
	addr := c.Addr.Unmap() // IsUnspecified is false for ::ffff:0.0.0.0
	switch {
	case (c.Interface == "") == !addr.IsValid():
		why = "want either an interface or an address"
	case addr.IsUnspecified() || addr.IsMulticast():
		why = c.Addr.String() + " is not an address of one host"
	case queues < 1 || queues > 256:
		why = "want 1 to 256 queues"
	default:
		return nil
	}
	e := c.fail("open", syscall.EINVAL)
	e.Detail = why
	return e
}

// name returns the interface or address of the Port, for errors.
func (c *Config) name() string {
	if c.Interface != "" {
		return c.Interface
	}
	return c.Addr.String()
}

func (c *Config) fail(op string, err error) *errs.Error {
	return link.Fail("udp", op, c.name(), nil, err, "")
}

// bodyOf returns the size of the largest packet, BTH to ICRC, on a link with an MTU.
func bodyOf(mtu int, path *frame.Path) int {
	return min(mtu-path.HeaderLen(frame.LayoutIP), maxBody)
}

// srcPort is the port of every Port.
const srcPort = bth.UDPPort
