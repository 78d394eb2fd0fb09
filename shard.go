package roce

import (
	"runtime"
	"sync"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/sched"
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
	dev   *Device
	index int
	port  link.Port
	wire  frame.Sink // the shard itself, or one that sends payload in place

	mu       sync.Mutex
	frames   [link.Batch]link.Frame
	packet   frame.Packet
	flows    frame.Flows
	counters qp.Counters
	drops    DropCounters
	ready    []*QP // have something to send
	timers   timerHeap
	commits  uint64 // packets committed, to see whether a refusal passed
	flushed  uint64 // of them handed to the driver

	lazy    bool      // something waits to be sent or flushed, and nobody sleeps: see Config.Lazy
	hasty   int       // posts that did not wait because somebody slept, since one looked for completions
	refused bool      // the port, or the way back inside the device, had no room
	asleep  mono.Time // until when someone sleeps in the port's Wait; 0: nobody does
	ticking bool      // no longer than a tick
	busyAt  mono.Time // when there was traffic last

	health health

	notices     []notice // to be dispatched when the lock is free
	dispatching bool     // someone does
	behind      bool     // who did has left some

	loop  loopback
	inbox inbox
}

// notice is something the connection manager has to hear of, or said.
type notice struct {
	event cm.Event
	data  *cm.Conn // data arrived before the confirmation of this connection
	moved *CMConn  // its queue pair has migrated
	gone  bool     // the network interface was removed
}

func newShard(d *Device, index int, p link.Port) *shard {
	s := &shard{dev: d, index: index, port: p}
	s.wire = s
	if l, ok := p.(link.Lender); ok {
		s.wire = inPlaceSink{s, l}
	}
	s.loop.size = min(d.info.MTU+18, maxFrame) // Ethernet header and VLAN tag
	if s.first() {
		p.OnLink(d.linkChanged)
	}
	return s
}

// first reports whether the shard is the one the connection manager lives on.
func (s *shard) first() bool { return s.index == 0 }

// While there is traffic the goroutine never sleeps longer than a tick, so that a post
// which starts a timer needs not wake it: a timer may be that late. Traffic that has been
// quiet for longer is so rare that a wake-up for each post costs less than the ticks.
const (
	tick  = time.Millisecond
	quiet = 10 * time.Millisecond
)

// run is the background goroutine of a shard.
func (s *shard) run() {
	var last, now mono.Time // when there was work; the time
	var turns turns
	gave := false // others have had a turn since
	for {
		n, open := s.progress()
		if !open {
			return
		}
		before := now
		now = s.dev.now()
		turns.brought(n, now)
		if n > 0 {
			last, gave = now, false
			continue
		}
		if now.Sub(last) < s.dev.spin && now != before { // a clock that stands still must not be waited for
			runtime.Gosched() // whoever was waked runs now
			if sched.OneProcessor && !gave && turns.due(now) {
				gave = true // once: whoever has not come by then sleeps, and is waked
				began := s.dev.now()
				sched.Yield()
				turns.over(s.dev.now().Sub(began))
			}
			continue
		}
		if !s.rest(s.sleep()) {
			return
		}
		s.awake()
	}
}

// sleep decides how long to wait for packets and notes it. The caller goes to
// the port's Wait next, and then calls awake.
func (s *shard) sleep() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.dev.now()
	next := s.nextDeadline()
	s.ticking = false
	if end := now.Add(tick); now.Sub(s.busyAt) < quiet && end < next {
		next, s.ticking = end, true
	}
	s.asleep = next
	if next == mono.Never {
		return -1
	}
	return max(next.Sub(now), 0)
}

func (s *shard) awake() {
	s.mu.Lock()
	s.asleep = 0
	s.mu.Unlock()
}

// wake ends the sleep of whoever waits at the port, if there is something to do
// or it lasts too long for a new deadline. Waiting for room is the port's
// business.
func (s *shard) wake() {
	if s.asleep == 0 {
		return
	}
	if next := s.nextDeadline(); next == 0 || next < s.asleep && !s.ticking {
		s.asleep = 0
		s.port.Wake()
	}
}

