package nic

import (
	"sync"
	"time"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/deadline"
	"github.com/goroce/roce/internal/sched"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// Shard is one port and the queue pairs that send through it. Its mutex, taken once for
// each batch, guards everything in it and in those queue pairs.
//
// Every entry does its work and ends with finish: ready queue pairs send, the port is
// flushed, deadlines are recorded. The caller does this on its own goroutine, so a post
// costs no goroutine switch.
type Shard struct {
	nic   *NIC
	index int
	port  link.Port
	sink  frame.Sink // the shard itself, or one that sends payload in place

	mu       sync.Mutex
	frames   [link.Batch]link.Frame
	packet   frame.Packet
	flows    frame.Flows
	accepted addresses // of a packet from the network
	counters qp.Counters
	repair   *qp.Repair // of the queue pairs; nil: go-back-N
	drops    Drops
	ready    []*QP // queue pairs with something to send
	timers   deadline.Heap[*QP]
	commits  uint64 // committed packets; shows whether the port has room again
	flushed  uint64 // of them handed to the driver

	unbuilt     int       // work requests whose packets are not built yet
	deferred    bool      // packets wait to be built or flushed, while no goroutine sleeps: Config.Lazy, or gather
	immediate   int       // posts since the last poll that were sent at once because the goroutine slept
	refused     bool      // the port, or the loopback, had no room
	crowded     bool      // the queue pair that builds packets must wait for another process
	asleepUntil mono.Time // a goroutine sleeps in the port's Wait until then; 0: none does
	ticking     bool      // that sleep is at most a tick
	busyAt      mono.Time // time of the last traffic
	dataAt      mono.Time // when a queue pair last accepted a packet
	lookedAt    mono.Time // time of the last call of work
	behind      bool      // no goroutine called work for some time, and packets from that time may still wait
	backlog     int       // while behind: how many more batches to handle before expired timers
	lateAt      mono.Time // while behind: when that began

	qp1    qp1State
	health health
	calls  calls
	loop   loopback
	inbox  inbox
	out    share.Outlet // to other processes on the addresses; nil: there are none

	gather     gather
	collecting *Collecting // nil: no front end collects
	polling    polling
	seat       sync.Mutex // held by the goroutine that sleeps at the port, on a NIC with background goroutines
	vain       vain       // atomic
	eager      eager

	dryDrops     uint64    // datagrams to queue pairs without receives, except to groups
	strangeSince mono.Time // start of the count in strangers
	strangers    uint64    // strange packets since strangeSince
}

func newShard(n *NIC, index int, p link.Port) *Shard {
	s := &Shard{nic: n, index: index, port: p, repair: qp.NewRepair(n.recovery), qp1: qp1State{deadline: mono.Never}, gather: gather{limit: mono.Never},
		polling: polling{handed: mono.Never}, vain: vain{one: sched.OneProcessor || sched.OneThread(), yield: sched.Yield}}
	s.vain.most.Store(vainPolls)
	s.sink = s
	if l, ok := p.(link.Lender); ok {
		s.sink = inPlaceSink{s, l}
	}
	if n.shared != nil {
		s.out = n.shared.NewOut()
		s.inbox.room = make(chan struct{}, 1)
	}
	if n.collect != nil {
		s.collecting = new(Collecting)
	}
	s.loop.size = min(n.info.MTU+18, maxFrame) // Ethernet header and VLAN tag
	return s
}

// Index returns the number of the shard, from 0.
func (s *Shard) Index() int { return s.index }

// NIC returns the NIC of the shard.
func (s *Shard) NIC() *NIC { return s.nic }

// Lock and Unlock are for callers that cause no packets; others end with Finish.
func (s *Shard) Lock()   { s.mu.Lock() }
func (s *Shard) Unlock() { s.mu.Unlock() }

// Finish ends an entry whose caller has locked the shard: it sends ready packets, makes
// waiting calls, and unlocks the shard.
func (s *Shard) Finish() { s.finish(s.nic.Now()) }

// Drops returns the counters of dropped packets. The caller has locked the shard.
func (s *Shard) Drops() *Drops { return &s.drops }

// CountReceived counts a packet of QP 1. The caller has locked the shard.
func (s *Shard) CountReceived() { s.counters.RcvdPkts++ }

// Touch records that a queue pair may have something to send. The caller has locked
// the shard.
func (s *Shard) Touch(q *QP) { s.touch(q) }

// nextDeadline returns the time of the next work without a packet.
func (s *Shard) nextDeadline() mono.Time {
	if s.unfinished() {
		return 0
	}
	return min(s.timers.Next(), s.qp1.deadline)
}

// unfinished reports whether the last entry has left work that can continue
// now.
func (s *Shard) unfinished() bool {
	return s.loop.waiting() || s.deferred || s.calls.left || !s.refused && (len(s.ready) > 0 || s.qp1.blocked)
}

// progress handles one batch from the port and all expired deadlines. It returns the
// number of handled items; open is false if the device is closed.
func (s *Shard) progress() (n int, open bool) {
	s.mu.Lock()
	if s.nic.stopped {
		s.mu.Unlock()
		return 0, false
	}
	return s.batch(), true
}

// Poll is progress for an empty completion queue. On a lazy NIC it sends nothing if the
// queue then has completions.
func (s *Shard) Poll(q *cq.CQ) {
	s.letOthersRun(s.nic.Now())
	s.mu.Lock()
	if s.nic.stopped {
		s.mu.Unlock()
		return
	}
	if !s.nic.lazy {
		s.polled(s.batch() > 0)
		return
	}
	s.immediate = 0
	s.polling.foundNothing()
	if s.deferred {
		s.flush() // first: the caller waits for its answer
	}
	now := s.nic.Now()
	if s.deferred {
		s.deferred = false
		s.send(now)
	}
	n := s.work(now)
	if q.Len() == 0 || s.asleepUntil != 0 {
		s.finish(now)
		s.polled(n > 0)
		return
	}
	s.polled(true)
	s.deferred = true
	s.conclude(now)
}

// sendDeferred sends deferred posts, unless another goroutine has the lock.
func (s *Shard) sendDeferred() {
	if !s.mu.TryLock() {
		return
	}
	s.immediate = 0
	if !s.deferred || s.nic.stopped {
		s.mu.Unlock()
		return
	}
	s.finish(s.nic.Now())
}

// sendForgotten is sendDeferred for the background goroutine.
func (s *Shard) sendForgotten() {
	if !s.mu.TryLock() {
		return
	}
	if s.deferred {
		s.polling.sendsAnyway()
	}
	s.mu.Unlock()
	s.sendDeferred()
}

// sendPosted sends deferred posts before a queue pair changes its state, so that earlier
// posts leave earlier. The caller has locked the shard.
func (s *Shard) sendPosted(now mono.Time) {
	if s.deferred {
		s.deferred = false
		s.send(now)
	}
}

// TryProgress is progress, unless another goroutine has the lock.
func (s *Shard) TryProgress() {
	if s.mu.TryLock() {
		if s.nic.stopped {
			s.mu.Unlock()
			return
		}
		s.batch()
	}
}

// catchUpBatches bounds CatchUp: a stream never ends.
const catchUpBatches = 8

// CatchUp handles the packets that have arrived at the shards, if there are several. The first shard has the management
// datagrams: its caller is about to handle one, and it must not overtake the data that the peer sent before it. No lock
// is held. If the caller is one of the calls of a shard, those that the packets cause are made later.
func (n *NIC) CatchUp() {
	busy := len(n.shards) > 1
	for i := 0; busy && i < catchUpBatches; i++ {
		busy = false
		for _, s := range n.shards {
			k, _ := s.progress()
			busy = busy || k > 0
		}
	}
}

// batch is progress with the lock held, which it releases.
func (s *Shard) batch() int {
	now := s.nic.Now()
	n := s.work(now)
	s.finish(now)
	return n
}

// work handles a batch of packets and all expired deadlines, and returns the number of
// handled items.
func (s *Shard) work(now mono.Time) int {
	n, err := s.port.Recv(s.frames[:])
	if err != nil || s.health.failing.Load() {
		s.noteReceive(now, err)
	}
	if n > 0 || s.hasInbox() {
		n = s.handleBatch(now, s.frames[:n])
	}
	if s.upToDate(now, n) {
		n += s.expire(now)
	}
	if s.unfinished() {
		n++
	}
	if n > 0 {
		s.busyAt = now
	}
	return n
}

// handleBatch handles packets from the port and those from other shards and processes. It returns their number.
func (s *Shard) handleBatch(now mono.Time, frames []link.Frame) int {
	strange := s.strange()
	var received span
	if len(frames) > 0 {
		received = begin(regionReceive, &s.counters)
	}
	s.receiveAll(now, frames)
	received.end(&s.counters)
	n := len(frames) + s.drainInbox(now)
	if k := s.strange() - strange; k > 0 {
		s.noteStrange(now, k)
	}
	return n
}

// If no goroutine has called work for lateAfter, the shard is behind: packets may wait, and timers may
// have expired whose answers are among these packets. So the shard first handles up to maxBacklog
// batches, as many as a socket holds, and only then the expired timers. After mostBehind it handles the
// timers in any case: otherwise a shard in a flood whose goroutine is late for each batch would never
// handle them.
const (
	lateAfter  = 10 * time.Millisecond
	maxBacklog = 128
	mostBehind = 250 * time.Millisecond
)

// upToDate reports whether the shard handles expired timers now, after it has received n packets. It returns false if the
// shard is late and more packets may wait. A driver may return less than a batch although it has more.
func (s *Shard) upToDate(now mono.Time, n int) bool {
	if !s.behind && now.Sub(s.lookedAt) > lateAfter {
		s.behind, s.backlog, s.lateAt = true, maxBacklog, now
	}
	s.lookedAt = now
	if !s.behind {
		return true
	}
	if n == 0 || s.backlog == 0 || now.Sub(s.lateAt) > mostBehind {
		s.behind = false
		return true
	}
	s.backlog--
	return false
}

// expire handles expired deadlines and returns their number. If the new deadline of a
// queue pair has also expired, it waits for the next call, so that expire always ends.
func (s *Shard) expire(now mono.Time) (n int) {
	var timers span
	if min(s.timers.Next(), s.qp1.deadline) <= now {
		timers = begin(regionTimers, &s.counters)
	}
	for q, ok := s.timers.Due(now); ok; q, ok = s.timers.Due(now) {
		before := s.counters.CompleterRetryErr
		q.engine.HandleTimeout(now)
		if s.counters.CompleterRetryErr != before {
			s.nic.routes.Doubt(now, q.engine.Path()) // the peer does not answer
		}
		s.touch(q)
		s.timers.Set(&q.timer, q, max(q.engine.NextTimeout(), now+1))
		n++
	}
	if s.qp1.deadline <= now {
		s.nic.qp1.HandleTimeout(now)
		n++
	}
	timers.end(&s.counters)
	return n
}

// touch puts a queue pair on the list of queue pairs that may have something
// to send.
func (s *Shard) touch(q *QP) {
	if !q.queued {
		q.queued = true
		s.ready = append(s.ready, q)
	}
}

// finish ends every entry: it sends ready packets, collects the events of the
// connection manager, and unlocks the shard.
func (s *Shard) finish(now mono.Time) {
	s.deferred = false
	s.send(now)
	s.conclude(now)
}

// conclude is finish without sending. The conditions spare a poll that finds nothing some calls.
func (s *Shard) conclude(now mono.Time) {
	if s.loop.waiting() || s.out != nil {
		s.runLoopback(now)
	}
	if s.qp1.collect {
		s.collectQP1()
	}
	if s.asleepUntil != 0 {
		s.wake()
	}
	if len(s.calls.waiting) > 0 || s.calls.left {
		s.makeCalls()
	}
	s.mu.Unlock()
}
