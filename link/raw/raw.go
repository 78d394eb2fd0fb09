// Package raw is the driver that works on every Linux with CAP_NET_RAW: an
// AF_PACKET socket bound to one Ethernet interface, in batches of recvmmsg(2)
// and sendmmsg(2).
//
// A packet socket only taps: the kernel's own stack sees every packet too, and
// would answer RoCE packets with ICMP "port unreachable". A Port therefore also
// binds UDP port 4791 on its interface, with sockets that take no packet. So only
// one device at a time can be open on an interface, of this or any other driver
// and program: two would both answer each packet. Open fails with EADDRINUSE if
// another socket has the port there. A socket that has it at an address of another
// interface does not matter.
//
// # Sharing
//
// With Config.Shared processes of one user use an interface together: see package share. Each
// has packet sockets of its own, whose filters take packets for its queue pairs, packets to
// groups, requests to connect, and other management datagrams that name a communication ID of
// its own. Of those that receive a request the process answers that listens for the service.
// All of them hold the sockets that have the UDP port. Packets from one process to another do
// not pass through the interface. The kernel drops packets that are for no process, and counts
// them nowhere.
//
// # Super-packets
//
// Consecutive packets of equal size on one path leave as one UDP segmentation
// offload (GSO) super-packet of up to 64 packets or 64 KiB, which is built in
// place. Packets for queue pairs that are not equal modulo share.Slots, which may be of several
// processes of the peer, share no super-packet, nor do management datagrams. The other end of a veth, the device, or the kernel before it splits the
// super-packet; in each case every packet gets the IPv4 identification that its ICRC was made for. Such
// packets carry a UDP checksum; all others carry none, as RoCEv2 asks. If the kernel
// refuses super-packets (Linux before 6.2), all packets go by themselves. If the device
// does not know them, the Port sends through the queueing discipline, where the kernel
// segments them. The Port tries both again after some seconds, then after longer and
// longer, five minutes at most. A device or memory without room for a moment does not
// count: such packets wait for some milliseconds.
//
// Recv returns the packets of a received super-packet in place, with one envelope for all of
// them. It comes from such a sender, or the kernel has joined packets that have a checksum
// (GRO). The Port sees the headers of the first packet. In the others only the
// identification can differ. Where the kernel did not compare it, the ICRC check finds it,
// near its expected value: see [frame.Envelope]. A super-packet that finds the receive buffer
// full counts as one in Stats.RxDrops, however many packets it has.
//
// Before Linux 6.2 a packet socket cannot describe a received super-packet. One of a sender
// on the same machine, for instance of link/udp at the other end of a veth, is lost and
// counts in Stats.RxErrors; such a sender needs NoGSO.
//
// Packets for queue pair 1, management datagrams, arrive at a packet socket of their own,
// with a buffer of 4 MiB at most: a flood of them leaves the buffer of the data alone. The
// filters of both sockets see the first packet of a super-packet. A Port reads the data
// first.
//
// When the device reports a flood of strange packets, the filters take only packets from the
// addresses of peers and to queue pairs that take packets from every address, as long as the
// flood lasts. Beside the latter they take those to queue pairs that are paused or gone. Stats
// counts floods in RxFloods; the kernel does not count the packets.
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

	// VLAN is the VLAN whose frames are taken, by their 802.1Q tags, 1 to 4094. 0: none,
	// only frames without a tag, or with one that names no VLAN but a priority. An
	// interface for the VLAN (`ip link add link eth0 type vlan`), which the kernel takes
	// the tags off for, needs 0.
	VLAN uint16

	// SrcPort is the UDP source port of everything that is sent, so that packets
	// of several queue pairs to one peer share super-packets. 0: one for each queue
	// pair, which spreads them over the paths of a network that has several.
	SrcPort uint16

	// SharePort opens the interface even if another device, another program or the kernel's
	// rxe has UDP port 4791 there. Every packet then goes to both, and both answer: each
	// refuses the other's connections. It is for programs that only capture, or that share
	// nothing but the interface. A note in Info says so.
	SharePort bool

	// Shared lets other processes of this user use the interface, too: see package share. It
	// changes nothing with SharePort.
	Shared bool

	// NoGSO sends every packet by itself. Super-packets are taken all the same.
	NoGSO bool

	queues int // of the device
}