// nextDeadline is when there is something to do even if no packet comes.
func (s *shard) nextDeadline() mono.Time {
	if s.leftOver() {
		return 0
	}
	next := s.timers.next()
	if s.first() {
		next = min(next, s.dev.gsi.manager.NextTimeout())
	}
	return next
}

// leftOver reports whether the last turn has left work that can go on now.
func (s *shard) leftOver() bool {
	return s.loop.waiting() || s.lazy || s.behind || !s.refused && (len(s.ready) > 0 || s.first() && s.dev.gsi.held)
}

// progress takes one batch from the port and does everything that is due. It
// returns how much there was, and false if the device is closed.
func (s *shard) progress() (n int, open bool) {
	s.mu.Lock()
	if s.dev.stopped {
		s.mu.Unlock()
		return 0, false
	}
	return s.batch(), true
}

// poll is progress for a queue of completions that is empty. With lazy answers
// it sends nothing if there are some now.
func (s *shard) poll(q *cq.CQ) {
	s.mu.Lock()
	if s.dev.stopped {
		s.mu.Unlock()
		return
	}
	if !s.dev.lazy {
		s.batch()
		return
	}
	s.hasty = 0
	if s.lazy {
		s.flush() // before all else: somebody waits for it
	}
	now := s.dev.now()
	if s.lazy {
		s.lazy = false
		s.send(now)
	}
	if s.take(now); q.Len() == 0 || s.asleep != 0 {
		s.finish(now)
		return
	}
	s.lazy = true
	s.settle(now)
}

// hurry sends what waits for a turn, unless someone else has one.
func (s *shard) hurry() {
	if !s.mu.TryLock() {
		return
	}
	s.hasty = 0
	if !s.lazy || s.dev.stopped {
		s.mu.Unlock()
		return
	}
	s.finish(s.dev.now())
}

// tryProgress is progress unless someone else has the lock.
func (s *shard) tryProgress() {
	if s.mu.TryLock() {
		if s.dev.stopped {
			s.mu.Unlock()
			return
		}
		s.batch()
	}
}

// batch is progress with the lock held, which it releases.
func (s *shard) batch() int {
	now := s.dev.now()
	n := s.take(now)
	s.finish(now)
	return n
}

// take handles a batch of packets and everything that is due, and returns how
// much there was.
func (s *shard) take(now mono.Time) int {
	n, err := s.port.Recv(s.frames[:])
	s.received(now, err)
	s.receiveAll(now, s.frames[:n])
	n += s.expire(now)
	n += s.drainInbox(now)
	if s.leftOver() {
		n++
	}
	if n > 0 {
		s.busyAt = now
	}
	return n
}

