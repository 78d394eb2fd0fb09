// Package raw is the driver that works on every Linux with CAP_NET_RAW: an
// AF_PACKET socket bound to one Ethernet interface, in batches of recvmmsg(2)
// and sendmmsg(2).
//
// A packet socket only taps: the kernel's own stack sees every packet too, and
// would answer RoCE packets with ICMP "port unreachable". A Port therefore also
// binds UDP port 4791, on its interface, with sockets that take no packet.
//
// Consecutive packets of equal size to one destination leave as one UDP
// segmentation offload (GSO) super-packet, and super-packets that arrive are
// taken apart again: on virtual networks this is most of the throughput. Such
// packets carry a UDP checksum; all others carry none, as RoCEv2 asks.
//
// Packets to an address of the own host are not on the wire and never come
// back here. Frames that were received with a VLAN tag have it in place, also
// where the kernel had stripped it.
package raw

// Config says how to open a Port. Only Interface is needed.
type Config struct {
	// Interface is the name of an Ethernet interface: a real one, a veth, a
	// bridge, a VLAN or macvlan interface. The loopback interface is refused.
	Interface string

	// RxBuffer and TxBuffer are the sizes of the socket buffers in bytes; 0
	// means 32 MiB and 8 MiB. The kernel charges about 2.3 KiB for a packet of
	// 1 KiB. Without CAP_NET_ADMIN, net.core.rmem_max and wmem_max limit them,
	// and a note in Info says so.
	RxBuffer, TxBuffer int

	// Qdisc sends through the interface's queueing discipline. Otherwise
	// packets pass it by (PACKET_QDISC_BYPASS), which is faster, and traffic
	// shaping does not apply to them.
	Qdisc bool

	// NoGSO sends every packet by itself. Super-packets are taken apart on
	// receive all the same.
	NoGSO bool
}
