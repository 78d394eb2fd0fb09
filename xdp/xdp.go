// Package xdp is the AF_XDP driver: frames go between user space and the network
// interface's driver through four rings in shared memory, past the kernel's own
// stack. It needs Linux 5.9 or later and CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF,
// or root.
//
// A small program in the interface's receive path redirects the RoCEv2 packets of the
// device to the socket: UDP to port 4791, not fragmented, without IP options or extension
// headers, of the device's VLAN, to one of its addresses or to a multicast group. It passes
// all other packets on to the kernel, so that ARP, ssh and the rest work as before. The
// kernel never sees a redirected packet: tcpdump does not show it, and no ICMP message
// answers it. The kernel detaches the program when the process ends, even if it is killed.
// Open claims UDP port 4791 of the interface, because another device there, of any driver
// and program, would believe that it gets the packets. If another socket has the port, Open
// fails with EADDRINUSE.
//
// # One owner
//
// The sockets of a queue share one memory area, which belongs to one process. So one process
// owns an interface over xdp, and processes cannot share it. As long as that process has it
// open, every other device on the interface, of any driver and process, fails to open with
// EADDRINUSE, and the error names the process. A device of this driver fails likewise if
// processes share the interface over raw or udp.
//
// # Early drop
//
// A device tells the program which queue pairs exist and where their peers are
// (Port.Filter, which link.Filterer documents). The program then drops packets that no
// queue pair can take, and management datagrams beyond a limit, before they use a place in
// a ring. Without a call of Filter the Port receives all packets to its addresses.
//
// # Modes
//
// The driver of the interface may run the program itself (native), or the kernel
// does so later (generic). Frames are copied once each way between the UMEM and the
// kernel's buffers (copy), or the interface works on the UMEM (zero copy). Open
// chooses the best available mode and reports it in Info().Mode; Info().Notes lists
// what is not available, and why. Zero copy depends on the card and its driver;
// Config.ZeroCopy turns it off, or on where Open does not trust the driver.
//
// A packet larger than a page, such as one of path MTU 4096, needs several
// descriptors (XDP_USE_SG), a program that is loaded for them, and native mode.
// In generic mode that combination has crashed kernels; there Open limits the MTU
// instead, and the largest path MTU is 2048.
//
// # Payload in place
//
// A Port can send memory that Port.AllocMemory has taken from the UMEM without a
// copy in user space: such a frame has a descriptor for its headers, one or two for
// the payload, and one for the pad and the ICRC. With zero copy the card reads the
// payload from the application's memory; in copy mode the kernel reads it, and there
// sending in place is off unless Config.InPlace requests it. docs/zero-copy.md says
// which step copies what.
//
// The program does not see a VLAN tag that the card takes out of the frame (rxvlan in
// ethtool -k). The Port clears the UDP checksums of received frames: a sender on the same
// host may leave them incomplete, and nothing in the frame shows that. The ICRC covers the
// same bytes.
package xdp

import (
	"errors"
	"net/netip"
	"time"
)

// ErrProgram says that another program has attached an XDP program to the
// interface. The errs.Error around it says which; errors.Is(err,
// syscall.EBUSY) holds too.
var ErrProgram = errors.New("the interface has another XDP program")

// Config configures Ports. Only Interface and Addrs are required.
type Config struct {
	// Interface is the name of an Ethernet interface. The loopback interface is
	// refused.
	Interface string

	// Addrs are the addresses of the device: the Port receives packets to
	// them; see Port.SetAddrs. Multicast groups need not be named.
	Addrs []netip.Addr

	// AnyAddr receives the packets to every address and ignores Addrs.
	AnyAddr bool

	// VLAN is the VLAN whose frames the Port receives, by their 802.1Q tags, 1 to 4094.
	// With 0 it receives only frames without a tag, or with a tag that has a priority
	// and no VLAN. Set 0 for an interface of the VLAN (`ip link add link eth0 type
	// vlan`), where the kernel removes the tags.
	//
	// The program does not see tags that the card removes (`ethtool -K eth0 rxvlan off`
	// ends that): such frames count as untagged.
	VLAN uint16

	// RingSize is how many frames each ring has, a power of two from 64 to 4096;
	// 0 means 512. Larger rings absorb longer bursts and fall out of the cache.
	RingSize int

	// Generic runs the program in the kernel's generic hook even if the
	// driver could run it.
	Generic bool

	// ZeroCopy says whether the interface works on the UMEM itself.
	ZeroCopy ZeroCopy

	// BusyPoll is how long a receive that finds no packet polls the interface
	// (SO_PREFER_BUSY_POLL, SO_BUSY_POLL) instead of waiting for its
	// interrupt, rounded up to microseconds. 0: it does not poll.
	BusyPoll time.Duration

	// Memory is the size in bytes of the part of the UMEM that Port.AllocMemory
	// hands out; 0: none. The kernel locks all of it in RAM, like the rest of the
	// UMEM.
	Memory int

	// InPlace is the smallest payload in bytes that the Port sends from that memory
	// without a copy in user space; it copies smaller ones. 0 means 256 with zero copy,
	// and no sending in place in copy mode, because there it costs more processor time
	// than it saves. InPlace needs native mode and Linux 6.6.
	InPlace int

	// SharePort opens the interface even if another socket has UDP port 4791 there, that
	// of the kernel's rxe for instance. That socket then gets no more packets to Addrs.
	// A note in Info says so.
	SharePort bool

	// Force removes another XDP program from the interface.
	Force bool
}