// expire runs the timers that are due and returns how many. A timer that stays
// due waits for the next time, lest the device hang in here.
func (s *shard) expire(now mono.Time) (n int) {
	for q := s.timers.due(now); q != nil; q = s.timers.due(now) {
		before := s.counters.CompleterRetryErr
		q.engine.HandleTimeout(now)
		if s.counters.CompleterRetryErr != before {
			s.dev.hops.doubt(now, q.engine.Path()) // the peer does not answer
		}
		s.touch(q)
		s.timers.set(q, max(q.engine.NextTimeout(), now+1))
		n++
	}
	if g := s.dev.gsi; s.first() && g.manager.NextTimeout() <= now {
		g.called().HandleTimeout(now)
		g.repeats = true
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
// manager's news, and unlock.
func (s *shard) finish(now mono.Time) {
	s.lazy = false
	s.send(now)
	s.settle(now)
}

// settle is finish without sending.
func (s *shard) settle(now mono.Time) {
	s.goRound(now)
	if s.first() {
		s.dev.gsi.collect(s)
	}
	s.wake()
	s.dispatch()
	s.mu.Unlock()
}

// Whoever enters delivers dispatchMost notices, about, and leaves the rest to the next
// one: strangers may cause more of them all the time. When maxNotices wait, because who
// delivers them is slow, datagrams for QP 1 are dropped.
const (
	dispatchMost = link.Batch
	maxNotices   = 8 * link.Batch
)

// dispatch delivers notices, without the lock and in order: while one goroutine
// does it the others leave theirs to it. Called with the lock held, which it
// releases meanwhile.
func (s *shard) dispatch() {
	if s.dispatching {
		return
	}
	s.behind = false
	for done := 0; len(s.notices) > 0 && done < dispatchMost; {
		batch := s.notices
		if most := dispatchMost - done; len(batch) > most {
			batch, s.notices = batch[:most:most], batch[most:]
		} else {
			s.notices = nil
		}
		done += len(batch)
		s.dispatching = true
		s.mu.Unlock()
		for _, n := range batch {
			s.dev.gsi.dispatch(n)
		}
		s.mu.Lock()
		s.dispatching = false
	}
	if len(s.notices) > 0 {
		s.behind = true
		s.wake()
	}
}

// dispatchAll delivers all notices, unless someone else does, at the end of the device.
func (s *shard) dispatchAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.dispatch(); s.behind && !s.dispatching; {
		s.dispatch()
	}
}

// turnPackets is how many packets one turn sends, about, before others get the
// lock and what has arrived meanwhile is looked at. The rest waits for the next
// turn. A window fits, and a look whether there is more, so that posting one
// need not wake anybody; much more would overrun a peer that answers as much as
// it gets.
const turnPackets = qp.DefaultWindow + 1

// send builds packets and hands them to the port's driver.
func (s *shard) send(now mono.Time) {
	s.build(now)
	s.flush()
}

// build lets the queue pairs that are ready build packets until they have no
// more, the turn is over, or the port has no room.
func (s *shard) build(now mono.Time) {
	if s.first() {
		s.dev.gsi.post(s)
	}
	s.refused = false
	end := s.commits + turnPackets
	last := ^uint64(0) // commits at the last refusal
	i := 0
	for i < len(s.ready) && s.commits < end {
		q := s.ready[i]
		more := q.engine.Emit(now, q.sink)
		s.timers.set(q, q.engine.NextTimeout())
		if more && s.refused {
			if s.commits == last {
				break // no room even after a flush: Wait returns when there is
			}
			last = s.commits
			s.flush()
			s.refused = false
			continue
		}
		i++
		if more { // its share is used up: the next one's turn
			s.ready = append(s.ready, q)
		} else {
			q.queued = false
		}
	}
	n := copy(s.ready, s.ready[i:])
	clear(s.ready[n:])
	s.ready = s.ready[:n]
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

// inPlaceSink is the sink of queue pairs on a port that sends payload from where it
// lies. A refusal is none: Begin comes next.
type inPlaceSink struct {
	*shard
	lender link.Lender
}

func (s inPlaceSink) BeginInPlace(p *frame.Path, n int, payload []byte, tail int) (head, trailer []byte, crc bth.CRC, ok bool) {
	return s.lender.BeginInPlace(p, n, payload, tail)
}

// Commit queues the packet at the port.
func (s *shard) Commit() {
	s.commits++
	s.port.Commit()
}

// maxHasty is how many posts leave at once, one by one, while somebody sleeps. Behind
// them come more: it pays to wake him for all the rest.
const maxHasty = 2

// waits reports whether a post of a lazy device waits for others.
func (s *shard) waits() bool {
	if s.asleep == 0 || s.hasty == maxHasty {
		s.hasty = 0
		return true
	}
	s.hasty++
	return false
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
	if s.dev.lazy && s.waits() {
		if s.build(now); s.commits-s.flushed < link.Batch {
			s.lazy = true
			s.settle(now)
			return err
		}
	}
	s.finish(now)
	return err
}
