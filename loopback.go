package roce

import (
	"sync"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Packets on their way inside the device are bounded, and so is how far one
// call takes a conversation of the device with itself.
const (
	loopLimit  = 256
	loopRounds = 4
	inboxLimit = 1024

	// maxFrame is more than a packet with a payload of 4096 bytes needs, whatever
	// the MTU; larger ones may come from outside.
	maxFrame = 4352
)

// loopback holds the packets a shard sent to the device itself. They never
// reach the port: no driver would hand them back.
type loopback struct {
	queue, other []forwarded // on their way; room for the next ones
	spare        [][]byte
	lending      []byte
	size         int // of a buffer
}

func (l *loopback) waiting() bool { return len(l.queue) > 0 }

// goRound takes the packets to the device itself to their queue pairs, and so
// on with the answers, for some rounds. What is left then goes on next turn.
func (s *shard) goRound(now mono.Time) {
	l := &s.loop
	for round := 0; len(l.queue) > 0 && round < loopRounds; round++ {
		batch := l.queue
		l.queue, l.other = l.other[:0], batch
		for i := range batch {
			f := &batch[i]
			s.receive(now, f.frame(), f.layout, fromSelf)
			l.spare = append(l.spare, f.Data)
		}
		s.send(now)
	}
}

// loopSink is the sink of packets to the device itself.
type loopSink struct{ *shard }

func (s loopSink) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	if s.loop.full() {
		s.refused = true
		return nil, 0, false
	}
	b := s.loop.lend(p.HeaderLen(frame.LayoutEthernet) + n)
	body, crc := p.Put(b, frame.LayoutEthernet, n, 0)
	return body, crc, true
}

func (s loopSink) Commit() { s.loop.commit(frame.LayoutEthernet) }

func (l *loopback) full() bool { return len(l.queue) >= loopLimit }

// lend returns room for one packet, which commit queues.
func (l *loopback) lend(size int) []byte {
	if k := len(l.spare); l.lending == nil && k > 0 {
		l.lending, l.spare = l.spare[k-1], l.spare[:k-1]
	}
	if cap(l.lending) < size {
		l.lending = make([]byte, max(size, l.size))
	}
	l.lending = l.lending[:size]
	return l.lending
}

func (l *loopback) commit(layout frame.Layout) {
	l.queue = append(l.queue, forwarded{Frame: link.Frame{Data: l.lending}, layout: layout})
	l.lending = nil
}

// datagramSink chooses between port and loopback for every packet: datagrams
// may go anywhere, those to a multicast group both ways.
type datagramSink struct {
	*shard
	noEcho bool // of own multicast
	loops  bool
	echoes bool
	path   *frame.Path // of the packet lent
}

func (d *datagramSink) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	c := p.Config()
	d.loops, d.echoes, d.path = d.dev.isLocal(&c.Dst), false, p
	if d.loops {
		return loopSink{d.shard}.Begin(p, n)
	}
	if !d.noEcho && d.dev.groups.byGID[c.Dst] != nil {
		if d.loop.full() {
			d.refused = true
			return nil, 0, false
		}
		d.echoes = true
	}
	return d.shard.Begin(p, n)
}

func (d *datagramSink) Commit() {
	if d.loops {
		loopSink{d.shard}.Commit()
		return
	}
	if d.echoes {
		sent := d.port.Lent()
		copy(d.loop.lend(len(sent)), sent)
		d.loop.commit(d.dev.info.Layout)
		if d.dev.info.Layout == frame.LayoutUDP { // the headers are the kernel's
			f := &d.loop.queue[len(d.loop.queue)-1]
			f.envelope = d.path.Envelope()
			f.Env = &f.envelope
		}
	}
	d.shard.Commit()
}

// inbox takes the packets for queue pairs of a shard that another shard
// received: the network knows nothing of shards.
type inbox struct {
	mu    sync.Mutex
	queue []forwarded // guarded by mu
	spare [][]byte    // guarded by mu

	other []forwarded // of the shard: room for the next ones
}

// forwarded is a frame on its way from one shard of a device to another: a copy.
type forwarded struct {
	link.Frame
	layout   frame.Layout
	envelope frame.Envelope // if the frame has one
}

// keep makes f a copy of fr with its bytes in b.
func (f *forwarded) keep(fr *link.Frame, b []byte, l frame.Layout) {
	f.Frame, f.layout = *fr, l
	f.Data = append(b[:0], fr.Data...)
	if fr.Env != nil {
		f.envelope = *fr.Env
	}
}

// frame returns the frame for as long as f stays where it is.
func (f *forwarded) frame() *link.Frame {
	if f.Env != nil {
		f.Env = &f.envelope
	}
	return &f.Frame
}

// forward hands a frame to another shard of the device, which owns its queue
// pair. Called with the lock of the receiving shard held, not of this one. It
// reports whether there was room.
func (s *shard) forward(f *link.Frame, l frame.Layout) bool {
	in := &s.inbox
	in.mu.Lock()
	n := len(in.queue)
	if n < inboxLimit {
		var b []byte
		if k := len(in.spare); k > 0 {
			b, in.spare = in.spare[k-1], in.spare[:k-1]
		}
		if cap(b) < len(f.Data) {
			b = make([]byte, 0, max(len(f.Data), s.loop.size))
		}
		in.queue = append(in.queue, forwarded{})
		in.queue[n].keep(f, b, l)
	}
	in.mu.Unlock()
	if n == 0 { // otherwise a Wake is on its way already
		s.port.Wake()
	}
	return n < inboxLimit
}

// drainInbox handles what other shards forwarded.
func (s *shard) drainInbox(now mono.Time) int {
	if len(s.dev.shards) == 1 {
		return 0
	}
	in := &s.inbox
	in.mu.Lock()
	batch := in.queue
	in.queue, in.other = in.other[:0], batch
	in.mu.Unlock()
	if len(batch) == 0 {
		return 0
	}
	for i := range batch {
		s.receive(now, batch[i].frame(), batch[i].layout, fromShard)
	}
	in.mu.Lock()
	for i := range batch {
		in.spare = append(in.spare, batch[i].Data)
	}
	in.mu.Unlock()
	return len(batch)
}
