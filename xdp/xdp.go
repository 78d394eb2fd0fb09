// Package xdp is the AF_XDP driver: frames go between user space and the network
// interface's driver through four rings in shared memory, past the kernel's own
// stack. It needs Linux 5.9 or later and CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF,
// or root.
//
// A small program in the interface's receive path takes exactly the packets that
// are ours: UDP to port 4791, not fragmented, without IP options or extension
// headers, of our VLAN, to one of our addresses or to a multicast
// group. Everything else passes on to the kernel, so that ARP, ssh and the rest
// work as before. What it takes the kernel never sees: tcpdump does not show it,
// no ICMP answers it. The program leaves with the process, however that ends.
// Open claims UDP port 4791 of the interface, because another device there, of any driver
// and program, would believe that it gets the packets. If another socket has the port, Open
// fails with EADDRINUSE.
//
// # One owner
//
// The sockets of a queue share one memory, which is a process's own: an interface has one owner
// over xdp, and processes do not share it. While it has, other devices on it, of any driver and
// process, fail to open with EADDRINUSE and are told which process that is; so is one of this
// driver where processes share the interface over raw or udp, which can.
//
// # Early drop
//
// A device tells the program which queue pairs exist and where their peers are
// (Port.Filter, which link.Filterer documents). The program then drops packets that no
// queue pair can take, and management datagrams beyond a limit, before they use a place
// in a ring. A Port whose user does not call Filter receives all packets to its addresses.
//
// # Modes
//
// The driver of the interface may run the program itself (native), or the kernel
// does so later (generic). Frames are copied once each way between the UMEM and the
// kernel's buffers (copy), or the interface works on the UMEM (zero copy). Open
// finds out what there is and says so in Info().Mode; Info().Notes says what could
// not be had and why. Zero copy is a matter of the card and its driver: it is asked
// for and reported, but this package was tested in copy mode only.
//
// A packet that does not fit a page, as those of path MTU 4096 do not, needs
// several descriptors (XDP_USE_SG) and a program that is told so, in native mode.
// In generic mode that combination has brought kernels down; there the MTU is
// limited instead and paths of MTU 2048 are the largest.
//
// # Payload in place
//
// Memory that Port.AllocMemory has taken from the UMEM can be sent without a copy in
// user space: a frame is then a descriptor for its headers, one or two for the
// payload, and one for what is behind it. With zero copy the card reads the payload
// where the application put it; in copy mode the kernel does, and there this is off
// unless Config.InPlace asks for it. docs/zero-copy.md says what is copied where.
//
// A VLAN tag that the card takes out of the frame (rxvlan in ethtool -k) is not to
// be seen here. UDP checksums of received frames are cleared: a sender on the same
// host may leave them incomplete, and a frame does not show that. The ICRC covers the same
// bytes.
package xdp

import (
	"errors"
	"net/netip"
	"time"
)

// ErrProgram says that the interface has an XDP program that is not ours. The
// errs.Error around it says which; errors.Is(err, syscall.EBUSY) holds too.
var ErrProgram = errors.New("the interface has another XDP program")

// Config says how to open Ports. Only Interface and Addrs are needed.
type Config struct {
	// Interface is the name of an Ethernet interface. The loopback interface is
	// refused.
	Interface string

	// Addrs are the addresses whose packets are taken; see Port.SetAddrs.
	// Multicast groups need not be named.
	Addrs []netip.Addr

	// AnyAddr takes the packets to every address, and Addrs does not matter.
	AnyAddr bool

	// VLAN is the VLAN whose frames are taken, by their 802.1Q tags, 1 to 4094. 0: none,
	// only frames without a tag, or with one that names no VLAN but a priority. An
	// interface for the VLAN (`ip link add link eth0 type vlan`), which the kernel takes
	// the tags off for, needs 0.
	//
	// Tags that the card takes off (`ethtool -K eth0 rxvlan off` ends that) the program
	// does not see: such frames count as untagged.
	VLAN uint16

	// RingSize is how many frames each ring has, a power of two from 64 to 4096;
	// 0 means 512. Larger rings absorb longer bursts and fall out of the cache.
	RingSize int

	// Generic runs the program in the kernel's generic hook, also where the
	// driver could run it.
	Generic bool

	// Copy does not ask for zero copy.
	Copy bool

	// BusyPoll polls the interface for as long on every receive that finds
	// nothing (SO_PREFER_BUSY_POLL, SO_BUSY_POLL), rounded up to microseconds,
	// instead of waiting for its interrupt. 0: no.
	BusyPoll time.Duration

	// Memory is how many bytes of the UMEM are for what is sent from where it lies,
	// see Port.AllocMemory; 0: none. All of it is locked in RAM, as the UMEM is.
	Memory int

	// InPlace is the smallest payload in bytes that is sent from that memory without a
	// copy in user space; smaller ones are copied. 0: 256 with zero copy; in copy mode
	// none, because there it costs more processor time than it saves. Needs native mode
	// and Linux 6.6.
	InPlace int

	// SharePort opens the interface also if UDP port 4791 is taken there, by the
	// kernel's rxe for instance, which then gets no packets to Addrs any more. A note in
	// Info says so.
	SharePort bool

	// Force removes another XDP program from the interface.
	Force bool
}
