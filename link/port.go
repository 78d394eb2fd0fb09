// Package link is the interface between the stack and its drivers. A [Port] is
// one queue of a driver: it receives and sends batches of frames, and sleeps
// until there is work.
//
// The drivers are in sub-packages: link/mem (a switch inside the process), link/raw (AF_PACKET) and link/udp (plain
// UDP sockets). Wrappers are Ports that wrap a Port, in any combination: link/fault (an unreliable network),
// link/pcap (capture).
//
// # Which goroutine may call what
//
// A Port has one owner at a time, normally a shard holding its lock. Begin,
// Commit, Lent, Flush and Recv belong to the owner. Wait may run in one
// goroutine, without that lock, while another goroutine is the owner: so a
// post can ring the doorbell on its caller's goroutine while the shard
// sleeps. Any goroutine may call Wake, Close, Info, Stats and OnLink at any
// time.
//
// # A loop
//
//	for {
//		n, err := port.Recv(frames)  // take a batch
//		...                          // handle it; Begin and Commit the answers
//		err = port.Flush()           // send all of them at once
//		if n == 0 && idle {
//			err = port.Wait(untilNextDeadline)
//		}
//	}
package link

import (
	"time"

	"github.com/goroce/roce/bth/frame"
)

// Port is one transmit and receive queue of a driver. The package comment says
// which methods may run at the same time.
//
// The methods of [frame.Sink] are the transmit side. Begin(p, n) lends room for
// a packet of n bytes (BTH..ICRC), with the envelope already written. Commit
// queues the packet of the last Begin; a second Begin abandons a packet that
// was not committed. Begin returns false only if there is no room now: the
// caller calls Flush and tries again; if that fails, too, it calls Wait, which
// also returns when there is room. Begin also lends room for a packet larger
// than the MTU; Commit counts it in Stats.TxOversize and drops it, as a NIC
// does: refusing it would stall its sender for ever.
type Port interface {
	frame.Sink

	// Lent returns the whole frame of the last successful Begin, from the
	// first byte of Info().Layout to the ICRC, until Commit or the next Begin;
	// nil if there is none. With it wrappers read and change packets.
	Lent() []byte

	// Flush sends all committed frames. Frames for which there is no room
	// stay queued for the next Flush, without an error; Wait, also one in
	// progress, returns when there is room. [ErrDown] does not end the Port:
	// it drops and counts the frames, and works again when the link is up.
	Flush() error

	// Recv fills fr with received frames, in order, without blocking, and
	// returns their number. Their data is valid until the next Recv and may be
	// modified in place. Recv may return frames and an error together;
	// [ErrDown] does not end the Port, as in Flush.
	Recv(fr []Frame) (int, error)

	// Wait blocks until there is a frame to receive, or Wake was called, or d
	// has passed (d < 0: without limit; 0: not at all), or, when the last Begin
	// was refused or the last Flush left something queued, until there is room
	// again. In all these cases it returns nil. It may also return without a
	// cause: callers check for work and wait again. It returns ErrClosed once
	// the Port is closed, also if Close is called while it blocks. Only one Wait
	// may run at a time.
	Wait(d time.Duration) error

	// Wake makes the Wait in progress return or, if there is none, the next
	// one. Several Wakes before a Wait returns count as one; none is lost.
	Wake()

	// Close releases the Port and ends a Wait in progress. Later calls fail
	// with ErrClosed (Begin returns false), and so does a second Close.
	Close() error

	Info() Info

	// Stats returns a snapshot. If the driver can, it checks whether the link
	// is up.
	Stats() Stats

	// OnLink sets a function that the driver calls when it notices that the
	// link went down or came up: in Recv, Flush or Stats, or by itself. The
	// driver calls f for one change at a time, in order, on the goroutine that
	// noticed it, perhaps the owner's. f must not block, and may call no
	// methods of the Port but Wake and Info. Nil removes the function.
	OnLink(f func(up bool))
}

