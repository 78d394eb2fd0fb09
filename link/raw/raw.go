// Package raw is the driver for every Linux with CAP_NET_RAW: an AF_PACKET
// socket that is bound to one Ethernet interface, with batches by recvmmsg(2)
// and sendmmsg(2).
//
// A packet socket gets copies: the kernel's own stack also receives every packet,
// and would answer RoCE packets with ICMP "port unreachable". A Port therefore
// also binds UDP port 4791 on its interface, with sockets that reject every
// packet. So only one device at a time can be open on an interface, of this or any
// other driver and program: two would both answer each packet. Open fails with
// EADDRINUSE if another socket has the port on the interface. A socket with the
// port at an address of another interface does not conflict.
//
// # Sharing
//
// With Config.Shared processes of one user use an interface together: see package share. Each
// has its own packet sockets, whose filters accept packets for its queue pairs, packets to
// groups, connection requests, and other management datagrams with a communication ID of the
// process. All processes receive each request; the listener of the service answers it. All
// processes hold the sockets with the UDP port. Packets from one process to another do not
// pass through the interface. The kernel drops packets for no process, without counting them.
//
// # Super-packets
//
// Consecutive packets of equal size on one path leave as one UDP segmentation offload (GSO) super-packet of up to 64 packets or 64 KiB, which is
// built in place. Packets for queue pairs that are not equal modulo share.Slots, which may belong to several processes of the peer, do not share a
// super-packet, and neither do management datagrams. The other end of a veth, the device, or the kernel before it divides the super-packet; in each
// case every packet gets the IPv4 Identification of its ICRC. Such packets carry a UDP checksum; all others carry none, as RoCEv2 requires. If the
// kernel refuses super-packets (Linux before 6.2), the Port sends all packets separately. If the device does not support them, the Port sends
// through the queueing discipline, where the kernel divides them. The Port tries both again after some seconds, then at increasing intervals of at
// most five minutes. A temporary shortage of room in the device or of memory does not count as a refusal: such packets wait for some milliseconds.
//
// Recv returns the packets of a received super-packet in place, with one envelope for all of
// them. A super-packet comes from such a sender, or the kernel has joined packets with a
// checksum (GRO). The Port sees only the headers of the first packet. In the others only the
// Identification can differ. If the kernel did not compare it, the ICRC check finds the
// Identification, near its expected value: see [frame.Envelope]. If the kernel drops a
// super-packet because the receive buffer is full, Stats.RxDrops counts it once, independent
// of its number of packets.
//
// Before Linux 6.2 a packet socket cannot describe a received super-packet. If a sender on
// the same machine sends one, for instance link/udp at the other end of a veth, it is lost
// and counts in Stats.RxErrors; such a sender needs NoGSO.
//
// Packets for queue pair 1, management datagrams, arrive at a separate packet socket with
// a buffer of 4 MiB at most, so that a flood of them does not fill the buffer of the data.
// The filters of both sockets see only the first packet of a super-packet. A Port reads
// the data first. A Port that is the only queue uses that socket from the first management
// datagram on ([link.MADSplitter]), because each packet passes the filters of both.
//
// While the device reports a flood of strange packets, the filters accept only packets from
// the addresses of peers, packets to queue pairs that accept every source, and packets to
// queue pairs that are paused or were removed. Stats counts floods in RxFloods; the kernel
// does not count the packets.
//
// A Port never receives packets to an address of its own host, because they
// are not on the wire. Received frames have their VLAN tag in place, even if
// the kernel had removed it.
package raw

// Config configures a Port. Only Interface is required.
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
	// packets bypass it (PACKET_QDISC_BYPASS), which is faster, and traffic
	// shaping does not apply to them.
	Qdisc bool

	// VLAN is the VLAN of the accepted frames, by their 802.1Q tags, 1 to 4094. 0: only
	// frames without a tag, or with a tag that has a priority only. An interface for the
	// VLAN (`ip link add link eth0 type vlan`), for which the kernel removes the tags,
	// needs 0.
	VLAN uint16

	// SrcPort is the UDP source port of all sent packets, so that packets of
	// several queue pairs to one peer share super-packets. 0: a different one for
	// each queue pair, which spreads them over the paths of a network with several
	// paths.
	SrcPort uint16

	// SharePort opens the interface even if another device, another program or the kernel's
	// rxe has UDP port 4791 there. Both then receive every packet, and both answer: each
	// refuses the other's connections. It is for programs that only capture, or that share
	// nothing but the interface. A note in Info says so.
	SharePort bool

	// Shared lets other processes of this user use the interface, too: see package share. It
	// has no effect with SharePort.
	Shared bool

	// NoGSO sends every packet separately. The Port still receives
	// super-packets.
	NoGSO bool

	queues int // of the device
}
