// Package udp is the driver that needs no privilege and works on every system:
// plain UDP sockets on port 4791. The kernel makes the IP and UDP headers.
//
// On Linux packets travel in bulk. Consecutive packets of equal size to one
// destination, the last one perhaps shorter, are built back to back and leave as
// one UDP segmentation offload (GSO) super-packet of up to 64; several of those
// go in one sendmmsg(2). Packets for queue pairs that are not equal modulo share.Slots, which
// may be of several processes of the peer, share no super-packet, nor do management datagrams.
// With generic receive offload (GRO) super-packets arrive as one as well, and Recv returns their segments where they lie. Without GSO or GRO packets go one
// by one, and Info says so. The same holds for one peer, if the kernel has refused
// super-packets to it three times in a row and has then accepted their packets. The Port
// tries super-packets again after some seconds, then after longer and longer, five minutes
// at most. An error of a firewall or of short memory does not count as a refusal. On other
// systems a Port uses package net, with one call for each packet.
//
// # What the ICRC still protects
//
// The ICRC covers the IP header, which a socket neither writes nor sees. Of
// IPv6 all that is covered is known anyway: the check is full. Of IPv4 the
// Identification is not.
//
//   - Sending: Linux, macOS and FreeBSD give a datagram that is not to be
//     fragmented Identification 0, and segment k of a Linux super-packet has k.
//     The ICRC is made for that, so it is right on the wire, for any peer, also
//     when a network card or the kernel takes the super-packet apart. Windows
//     counts on its own, so that only peers that do not know the Identification
//     themselves take such packets: use IPv6 there to talk to others.
//   - Receiving: the Port computes the Identification that makes the ICRC right, and drops
//     the packet if there is none. 16 of the 32 bits of the check
//     are left: one damaged packet in 65536 passes. A connected queue pair then
//     compares the Identification with those that its peer has used before. If
//     they are regular, about 22 bits are left while packets keep coming, fewer
//     after a pause (go test ./qp -run TestDamagedPackets -v -damaged 10000000).
//     16 are left for the first packets, for a peer whose Identifications are
//     random, and for datagrams; the counter WeakICRC says how many of the packets
//     of connected queue pairs those were. The kernel also checks the UDP checksum, but
//     only peers that are plain UDP sockets send one: rxe and network cards do not.
//
// # Source port
//
// The source port of all packets is 4791, the port that the socket is bound to.
// Info().SrcPort says so. Paths must have that port, because the ICRC covers it. RoCEv2
// lets a sender choose any source port, to spread flows over links and receive queues. Where
// that pays (many paths between switches, hardware peers that hash by port), use link/raw.
//
// The socket is not connected, even if there is only one peer: Linux numbers the IPv4 packets
// of a connected socket from a random Identification that no system call returns.
//
// # ICMP
//
// On Linux no ICMP message changes what a Port sends. The MTU is that of the interface. The
// Port ignores path MTUs from ICMP messages (IP_PMTUDISC_PROBE), for two reasons: a host that
// knows the two IP addresses can forge such a message, and a connection has agreed on its
// path MTU when it was set up. If a router on the way has a smaller MTU, larger packets are
// lost: open the device on an interface with that MTU. Redirects change the host's routes,
// as for all sockets; net.ipv4.conf.*.accept_redirects decides.
//
// # Others on the host
//
// On Linux, Ports with Config.Shared, of processes of one user, share an interface or address:
// see docs/sharing.md. All sockets of the address are in one group (SO_REUSEPORT); a BPF program
// gives each packet to the process that has its queue pair, connection or listener.
//
// Any other Port needs UDP port 4791 of its addresses for itself; else Open fails with EADDRINUSE.
// link/raw, xdp and a Port on an interface hold the port of their interface; rxe holds the
// port of the whole host. Devices on different addresses of one host reach each other,
// for instance 127.0.0.1 and 127.0.0.2, with two exceptions. A Port on ::1 is bound to the
// loopback interface, from which Linux has no route to addresses of other interfaces. And a
// Port on an address that is opened while another device holds the port of another interface
// uses its own interface only; a note in Info says so. On Linux any program of the same user
// could add sockets to those of a Port.
//
// # Management datagrams
//
// On Linux packets for queue pair 1 arrive at a socket of their own, in one group with the
// Port's (SO_REUSEPORT); a BPF program picks the socket by the BTH. A flood of them fills
// only that socket's buffer, of 4 MiB at most. The Port reads the data first. The program
// sees the first segment of a super-packet, so a Port may receive a few packets of either
// kind at the other socket. Where the kernel refuses the socket or the program, there is
// one socket, and a note in Info says so.
//
// # Floods
//
// When the device reports a flood of strange packets, a BPF program on the sockets takes only
// packets from the addresses of peers and to queue pairs that take packets from every address,
// as long as the flood lasts. Beside the latter it takes those to queue pairs that are paused or
// gone. Stats counts floods in RxFloods, and dropped packets in RxDrops.
package udp

import (
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
)

// Config says how to open a Port: either on an interface or on an address.
type Config struct {
	// Interface is the name of a network interface of any kind: packets go out
	// and come in by it, from and to all of its addresses and multicast groups.
	Interface string

	// Addr is one address of the host. Routing decides on the interface. Groups
	// are not received.
	Addr netip.Addr

	// RxBuffer and TxBuffer are the sizes of the socket buffers in bytes; 0
	// means 32 MiB and 8 MiB. Without CAP_NET_ADMIN, net.core.rmem_max and
	// wmem_max limit them, and a note in Info says so. What finds the receive
	// buffer full is dropped, and counted in Stats.RxDrops on Linux.
	RxBuffer, TxBuffer int

	// NoGSO sends every packet by itself, NoGRO receives so. Linux only; other
	// systems do nothing else.
	NoGSO, NoGRO bool

	// Shared lets other processes of this user use the interface or address, too: see package
	// share. Linux only; on other systems it changes nothing.
	Shared bool

	noIPv6 bool // as if the kernel had none
	tied   bool // to the interface that has Addr, of which alone the port is free
}

const (
	// maxBody is the largest UDP payload over IPv4, and so of a super-packet.
	maxBody = 65535 - 20 - 8

	// maxMTU is what a datagram can use of an MTU: the loopback's is larger.
	maxMTU = 65535

	// hopLimit is that of sockets: what paths normally have.
	hopLimit = 64
)

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.RxBuffer == 0 {
		c.RxBuffer = 32 << 20
	}
	if c.TxBuffer == 0 {
		c.TxBuffer = 8 << 20
	}
	c.Addr = c.Addr.Unmap()
	return c
}

// check refuses what no system can do.
func (c *Config) check(queues int) error {
	why := ""
	switch {
	case (c.Interface == "") == !c.Addr.IsValid():
		why = "want either an interface or an address"
	case c.Addr.IsUnspecified() || c.Addr.IsMulticast():
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

// name is what the Port is on, for errors.
func (c *Config) name() string {
	if c.Interface != "" {
		return c.Interface
	}
	return c.Addr.String()
}

func (c *Config) fail(op string, err error) *errs.Error {
	return link.Fail("udp", op, c.name(), nil, err, "")
}

// bodyOf is how long a packet may be, BTH to ICRC, on a link of an MTU.
func bodyOf(mtu int, path *frame.Path) int {
	return min(mtu-path.HeaderLen(frame.LayoutIP), maxBody)
}

// srcPort is the port of every Port.
const srcPort = bth.UDPPort