// Lender is a Port that can send payload from its own memory without a copy. A wrapper
// around such a Port is not a Lender, because it needs whole frames.
type Lender interface {
	Port
	frame.InPlaceSink

	// AllocMemory allocates n zero bytes of that memory; any goroutine may call it,
	// and free. Only contiguous payload in this memory can be sent in place. It fails
	// with [ErrUnsupported] if the Port has no such memory, and with ENOMEM if there
	// are no n contiguous bytes left.
	AllocMemory(n int) (b []byte, free func(), err error)
}

// MADSplitter is a Port that can receive management datagrams, packets for queue pair 1, in a queue of their own. At
// first they arrive with the data: a second queue makes each packet cost a little more, and many devices never
// receive a management datagram.
type MADSplitter interface {
	Port

	// SplitMADs moves them to their own queue. The owner calls it when the device first receives or sends one; further
	// calls do nothing. Datagrams that wait in the queue of the data stay there, and one that comes during the call may
	// arrive twice. If the kernel refuses, they continue to arrive with the data, and Info().Mode says so.
	SplitMADs()
}

// Frame is one received frame, in the driver's memory. See [Port.Recv] for
// its lifetime. If Env is nil, the frame has layout Info().Layout. Otherwise
// Data is only the UDP payload of datagram number Segment of the envelope, in
// any layout: so a driver can return the segments of a super-packet in place.
type Frame struct {
	Data    []byte
	Env     *frame.Envelope
	Segment uint16
	Intact  bool // CheckICRCs has found that the ICRC is right
}

// MatchFlow replaces a whole frame by its body and the envelope of its flow, as drivers deliver
// the segments of a super-packet, if an earlier frame of the flow was parsed. The result is
// valid until the next call of flows.NextBatch. f.Env must be nil; l is Info().Layout.
func (f *Frame) MatchFlow(flows *frame.Flows, l frame.Layout) {
	if env, i, body := flows.Match(f.Data, l); env != nil {
		f.Data, f.Env, f.Segment = body, env, i
	}
}

// CheckICRCs checks the ICRCs of the first four frames at once, if they are datagrams of one
// envelope and of one length. It sets Intact of the right ones, and returns the number of
// checked frames, at least one. A frame that is not Intact may still be right: the caller
// then uses [frame.Packet.CheckICRC].
func CheckICRCs(fr []Frame) int {
	var (
		b     [4][]byte
		n     [4]uint16
		first = &fr[0]
	)
	first.Intact = false
	for i := range b {
		if i == len(fr) {
			return i
		}
		f := &fr[i]
		if f.Env == nil || f.Env != first.Env || len(f.Data) != len(first.Data) {
			return max(i, 1) // the next run may begin there
		}
		f.Intact, b[i], n[i] = false, f.Data, f.Segment
	}
	if !first.Env.CheckFour(&b, &n) {
		return len(b)
	}
	for i := range b {
		fr[i].Intact = true
	}
	return len(b)
}

// Parse parses the frame into p; l is Info().Layout.
func (f *Frame) Parse(p *frame.Packet, l frame.Layout) error {
	if f.Env != nil {
		err := p.ParseBody(f.Data, f.Env, f.Segment)
		if f.Intact {
			p.SetIntact()
		}
		return err
	}
	return p.Parse(f.Data, l)
}

// Batch is the number of frames for which a shard should offer room in one
// Recv. Drivers size their buffers for it; more is allowed.
const Batch = 128

// Info describes a Port. Only Mode may change later, when the driver finds that
// a feature does not work.
type Info struct {
	Driver    string       // package name of the driver: "mem", "raw", "udp"
	Interface string       // network interface, or the name of a port of a mem.Hub
	Index     int          // of the network interface, if the host has one for it
	Speed     int          // of the link in Mb/s, when the Port was opened; 0: unknown
	MAC       frame.MAC    // own Ethernet address; zero if only the kernel knows it (LayoutUDP)
	MTU       int          // largest L3 packet in bytes (1500 on plain Ethernet)
	Layout    frame.Layout // layout of frames in both directions; see also Frame.Env
	SrcPort   uint16       // the UDP source port of all sent packets, which paths must have; 0: that of each path
	Mode      string       // mode of the driver, for people: "recvmmsg, qdisc bypass"
	Notes     []string     // features that are missing since opening, with the reason
}
