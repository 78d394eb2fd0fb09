package nic

import (
	"testing"
	"time"

	"github.com/goroce/roce/mono"
)

// batch is a batch of the background goroutine that wakes some goroutines, of which some post.
type batch struct {
	woken, posts int
	took         time.Duration // until the background goroutine continues
}

// Posts of goroutines that one batch has woken wait for the last of them, once such goroutines have been prompt.
func TestGather(t *testing.T) {
	prompt, slow := batch{woken: 3, posts: 3, took: time.Microsecond}, batch{woken: 3, posts: 3, took: 4*promptTime + 1}
	repeat := func(n int, b batch) (all []batch) {
		for range n {
			all = append(all, b)
		}
		return all
	}
	for _, test := range []struct {
		name    string
		history []batch
		last    batch
		answers bool // the packets of the last batch wait
		waiting int  // number of posts after the last batch that wait
	}{
		{"nothing is known", nil, prompt, false, 0},
		{"prompt", repeat(gatherScore, prompt), prompt, true, 2},
		{"not for long enough", repeat(gatherScore-1, prompt), prompt, false, 0},
		{"one goroutine", repeat(maxScore, prompt), batch{woken: 1, posts: 1}, false, 0},
		{"fewer posts than goroutines", repeat(maxScore, prompt), batch{woken: 3, posts: 1}, true, 1},
		{"more posts than goroutines", repeat(maxScore, prompt), batch{woken: 2, posts: 5}, true, 1},
		{"posts of others", repeat(maxScore, prompt), batch{posts: 5}, false, 0},
		{"slow once", append(repeat(maxScore, prompt), slow), prompt, true, 2},
		{"slow now and then", append(repeat(maxScore, prompt), slow, prompt, prompt, prompt, slow, prompt, prompt, slow), prompt, true, 2},
		{"slow three times", append(repeat(maxScore, prompt), slow, slow, slow), prompt, false, 0},
		{"slow for long", repeat(100, slow), prompt, false, 0},
		{"prompt again", append(repeat(100, slow), repeat(gatherScore, prompt)...), prompt, true, 2},
		{"posts too late", repeat(maxScore, prompt), batch{woken: 3, posts: 3, took: 4*promptTime + 1}, true, 0},
		{"batches that wake nobody say nothing", append(repeat(gatherScore, prompt), repeat(100, batch{took: time.Hour})...), prompt, true, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := gather{limit: mono.Never}
			now := mono.Time(1)
			run := func(b batch) (woke, answers bool, waiting int) {
				g.resumed(now)
				for range b.woken {
					g.woken++
				}
				woke, answers = g.handled(now)
				now = now.Add(b.took)
				for range b.posts {
					if g.posted(now) {
						waiting++
					}
				}
				return woke, answers, waiting
			}
			for _, b := range test.history {
				run(b)
			}
			woke, answers, waiting := run(test.last)
			if woke != (test.last.woken > 0) || answers != test.answers || waiting != test.waiting {
				t.Errorf("woke %t, answers wait %t, %d posts wait; want %t and %d", woke, answers, waiting, test.answers, test.waiting)
			}
		})
	}
}

// The background goroutine does not sleep while posts are deferred, and no post is deferred while it sleeps.
func TestGatheredPostsAreSent(t *testing.T) {
	s := &Shard{nic: &NIC{}, gather: gather{score: maxScore, due: 2, limit: 1}}
	if !s.gathers(0) {
		t.Fatal("the first of two posts does not wait")
	}
	s.deferred = true // as post does
	if !s.unfinished() {
		t.Error("nobody sends a post that waits")
	}
	for name, s := range map[string]*Shard{
		"the NIC is polled":               {nic: &NIC{polled: true}},
		"the background goroutine sleeps": {nic: &NIC{}, asleepUntil: mono.Never},
	} {
		s.gather = gather{score: maxScore, due: 2, limit: 1}
		if s.gathers(0) {
			t.Errorf("%s, and a post waits for it", name)
		}
	}
}
