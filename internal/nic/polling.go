package nic

import (
	"sync/atomic"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/alarm"
	"github.com/goroce/roce/mono"
)

// A program that polls an empty completion queue in a loop does the work of its shard. This is
// faster than waiting for the background goroutine, which pauses meanwhile, so that packets do not
// wake it. It sleeps until an alarm, which the polls postpone. So it resumes when the program stops polling: within
// a tick, and at once when the program waits.

const (
	// pollsInRow is the number of empty polls in a row after which a program counts as
	// polling. Programs that wait for completions poll once or twice before they wait.
	pollsInRow = 16

	// pollGap is the time after its last poll during which a program still
	// counts as polling.
	pollGap = 250 * time.Microsecond

	// A program that polls may then watch its memory for a WRITE, without calls. If packets had to wait for the end
	// of maxStalls pauses in a row, the background goroutine does not pause again until the program has polled for
	// trustAfter with gaps shorter than pollGap; this time doubles at each repetition. A single such pause means
	// little, because other programs may have used the processor.
	maxStalls  = 6
	trustAfter = 100 * time.Millisecond
	maxTrust   = 10 * time.Second

	// A program is prompt if it calls again within answerGap after a completion. It counts as answering while its score
	// is answerScore or more. A prompt call increases the score, a later one decreases it by lateScore. One late call says
	// little, because another program may have used the processor. But the late call clears the score if the background
	// goroutine had to send an acknowledgement that waited for this call.
	answerGap      = 10 * time.Microsecond
	answerScore    = 16
	lateScore      = 8
	maxAnswerScore = answerScore + lateScore

	// Acknowledgements wait only if no more queue pairs than this have something to send: looking at many takes long.
	fewReady = 4

	// A program posts singly if it has posted exactly once between two polls without success, singlesInRow times in a
	// row, like one that answers each message. Deferring its posts until the next poll would only delay them.
	singlesInRow = 16

	// A lingering poll waits for the next packet, for lingerTime at most. If lingering polls have found nothing maxCredit
	// times more often than something, polls do not linger for trustAfter. The packet that a lingering poll finds
	// need not be the WRITE that the program watches for; it may be an acknowledgement. So after maxPoor stalls in a
	// row, each with fewer than enoughHits hits before it, polls do not linger for some time, which doubles at each
	// repetition.
	lingerTime = 60 * time.Microsecond
	maxCredit  = 8
	enoughHits = 64
	maxPoor    = 4
)

// polling is a shard's record of the program that polls its completion queues.
type polling struct {
	polls   atomic.Uint32 // empty polls in a row
	last    atomic.Int64  // mono.Time of the last of them
	paused  atomic.Bool   // the background goroutine pauses
	alarm   alarm.Alarm   // ends the pause; nil on a NIC without background goroutines
	set     atomic.Int64  // mono.Time when the alarm was set
	stalls  atomic.Int32  // pauses in a row in which packets waited
	lingers atomic.Bool   // polls of the program linger with success, see linger

	// Used by the background goroutine.
	since mono.Time     // when the program began to poll; 0: it does not poll
	trust time.Duration // the program must poll for this time before there are pauses again

	// Guarded by the shard.
	handed  mono.Time     // time of the last poll with a message for the program; mono.Never: the program has called since
	awaited bool          // since then the background goroutine has sent deferred packets
	prompt  int           // score of prompt calls, up to maxAnswerScore
	came    bool          // since the last post a WRITE of a peer has come
	posts   int           // since the last poll without success
	singles int           // times in a row that posts was 1 at such a poll, up to singlesInRow
	credit  int           // of linger: polls with success minus those without
	notYet  mono.Time     // no poll lingers before this time
	hits    int           // lingering polls with success since the last stall
	poor    int           // stalls in a row with few hits before each
	lapsed  time.Duration // time without lingering after them
}

// pauses reports whether the background goroutine leaves the work to a polling
// program now.
func (s *Shard) pauses(now mono.Time) bool {
	p := &s.polling
	switch {
	case !s.polledAt(now):
		p.since = 0
		return false
	case p.lingers.Load():
		return true
	case p.since == 0:
		p.since = now
	case now.Sub(p.since) > max(p.trust, trustAfter):
		p.stalls.Store(0)
	}
	return p.stalls.Load() < maxStalls
}

// stalled records that packets waited for the end of a pause.
func (s *Shard) stalled() {
	p := &s.polling
	if p.stalls.Add(1) == maxStalls {
		p.trust = min(2*max(p.trust, trustAfter), maxTrust)
	}
	p.lingers.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.hits >= enoughHits:
		p.poor = 0
	case p.hits > 0:
		p.poor++
	}
	p.credit, p.hits = 0, 0
	if p.poor == maxPoor {
		p.poor, p.lapsed = 0, min(2*max(p.lapsed, trustAfter), maxTrust)
		s.lapse(s.nic.Now(), p.lapsed)
	}
}

