package nic

import (
	"time"

	"github.com/goroce/roce/mono"
)

// A batch of packets may wake several goroutines of the program, and each of them may post an answer. If each post
// rang the doorbell, the answers would cost a system call each, and their acknowledgements one more. So the
// background goroutine lets the goroutines that it woke run before it sends acknowledgements, and defers their posts
// until the last of them has posted. All packets then leave together, at the latest when the background goroutine
// continues. If a batch wakes only one goroutine, the acknowledgement leaves at once: a peer that sleeps is then awake
// when the answer comes.
//
// A goroutine that computes before it posts would delay the posts of others. So the shard defers posts
// only if woken goroutines have been prompt lately.

const (
	// The goroutines that a batch woke were prompt if the background goroutine continues within promptTime plus
	// promptTime for each of them. That is enough for a system call and some work.
	promptTime = 50 * time.Microsecond

	// A prompt batch increases the score, and a slow one decreases it, because another program may have used the
	// processor. The shard defers posts while the score is gatherScore or more.
	maxScore    = 16
	gatherScore = 8
	slowScore   = 3
)

// gather is a shard's record of the goroutines that its background goroutine has woken. The shard's lock guards it.
type gather struct {
	woken int       // by the current batch
	due   int       // goroutines that the last batch woke and that have not posted since
	limit mono.Time // they are prompt until then; mono.Never: the batch woke none
	score int       // promptness of such goroutines
}

// Woke records that a completion has woken a goroutine of the program. The caller has locked the shard.
func (s *Shard) Woke() { s.gather.woken++ }

// resumed records that the background goroutine continues, and updates the score: were the goroutines that it woke
// prompt?
func (g *gather) resumed(now mono.Time) {
	switch {
	case g.limit == mono.Never:
	case now <= g.limit:
		g.score = min(g.score+1, maxScore)
	default:
		g.score = max(g.score-slowScore, 0)
	}
	g.due, g.woken, g.limit = 0, 0, mono.Never
}

// handled ends a batch of the background goroutine. woke tells whether the batch has woken goroutines, waits
// whether the batch's packets wait for the posts of several.
func (g *gather) handled(now mono.Time) (woke, waits bool) {
	g.due, g.woken = g.woken, 0
	if g.due > 0 {
		g.limit = now.Add(time.Duration(1+g.due) * promptTime)
	}
	return g.due > 0, g.due > 1 && g.score >= gatherScore
}

// posted records a post. It reports whether the post waits for those of other woken goroutines.
func (g *gather) posted(now mono.Time) bool {
	if g.due > 0 {
		g.due--
	}
	return g.due > 0 && g.score >= gatherScore && now <= g.limit
}

// gathers records a post, as posted does. It returns true only if the background goroutine is running, because that
// goroutine sends the deferred posts.
func (s *Shard) gathers(now mono.Time) bool {
	return s.gather.posted(now) && !s.nic.polled && s.asleepUntil == 0 && !s.polling.paused.Load()
}

// backgroundBatch is progress for the background goroutine. woke tells whether it has woken goroutines of the
// program, for whose posts its packets may wait.
func (s *Shard) backgroundBatch() (n int, woke, open bool) {
	s.mu.Lock()
	if s.nic.stopped {
		s.mu.Unlock()
		return 0, false, false
	}
	now := s.nic.Now()
	s.gather.resumed(now)
	if s.deferred {
		s.polling.sendsAnyway()
	}
	n = s.work(now)
	woke, waits := s.gather.handled(now)
	if waits {
		s.deferred = true
		s.conclude(now)
	} else {
		s.finish(now)
	}
	return n, woke, true
}
