package roce

import (
	"sync"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// Packets on their way inside the device are bounded, and so is how far one
// call takes a conversation of the device with itself.
const (
	loopLimit  = 256
	loopRounds = 4
	inboxLimit = 1024
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
		for _, f := range batch {
			s.receive(now, f.data, f.layout, false)
			l.spare = append(l.spare, f.data)
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
	l.queue = append(l.queue, forwarded{l.lending, layout})
	l.lending = nil
}

// datagramSink chooses between port and loopback for every packet: datagrams
// may go anywhere, those to a multicast group both ways.
type datagramSink struct {
	*shard
	noEcho bool // of own multicast
	loops  bool
	echoes bool
}

func (d *datagramSink) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	c := p.Config()
	d.loops, d.echoes = d.dev.isLocal(&c.Dst), false
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

// forwarded is a frame on its way from one shard of a device to another.
type forwarded struct {
	data   []byte
	layout frame.Layout
}

// forward hands a frame to another shard of the device, which owns its queue
// pair. Called with the lock of the receiving shard held, not of this one. It
// reports whether there was room.
func (s *shard) forward(data []byte, l frame.Layout) bool {
	in := &s.inbox
	in.mu.Lock()
	n := len(in.queue)
	if n < inboxLimit {
		var b []byte
		if k := len(in.spare); k > 0 {
			b, in.spare = in.spare[k-1], in.spare[:k-1]
		}
		if cap(b) < len(data) {
			b = make([]byte, 0, max(len(data), s.loop.size))
		}
		in.queue = append(in.queue, forwarded{append(b[:0], data...), l})
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
	for _, f := range batch {
		s.receive(now, f.data, f.layout, true)
	}
	in.mu.Lock()
	for _, f := range batch {
		in.spare = append(in.spare, f.data)
	}
	in.mu.Unlock()
	return len(batch)
}