// unstalled records that no packets waited for the end of a pause.
func (s *Shard) unstalled() {
	if !s.watched() {
		s.polling.stalls.Store(0)
	}
}

// watched reports whether the program watches its memory instead of polling.
func (s *Shard) watched() bool { return s.polling.stalls.Load() >= maxStalls }

// PollEmpty does pending work for a program that has found a completion queue empty,
// unless another goroutine holds the lock. The NIC has background goroutines.
func (s *Shard) PollEmpty(q *cq.CQ) {
	p := &s.polling
	now := s.nic.Now()
	if last := p.last.Swap(int64(now)); now.Sub(mono.Time(last)) >= pollGap {
		p.polls.Store(0)
	}
	now = s.letOthersRun(now)
	if s.collecting != nil {
		s.collecting.Until.Store(int64(now.Add(pollGap)))
	}
	polls := p.polls.Add(1)
	if polls > pollsInRow && p.paused.Load() {
		p.postpone(now)
	}
	drives := polls > 1 && q.Len() == 0 // a program that is about to wait polls only once
	if s.nic.lazy {
		for _, other := range s.nic.shards {
			if other != s || !drives {
				other.sendDeferred()
			}
		}
	}
	if drives {
		s.drive(q, now)
	}
}

// postpone postpones the end of the pause for a program that still counts as polling. Doing so for each poll would take too long.
func (p *polling) postpone(now mono.Time) {
	if set := p.set.Load(); now.Sub(mono.Time(set)) >= tick/2 && p.set.CompareAndSwap(set, int64(now)) {
		p.alarm.Postpone()
	}
}

// drive does the work of the background goroutine for a program that polls q.
func (s *Shard) drive(q *cq.CQ, now mono.Time) {
	if !s.lockForPoll() {
		s.yieldToHolder()
		return
	}
	s.called(now)
	s.polling.foundNothing()
	if s.nic.lazy {
		s.immediate = 0
		if s.deferred {
			s.deferred = false
			s.send(now)
		}
	}
	held := s.deferred // the program has polled again instead of answering
	recvs, writes := s.counters.RDMARecvs, s.counters.RDMAWrites
	found := s.work(now) > 0
	recvs, writes = s.counters.RDMARecvs-recvs, s.counters.RDMAWrites-writes
	if recvs > 0 {
		s.polling.handed = now
	}
	s.polling.came = s.polling.came || writes > 0
	switch {
	case q.Len() > 0 && s.watched():
		if s.polling.came { // before the acknowledgement, or along with it
			s.endWithWrite(now, !held)
			break
		}
		s.finish(now)
		s.linger(q)
	case recvs == 1 && !held: // in q or in another queue, which the program polls next
		s.endWithMessage(now)
	default:
		s.finish(now)
	}
	s.polled(found)
}

// endWithMessage ends a poll with a message for the program, and unlocks the shard. If the program usually answers, and nothing but
// acknowledgements would be sent, they wait for its next post.
func (s *Shard) endWithMessage(now mono.Time) {
	if !s.answers() || !s.owesOnlyACKs() {
		s.finish(now)
		return
	}
	for _, q := range s.ready { // a packet may have made a timer expire earlier
		s.timers.Set(&q.timer, q, q.engine.NextTimeout())
	}
	s.deferred = true
	s.conclude(now)
}

// owesOnlyACKs reports whether queue pairs with something to send have only positive acknowledgements. NAKs and responses must not wait: the
// program may not post before they have left.
func (s *Shard) owesOnlyACKs() bool {
	if s.commits != s.flushed || s.qp1.post || s.qp1.blocked || len(s.ready) > fewReady {
		return false
	}
	for _, q := range s.ready {
		if !q.engine.OwesOnlyACK() {
			return false
		}
	}
	return true
}

// endWithWrite ends a poll after which the program will probably find the WRITE for which it watches, and unlocks the shard. waits: the acknowledgement
// may wait for the program's answer, since the program has answered the message before.
func (s *Shard) endWithWrite(now mono.Time, waits bool) {
	p := &s.polling
	p.came = false
	if now < p.notYet {
		s.finish(now)
		return
	}
	p.hits++
	p.credit = min(p.credit+1, maxCredit)
	p.lingers.Store(p.credit == maxCredit)
	p.handed = now
	if !waits {
		s.finish(now)
		return
	}
	s.endWithMessage(now)
}

// lockForPoll locks the shard, unless another goroutine has the lock or the shard has stopped.
func (s *Shard) lockForPoll() bool {
	if !s.mu.TryLock() {
		return false
	}
	if s.nic.stopped {
		s.mu.Unlock()
		return false
	}
	return true
}

