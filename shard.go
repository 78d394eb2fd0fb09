package roce

import (
	"sync"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// shard is one port and the queue pairs that send through it. Its mutex,
// taken once per batch, guards everything in it and in those queue pairs.
//
// Every entry does its own thing and then a turn (see finish): what became
// ready is sent, the port flushed, deadlines noted. Whoever enters does that on
// his own goroutine, so a post costs no switch.
type shard struct {
	dev  *Device
	port link.Port

	mu       sync.Mutex
	frames   [link.Batch]link.Frame
	packet   frame.Packet
	counters qp.Counters
	drops    DropCounters
	ready    []*QP // have something to send
	timers   timerHeap
	refused  bool      // the port had no room
	commits  uint64    // packets committed, to see whether a refusal passed
	asleep   mono.Time // until when the goroutine sleeps; 0: it does not
	busyAt   mono.Time // when there was traffic last
	waiting  chan struct{}
	notices  []notice // to be dispatched when the lock is free

	// Packets to the device itself.
	looped, loopedAlt [][]byte
	spare             [][]byte
	lending           []byte

	inboxMu sync.Mutex
	inbox   []forwarded // packets for queue pairs of this shard that another received
}

// notice is something the connection manager has to hear of, or said.
type notice struct {
	event cm.Event
	data  *cm.Conn // data arrived before the confirmation of this connection
}

func newShard(d *Device, p link.Port) *shard {
	return &shard{dev: d, port: p, waiting: make(chan struct{}, 1)}
}

// While there is traffic the goroutine never sleeps longer than a tick, so
// that a post whose timer ends later needs not wake it.
const (
	idleTick  = 50 * time.Millisecond
	idleAfter = time.Second // without traffic it sleeps as long as it may
)

// loop is the background goroutine of a shard.
func (s *shard) loop() {
	var last, now mono.Time // when there was work; the time
	for {
		busy, before := s.progress(), now
		now = s.dev.now()
		if busy {
			last = now
			continue
		}
		if now.Sub(last) < s.dev.spin && now != before { // a clock that stands still must not be waited for
			continue
		}
		s.mu.Lock()
		d := s.sleep(now)
		s.mu.Unlock()
		if s.port.Wait(d) != nil {
			return // closed
		}
		s.mu.Lock()
		s.asleep = 0
		s.mu.Unlock()
	}
}

// sleep decides how long to wait for packets and notes it.
func (s *shard) sleep(now mono.Time) time.Duration {
	next := s.nextDeadline()
	if now.Sub(s.busyAt) < idleAfter {
		next = min(next, now.Add(idleTick))
	}
	s.asleep = next
	if next == mono.Never {
		return -1
	}
	return max(next.Sub(now), 0)
}

func (s *shard) nextDeadline() mono.Time {
	next := s.timers.next()
	if s == s.dev.shards[0] {
		next = min(next, s.dev.gsi.manager.NextTimeout())
	}
	if len(s.looped) > 0 || len(s.ready) > 0 && !s.refused {
		next = 0
	}
	return next
}

// progress takes one batch from the port and does everything that is due. It
// reports whether there was anything.
func (s *shard) progress() bool {
	s.mu.Lock()
	now := s.dev.now()
	n, _ := s.port.Recv(s.frames[:]) // errors: the link is down, or we are closing
	for i := range s.frames[:n] {
		s.receive(now, s.frames[i].Data, s.dev.info.Layout)
	}
	n += s.expire(now)
	n += s.drainInbox(now)
	n += len(s.looped)
	if n > 0 {
		s.busyAt = now
	}
	s.finish(now)
	return n > 0
}

// expire runs the timers that are due and returns how many.
func (s *shard) expire(now mono.Time) (n int) {
	for q := s.timers.due(now); q != nil; q = s.timers.due(now) {
		q.engine.HandleTimeout(now)
		s.touch(q)
		s.timers.set(q, max(q.engine.NextTimeout(), now+1))
		n++
	}
	if g := s.dev.gsi; s == s.dev.shards[0] && g.manager.NextTimeout() <= now {
		g.manager.HandleTimeout(now)
		n++
	}
	return n
}

// touch puts a queue pair on the list of those that may have something to
// send.
func (s *shard) touch(q *QP) {
	if !q.queued {
		q.queued = true
		s.ready = append(s.ready, q)
	}
}

// finish ends every entry: send what is ready, pick up the connection
// manager's news, and unlock. Notices are dispatched without the lock.
func (s *shard) finish(now mono.Time) {
	s.send(now)
	for round := 0; len(s.looped) > 0 && round < loopRounds; round++ {
		batch := s.looped
		s.looped, s.loopedAlt = s.loopedAlt[:0], batch
		for _, b := range batch {
			s.receive(now, b, frame.LayoutEthernet)
		}
		s.spare = append(s.spare, batch...)
		s.send(now)
	}
	if s == s.dev.shards[0] {
		s.dev.gsi.collect(s)
	}
	// The sleeper must wake up for a deadline that is new, and to wait for room
	// in a port that had none.
	if s.asleep != 0 && (s.refused || s.nextDeadline() < s.asleep) {
		s.asleep = 0
		s.port.Wake()
	}
	notices := s.notices
	s.notices = nil
	s.mu.Unlock()
	for _, n := range notices {
		s.dev.gsi.dispatch(n)
	}
}

// send lets the queue pairs that are ready build packets until they have no
// more or the port has no room, and flushes the port.
func (s *shard) send(now mono.Time) {
	if s == s.dev.shards[0] {
		s.dev.gsi.send(s, now)
	}
	s.refused = false
	last := ^uint64(0) // commits at the last refusal
	for i := 0; i < len(s.ready); i++ {
		q := s.ready[i]
		more := q.engine.Emit(now, q.sink)
		s.timers.set(q, q.engine.NextTimeout())
		switch {
		case !more:
			q.queued = false
		case !s.refused: // its share is used up: the next one's turn
			s.ready = append(s.ready, q)
		case s.commits != last:
			last = s.commits
			s.port.Flush()
			s.refused = false
			i-- // the same again
		default: // no room even after a flush: Wait returns when there is
			s.ready = append(s.ready[:0], s.ready[i:]...)
			return
		}
	}
	clear(s.ready)
	s.ready = s.ready[:0]
	s.port.Flush()
}

// Begin and Commit make the shard the sink of its queue pairs: the port, with
// a note when it had no room.
func (s *shard) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	body, crc, ok := s.port.Begin(p, n)
	if !ok {
		s.refused = true
	}
	return body, crc, ok
}

