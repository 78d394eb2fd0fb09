// Package link is the boundary between the stack and whatever carries its
// packets. A [Port] is one queue of a driver: batches of frames in, batches of
// frames out, and a way to sleep until there is work.
//
// Drivers live in sub-packages: link/mem (a switch inside the process),
// link/raw (AF_PACKET) and link/udp (plain UDP sockets). Wrappers are Ports around Ports and stack freely:
// link/fault (an unreliable network), link/pcap (capture).
//
// # Which goroutine may call what
//
// A Port has one owner at a time, normally a shard holding its lock. Begin,
// Commit, Lent, Flush and Recv belong to the owner. Wait may run in one
// goroutine, without that lock, while another goroutine is the owner: this is
// how a post rings the doorbell in its caller while the shard sleeps. Wake,
// Close, Info, Stats and OnLink may be called by anyone at any time.
//
// # A turn
//
//	for {
//		n, err := port.Recv(frames)  // take a batch
//		...                          // handle it; Begin and Commit the answers
//		err = port.Flush()           // one kick for all of them
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
// which methods may run side by side.
//
// The methods of [frame.Sink] are the transmit side. Begin(p, n) lends room for
// a packet of n bytes (BTH..ICRC), its envelope already written; Commit queues
// exactly what the last Begin lent; a second Begin abandons what was not
// committed. Begin answers false only when there is no room now: call Flush and
// try again, and if that fails too, call Wait, which also returns when there is
// room. A packet beyond the MTU is lent room like any other, and is then
// counted in Stats.TxOversize and dropped, as a NIC would: it can never have
// room, so refusing it would stall its sender for good.
type Port interface {
	frame.Sink

	// Lent is the whole frame lent by the last successful Begin, from the
	// first byte of Info().Layout to the ICRC, until Commit or the next Begin;
	// nil when there is none. It is how wrappers see and change what is sent.
	Lent() []byte

	// Flush hands everything committed to the driver. What could not be sent
	// for want of room stays queued for the next Flush and is no error; Wait
	// says when to call that, also a Wait that is in progress already. An
	// error that is [ErrDown] is a condition and not the end: the frames are
	// dropped and counted, and the Port works again when the link does.
	Flush() error

	// Recv fills fr with frames that have arrived, in order, without blocking,
	// and returns how many. Their data is valid until the next Recv and may be
	// modified in place. Frames and an error may come together; [ErrDown]
	// is a condition as in Flush.
	Recv(fr []Frame) (int, error)

	// Wait blocks until there is a frame to receive, or Wake was called, or d
	// has passed (d < 0: without limit; 0: not at all), or, when the last Begin
	// was refused or the last Flush left something queued, until there is room
	// again. All of these return nil, and a return without cause is allowed:
	// callers look for work and wait again. It returns ErrClosed once the Port
	// is closed, also when Close comes while it blocks. Only one Wait at a time.
	Wait(d time.Duration) error

	// Wake makes the Wait in progress return or, when there is none, the next
	// one. Wakes are merged until a Wait returns, and never lost.
	Wake()

	// Close releases the Port. It ends a Wait in progress. Everything
	// afterwards fails with ErrClosed (Begin: false); a second Close too.
	Close() error

	Info() Info

	// Stats takes a snapshot. A driver that can asks whether the link is up.
	Stats() Stats

	// OnLink sets the function to be called whenever the driver notices that
	// the link went down or came up again: in Recv, Flush or Stats, or by
	// itself. It is called for one change at a time, in order, on the goroutine
	// that noticed, perhaps the owner's; it must not block, and of the Port it
	// may call only Wake and Info. Nil: no function.
	OnLink(f func(up bool))
}

// Lender is a Port that can send payload from memory of its own without a copy. A wrapper
// around such a Port is no Lender: it needs whole frames.
type Lender interface {
	Port
	frame.InPlaceSink

	// AllocMemory takes n bytes of that memory, which are zero; any goroutine may
	// call it, and free. Payload that is to be sent in place must lie in one piece in
	// it. [ErrUnsupported] says that the Port has none; errors that wrap ENOMEM, that
	// there are not n bytes left in one piece.
	AllocMemory(n int) (b []byte, free func(), err error)
}

// Frame is one received frame: a view of the driver's memory. See [Port.Recv]
// for how long it lives. If Env is nil it is laid out as Info().Layout says.
// Otherwise Data is the UDP payload alone, that of datagram Segment of the
// envelope, whatever the layout: so a driver hands out the segments of a
// super-packet where they are.
type Frame struct {
	Data    []byte
	Env     *frame.Envelope
	Segment uint16
	Intact  bool // CheckICRCs has found the ICRC right
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
// envelope and of one length. It sets Intact of those that are right, and returns how many
// frames it has looked at, at least one. A frame that is not Intact may be right all the
// same: then the caller uses [frame.Packet.CheckICRC].
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

// Batch is how many frames a shard should offer room for in one Recv. Drivers
// size their buffers for it; more is allowed.
const Batch = 128

// Info says what a Port is and can do. Only Mode may change over its life, when
// the driver finds that something does not work here after all.
type Info struct {
	Driver    string       // package name of the driver: "mem", "raw", "udp"
	Interface string       // network interface, or the name of a port of a mem.Hub
	Index     int          // of the network interface, if the host has one for it
	Speed     int          // of the link in Mb/s, when the Port was opened; 0: unknown
	MAC       frame.MAC    // own Ethernet address; zero when the kernel keeps it (LayoutUDP)
	MTU       int          // largest L3 packet in bytes (1500 on plain Ethernet)
	Layout    frame.Layout // what a frame's first byte is, both ways; see also Frame.Env
	SrcPort   uint16       // the UDP source port of all it sends, which its paths must have; 0: whatever the path has
	Mode      string       // how the driver runs here, for people: "recvmmsg, qdisc bypass"
	Notes     []string     // what was degraded on opening, and why
}