// called records a call of the program. The caller has locked the shard.
func (s *Shard) called(now mono.Time) {
	p := &s.polling
	if p.handed == mono.Never {
		return
	}
	switch {
	case now.Sub(p.handed) <= answerGap:
		p.prompt = min(p.prompt+1, maxAnswerScore)
	case p.awaited:
		p.prompt = 0
	default:
		p.prompt = max(p.prompt-lateScore, 0)
	}
	p.handed, p.awaited = mono.Never, false
}

// sendsAnyway records that the background goroutine sends deferred packets. The program may be about to call, so only
// its next call tells whether they have waited for too long.
func (p *polling) sendsAnyway() { p.awaited = p.handed != mono.Never }

// posted records posts. It reports whether a lazy NIC sends the post at once, because the program posts singly.
func (p *polling) posted(calls int) bool {
	p.posts += calls
	p.came = false
	return p.posts == 1 && p.singles == singlesInRow
}

// foundNothing records a poll without success.
func (p *polling) foundNothing() {
	switch p.posts {
	case 0:
	case 1:
		p.singles = min(p.singles+1, singlesInRow)
	default:
		p.singles = 0
	}
	p.posts = 0
}

// answers reports whether the program calls again soon after a completion. The shard then defers the
// acknowledgement until that call, so that it leaves with the program's answer. If the program does not call, the
// background goroutine sends it.
func (s *Shard) answers() bool { return s.polling.prompt >= answerScore && s.asleepUntil == 0 }

// linger extends a poll that has a completion, for a program that is about to watch its memory for a WRITE of its
// peer. While the program watches, it makes no calls, and on a machine with one processor it prevents the background
// goroutine from receiving the WRITE.
func (s *Shard) linger(q *cq.CQ) {
	p := &s.polling
	now := s.nic.Now()
	before, end := mono.Never, now.Add(lingerTime)
	for first := true; ; first = false {
		if !s.lockForPoll() {
			s.lingeredInVain()
			return
		}
		if first && now < p.notYet {
			s.mu.Unlock()
			return
		}
		packets, n := s.counters.RcvdPkts, q.Len()
		s.work(now)
		came := s.counters.RcvdPkts != packets && q.Len() == n
		over := now >= end || now == before // a clock that stands still must not be waited for
		if came {
			s.endWithWrite(now, true)
			return
		}
		if over {
			if p.credit--; p.credit < -maxCredit {
				s.lapse(now, trustAfter)
			}
			s.lingeredInVain()
		}
		s.finish(now)
		if over {
			return
		}
		before, now = now, s.nic.Now()
	}
}

// lapse makes polls not linger for d. The caller has locked the shard.
func (s *Shard) lapse(now mono.Time, d time.Duration) {
	s.polling.credit, s.polling.notYet = 0, now.Add(d)
}

// lingeredInVain makes the background goroutine receive the packet that the program is about
// to wait for.
func (s *Shard) lingeredInVain() {
	if s.polling.lingers.Swap(false) && s.polling.paused.Load() {
		s.polling.alarm.Ring()
	}
}

// Waits records that a program waits for completions or events, and thus does
// not poll any more.
func (s *Shard) Waits() {
	s.polling.polls.Store(0)
	s.vain.polls.Store(0)
	s.vain.asked.Store(false)
	if s.collecting != nil {
		s.collecting.On.Store(0) // what was collected is posted when the pause ends
	}
	if s.polling.paused.Load() {
		s.polling.alarm.Ring()
	}
}

// polledAt reports whether a program polls the shard at the time now.
func (s *Shard) polledAt(now mono.Time) bool {
	return s.polling.polls.Load() >= pollsInRow && now.Sub(mono.Time(s.polling.last.Load())) < pollGap
}

// pause leaves the work to the polling program, until it has not polled for a tick or waits. It reports
// whether the program has stopped polling without waiting.
func (s *Shard) pause() (stopped bool) {
	p := &s.polling
	p.paused.Store(true)
	defer p.paused.Store(false)
	if p.polls.Load() < pollsInRow || s.nic.Closing() { // the program, or Close, has not seen that we pause
		return false
	}
	s.letCollect(true)
	defer s.letCollect(false)
	began := s.nic.Now()
	p.set.Store(int64(began))
	rung := p.alarm.Sleep()
	if mono.Time(p.last.Load()).Sub(began) > tick-pollGap { // the program has polled for about a tick, and no packets waited
		s.unstalled()
	}
	return !rung && !s.polledAt(s.nic.Now())
}

// endPause ends the pause of a NIC that closes.
func (p *polling) endPause() {
	if p.alarm != nil {
		p.alarm.Ring()
	}
}

// close releases the alarm. The background goroutine has ended.
func (p *polling) close() {
	if p.alarm != nil {
		p.alarm.Close()
	}
}