// Commit queues the packet at the port.
func (s *shard) Commit() {
	s.commits++
	s.port.Commit()
}

// loopSink is the sink of packets to the device itself. They never reach the
// port: no driver would hand them back.
type loopSink struct{ *shard }

// Packets on their way inside the device are bounded, and so is how far one
// call takes a conversation of the device with itself.
const (
	loopLimit  = 256
	loopRounds = 4
)

func (l loopSink) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	s := l.shard
	if len(s.looped) >= loopLimit {
		s.refused = true
		return nil, 0, false
	}
	if k := len(s.spare); s.lending == nil && k > 0 {
		s.lending, s.spare = s.spare[k-1], s.spare[:k-1]
	}
	size := p.HeaderLen(frame.LayoutEthernet) + n
	if cap(s.lending) < size {
		s.lending = make([]byte, max(size, 2048))
	}
	s.lending = s.lending[:size]
	body, crc := p.Put(s.lending, frame.LayoutEthernet, n, 0)
	return body, crc, true
}

func (l loopSink) Commit() {
	l.looped = append(l.looped, l.lending)
	l.lending = nil
}

// datagramSink chooses between the two for every packet: datagrams may go
// anywhere.
type datagramSink struct {
	*shard
	loop bool
}

func (d *datagramSink) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	c := p.Config()
	if d.loop = d.dev.isLocal(&c.Dst); d.loop {
		return loopSink{d.shard}.Begin(p, n)
	}
	return d.shard.Begin(p, n)
}

func (d *datagramSink) Commit() {
	if d.loop {
		loopSink{d.shard}.Commit()
	} else {
		d.shard.Commit()
	}
}

// post runs f on a queue pair's engine and sends what comes of it: the
// doorbell.
func (s *shard) post(q *QP, f func(*qp.QP) error) error {
	s.mu.Lock()
	if s.dev.closed || q.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	err := f(q.engine)
	s.touch(q)
	now := s.dev.now()
	s.busyAt = now
	s.finish(now)
	return err
}
