package nic

import (
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// If the background goroutine is seldom needed, lingering polls have received the WRITEs that the program
// waits for. If it is needed again and again, polls stop lingering.
func TestStallsEndLingering(t *testing.T) {
	for _, test := range []struct {
		name   string
		hits   []int // before each stall
		lapses bool
	}{
		{"none lingered", []int{0, 0, 0, 0, 0, 0, 0, 0}, false},
		{"WRITEs", []int{enoughHits, 5000, 900, enoughHits, 100}, false},
		{"WRITEs, and others at the begin", []int{8, 9, 20, enoughHits, 8, 20}, false},
		{"acknowledgements", []int{8, 9, 8, 10}, true},
		{"WRITEs, then acknowledgements", []int{5000, 8, 9, 8, 10}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &Shard{nic: &NIC{epoch: time.Now()}}
			for _, hits := range test.hits {
				s.polling.hits, s.polling.credit = hits, maxCredit
				s.polling.lingers.Store(true)
				s.stalled()
				if s.polling.lingers.Load() || s.polling.credit != 0 {
					t.Fatal("lingers in spite of a stall")
				}
			}
			if lapses := s.polling.notYet > s.nic.Now(); lapses != test.lapses {
				t.Errorf("after %v hits before stalls: lapses %t", test.hits, lapses)
			}
		})
	}
	s := &Shard{nic: &NIC{epoch: time.Now()}}
	for before := time.Duration(0); before < maxTrust; before = s.polling.lapsed {
		for range maxPoor {
			s.polling.hits = 8
			s.stalled()
		}
		if s.polling.lapsed <= before || s.polling.lapsed > maxTrust {
			t.Fatalf("after a lapse of %v the next one is %v", before, s.polling.lapsed)
		}
	}
	if s.polling.notYet == mono.Never {
		t.Error("the lapse does not end")
	}
}

// A program counts as answering after enough prompt calls. One late call does not end that, two in a row do.
func TestAnswers(t *testing.T) {
	repeat := func(n int, d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }
	const late = answerGap + 1
	for _, test := range []struct {
		name  string
		calls []time.Duration // after completions
		want  bool
	}{
		{"nothing is known", nil, false},
		{"prompt", repeat(answerScore, answerGap), true},
		{"not for long enough", repeat(answerScore-1, answerGap), false},
		{"late once", append(repeat(100, 0), late), true},
		{"late twice", append(repeat(100, 0), late, late), false},
		{"late now and then", slices.Repeat(append(repeat(lateScore, 0), late), 10)[1:], false},
		{"late now and then, after long", append(repeat(100, 0), slices.Repeat(append(repeat(lateScore, 0), late), 10)...), true},
		{"prompt again", append(append(repeat(100, 0), repeat(5, late)...), repeat(answerScore, 0)...), true},
	} {
		s, now := &Shard{}, mono.Time(1)
		for _, after := range test.calls {
			s.polling.handed = now
			now = now.Add(after)
			s.called(now)
		}
		if got := s.answers(); got != test.want {
			t.Errorf("%s: answers: %t, with a score of %d", test.name, got, s.polling.prompt)
		}
	}
}

// A late call of a program clears the score if the background goroutine has sent the acknowledgement that waited for the
// program. A prompt call does not, although the background goroutine has sent it.
func TestForgottenAcknowledgement(t *testing.T) {
	for name, send := range map[string]func(*Shard){
		"the program has stopped polling": func(s *Shard) { s.backgroundBatch() },
		"at a tick":                       func(s *Shard) { s.sendForgotten() },
	} {
		for _, test := range []struct {
			after time.Duration
			want  int
		}{
			{answerGap, maxAnswerScore},
			{answerGap + 1, 0},
		} {
			s := newTestNIC(t, qp.RecoverGoBack).shards[0]
			handed := mono.Time(1)
			s.polling.prompt, s.polling.handed, s.deferred = maxAnswerScore, handed, true
			if send(s); s.deferred {
				t.Errorf("%s: the acknowledgement still waits", name)
			}
			s.called(handed.Add(test.after))
			if s.polling.prompt != test.want {
				t.Errorf("%s, a call %v later: the score is %d, want %d", name, test.after, s.polling.prompt, test.want)
			}
			s.polling.prompt, s.polling.handed = maxAnswerScore, handed
			if s.called(handed.Add(answerGap + 1)); s.polling.prompt != maxAnswerScore-lateScore {
				t.Errorf("%s: the score after the next late call is %d", name, s.polling.prompt)
			}
		}
	}
}

// A lazy NIC sends a post at once if the program posts once between two polls without success, and has done so several
// times. It defers the posts of a program that posts several times, from its first post on.
func TestSinglePosts(t *testing.T) {
	repeat := func(n, posts int) []int { return slices.Repeat([]int{posts}, n) }
	for _, test := range []struct {
		name  string
		posts []int // before each poll without success
		want  bool  // of the next post
	}{
		{"nothing is known", nil, false},
		{"one at a time", repeat(singlesInRow, 1), true},
		{"not for long enough", repeat(singlesInRow-1, 1), false},
		{"polls between them", slices.Repeat([]int{1, 0, 0}, singlesInRow), true},
		{"several", repeat(100, 2), false},
		{"several once", append(repeat(100, 1), 2), false},
		{"one at a time again", append(repeat(100, 2), repeat(singlesInRow, 1)...), true},
	} {
		var p polling
		for _, n := range test.posts {
			for range n {
				p.posted(1)
			}
			p.foundNothing()
		}
		if got := p.posted(1); got != test.want {
			t.Errorf("%s: sent at once: %t", test.name, got)
		}
		if p.posted(1) {
			t.Errorf("%s: the second post is sent at once, too", test.name)
		}
	}
}
