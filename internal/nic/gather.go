package nic

import (
	"time"

	"github.com/goroce/roce/mono"
)

// A batch of packets may wake several goroutines of the program, and each of them may post an answer. If each
// post rang the doorbell, the answers would cost a system call each, and their acknowledgements one more. So the
// background goroutine lets the goroutines that it woke run before it sends acknowledgements, and posts of such
// goroutines wait for the last of them. All leave together then, at the latest when the background goroutine goes on.
//
// A goroutine that computes before it posts would delay what others have posted. So posts wait only if the
// goroutines that were woken were prompt lately.

const (
	// The goroutines that a batch woke were prompt if the background goroutine goes on within promptTime, and as much
	// for each of them: some tens of microseconds are a system call and some work.
	promptTime = 50 * time.Microsecond

	// A prompt batch adds to the score, and a slow one takes from it: another program may have had the processor.
	// Posts wait while the score is gatherScore or more.
	maxScore    = 16
	gatherScore = 8
	slowScore   = 3
)

// gather is what a shard knows of the goroutines that its background goroutine has woken. The shard's lock guards it.
type gather struct {
	woken int       // by the batch that is being handled
	due   int       // goroutines that the last batch woke and that have not posted since
	limit mono.Time // until when they are prompt; mono.Never: it woke none
	score int       // how prompt such goroutines have been
}

// Woke notes that a goroutine of the program waits no more, because a completion is there. The caller has locked the
// shard.
func (s *Shard) Woke() { s.gather.woken++ }

// resumed notes that the background goroutine goes on, and learns whether the goroutines that it woke were prompt.
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

// handled ends a batch of the background goroutine. It reports whether the batch has woken goroutines, and whether
// what it has to send waits for them.
func (g *gather) handled(now mono.Time) (woke, waits bool) {
	g.due, g.woken = g.woken, 0
	if g.due > 0 {
		g.limit = now.Add(time.Duration(1+g.due) * promptTime)
	}
	return g.due > 0, g.due > 0 && g.score >= gatherScore
}

// posted notes a post. It reports whether the post waits for those of other goroutines that were woken.
func (g *gather) posted(now mono.Time) bool {
	if g.due > 0 {
		g.due--
	}
	return g.due > 0 && g.score >= gatherScore && now <= g.limit
}

// gathers is posted for a shard whose background goroutine is at work, and sends what waits.
func (s *Shard) gathers(now mono.Time) bool {
	return s.gather.posted(now) && !s.nic.polled && s.asleepUntil == 0 && !s.polling.paused.Load()
}

// backgroundBatch is progress for the background goroutine. woke reports whether it has woken goroutines of the
// program, for which what it has to send may wait.
func (s *Shard) backgroundBatch() (n int, woke, open bool) {
	s.mu.Lock()
	if s.nic.stopped {
		s.mu.Unlock()
		return 0, false, false
	}
	now := s.nic.Now()
	s.gather.resumed(now)
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
