package scenario_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// program is b, which polls in a loop, and its peer a, whose device does its own work.
type program struct {
	t    *testing.T
	a, b *peer
}

func newProgram(t *testing.T, lazy bool) *program {
	n := newNetwork(t)
	c := n.config("10.0.0.2")
	c.Lazy = lazy
	p := &program{t, newPeer(t, n.device("10.0.0.1"), 4096), newPeer(t, n.open(c), 4096)}
	connect(t, p.a, p.b)
	return p
}

// empty polls k times, and fails the test if it finds a completion.
func (p *program) empty(k int) {
	p.t.Helper()
	var wcs [1]roce.WC
	for range k {
		if p.b.cq.Poll(wcs[:]) != 0 {
			p.t.Fatalf("completion %v out of nothing", wcs[0])
		}
	}
}

// take polls for the next completion.
func (p *program) take() {
	var wcs [1]roce.WC
	for p.b.cq.Poll(wcs[:]) == 0 {
		time.Sleep(time.Microsecond)
	}
}

// ping makes b receive a message.
func (p *program) ping() {
	p.t.Helper()
	p.empty(100)
	p.b.recv(0, 64)
	p.a.recv(64, 64)
	p.a.post(roce.Send, 0, 64, nil, 0)
	p.take()
}

// answer makes b send a message back.
func (p *program) answer() {
	p.t.Helper()
	p.b.post(roce.Send, 64, 64, nil, 0)
	p.take()
	p.a.wait() // its own SEND
	p.a.wait() // and the answer
}

// eagerLazy runs f with both ways to post.
func eagerLazy(t *testing.T, f func(t *testing.T, lazy bool)) {
	for _, lazy := range []bool{false, true} {
		name := "eager"
		if lazy {
			name = "lazy"
		}
		t.Run(name, func(t *testing.T) { bubble(t, func(t *testing.T) { f(t, lazy) }) })
	}
}

// trusted makes b answer at once so often that acknowledgements wait for its answers.
func (p *program) trusted() {
	p.t.Helper()
	for range 100 {
		p.ping()
		p.answer()
	}
}

// acked is how long the acknowledgement takes when no answer comes.
func (p *program) acked() time.Duration {
	p.t.Helper()
	p.ping()
	began := time.Now()
	p.a.wait()
	d := time.Since(began)
	p.b.post(roce.Send, 64, 64, nil, 0)
	p.take()
	p.a.wait()
	return d
}

// After a polling program has answered at once several times, the acknowledgement of a message waits for the program's
// answer, but no longer than a tick.
func TestAnswering(t *testing.T) {
	const tick, step = time.Millisecond, 50 * time.Microsecond
	for into := time.Duration(0); into < tick*9/10; into += step { // the pause of the background goroutine, of which a part is over
		eagerLazy(t, func(t *testing.T, lazy bool) {
			p := newProgram(t, lazy)
			p.trusted()
			for range into / step {
				time.Sleep(step)
				p.empty(1)
			}
			if d := p.acked(); d == 0 || d > tick {
				t.Errorf("%v into a pause: acknowledged %v later, want a tick at most", into, d)
			}
			if d := p.acked(); d != 0 {
				t.Errorf("a program that has not answered at once was waited for: %v", d)
			}
		})
	}
}

// Acknowledgements no longer wait for a program that answers late, even if it answered at once before.
func TestAnsweringLate(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		p.trusted()
		for range 2 {
			p.ping()
			time.Sleep(100 * time.Microsecond)
			p.answer()
		}
		if d := p.acked(); d != 0 {
			t.Errorf("a program that answered late is still waited for: %v", d)
		}
	})
}

// A program that answers eight messages at once and needs long for the ninth, again and again, delays the acknowledgement
// of a ninth message only once.
func TestAnsweringMost(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		p.trusted()
		for i := range 6 {
			p.ping()
			began := time.Now()
			p.a.wait()
			if d := time.Since(began); (d != 0) != (i == 0) {
				t.Errorf("message %d that needed long was acknowledged %v later", i, d)
			}
			time.Sleep(5 * time.Millisecond) // it needs long
			p.b.post(roce.Send, 64, 64, nil, 0)
			p.take()
			p.a.wait()
			for range 8 {
				p.ping()
				p.answer()
			}
		}
	})
}

// The answer of a program that posts once for each message leaves at once, with the acknowledgement, also on a lazy
// device and long after the last poll. The program need not poll first.
func TestAnswerLeavesAtOnce(t *testing.T) {
	for _, pause := range []time.Duration{0, 600 * time.Microsecond} {
		eagerLazy(t, func(t *testing.T, lazy bool) {
			p := newProgram(t, lazy)
			p.trusted()
			p.ping()
			time.Sleep(pause)
			began := time.Now()
			p.b.post(roce.Send, 64, 64, nil, 0)
			p.a.wait()
			p.a.wait()
			if d := time.Since(began); d != 0 {
				t.Errorf("after a pause of %v: the answer was held %v", pause, d)
			}
		})
	}
}

// A program that receives a message with each poll, and answers none, delays no acknowledgement.
func TestStreamAcknowledged(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		const pause, window = 9 * time.Microsecond, 60 // between two polls; messages under way
		p := newProgram(t, lazy)
		p.trusted()
		var worst time.Duration
		var wcs [16]roce.WC
		sent := make(map[int]time.Time)
		acked := 0
		for range 2000 {
			if n := len(sent); n-acked < window {
				p.b.recv(0, 64)
				p.a.post(roce.Send, 0, 64, nil, 0)
				sent[n] = time.Now()
			}
			time.Sleep(pause)
			p.b.cq.Poll(wcs[:1])
			time.Sleep(time.Nanosecond)
			for range p.a.cq.Poll(wcs[:]) {
				worst = max(worst, time.Since(sent[acked]))
				acked++
			}
		}
		if acked < 1000 || worst > 4*pause {
			t.Errorf("%d of %d messages acknowledged, up to %v late", acked, len(sent), worst)
		}
	})
}

// A program that waits after gaps between its polls is woken at once.
func TestWaitAfterGap(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		p.ping() // the background goroutine begins a pause
		time.Sleep(300 * time.Microsecond)
		p.empty(2)
		p.b.recv(0, 64)
		p.a.post(roce.Send, 0, 64, nil, 0)
		began := time.Now()
		p.b.wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("waited %v", d)
		}
	})
}

// Messages that were posted before the queue pair is closed are sent.
func TestPostThenClose(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		for range 5 {
			p.a.recv(64, 64)
		}
		for range 5 {
			p.b.post(roce.Send, 64, 64, nil, 0)
		}
		check(t, p.b.qp.Close())
		for range 5 {
			p.a.wait()
		}
	})
}

// joinWith connects a to b, with a's timeout and retries.
func joinWith(t *testing.T, a, b *peer, timeout, retries uint8) {
	t.Helper()
	for _, end := range [][2]*peer{{a, b}, {b, a}} {
		x, y := end[0], end[1]
		check(t, x.qp.Connect(context.Background(), roce.Peer{
			AHAttr: roce.AHAttr{DGID: y.dev.GIDs()[0]}, QPN: y.qp.Num(), PSN: y.psn, MTU: roce.MTU1024,
			Timeout: timeout, RetryCnt: retries, RNRRetry: 7, MinRNRTimer: 12, RdAtomic: 16,
		}, x.psn))
	}
}

// pollsFor polls in a loop for some time.
func (p *program) pollsFor(d time.Duration) {
	p.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Microsecond) {
		p.empty(1)
	}
}

// impatient are timeouts of peers that have waited for no longer than a pause of a millisecond.
var impatient = []struct{ timeout, retries uint8 }{
	{9, 0},  // 2.1 ms
	{10, 0}, // 4.2 ms
	{8, 3},  // 4 times 1.05 ms
}

// A program polls for long, and then computes for 20 ms. What its peer sends meanwhile succeeds, although the peer has a short timeout: a WRITE,
// and a SEND whose acknowledgement waits for the program's answer, because it has always answered at once.
func TestPauseAndTimeout(t *testing.T) {
	for what, send := range map[string]func(p *program, polls func()){
		"WRITE": func(p *program, polls func()) { polls(); p.a.post(roce.Write, 0, 64, p.b, 64) },
		"SEND":  func(p *program, polls func()) { p.trusted(); polls(); p.ping() },
	} {
		for _, peer := range impatient {
			for _, polled := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s, timeout %d, %d retries, polled %v", what, peer.timeout, peer.retries, polled), func(t *testing.T) {
					for phase := range time.Duration(10) {
						eagerLazy(t, func(t *testing.T, lazy bool) {
							n := newNetwork(t)
							c := n.config("10.0.0.2")
							c.Lazy = lazy
							p := &program{t, newPeer(t, n.device("10.0.0.1"), 4096), newPeer(t, n.open(c), 4096)}
							joinWith(t, p.a, p.b, peer.timeout, peer.retries)
							send(p, func() { p.pollsFor(polled + phase*time.Millisecond) })
							began := time.Now()
							wc, err := p.a.cq.Next(within(t, time.Second))
							check(t, err)
							if wc.Status != roce.StatusSuccess {
								t.Errorf("ends with %v after %v", wc.Status, time.Since(began))
							}
							time.Sleep(20 * time.Millisecond) // the program computes
						})
					}
				})
			}
		}
	}
}

// A program that has polled for long, and then waits, is woken by a later message at once.
func TestWaitAfterLongPolling(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		p.b.recv(0, 64)
		p.pollsFor(100 * time.Millisecond)
		var sent time.Time
		time.AfterFunc(500*time.Microsecond, func() {
			sent = time.Now()
			p.a.post(roce.Send, 0, 64, nil, 0)
		})
		p.b.wait()
		if d := time.Since(sent); d != 0 {
			t.Errorf("woken %v after the message", d)
		}
	})
}

// A program that has polled in a loop polls once in a while now. Its polls do no work then, and must not keep the background goroutine from
// doing it.
func TestSlowPolls(t *testing.T) {
	const tick = time.Millisecond
	for _, gap := range []time.Duration{100, 249, 250, 300, 500, 800, 999, 1000, 2000} {
		gap *= time.Microsecond
		for phase := range 10 {
			eagerLazy(t, func(t *testing.T, lazy bool) {
				p := newProgram(t, lazy)
				p.b.recv(0, 64)
				for range 60 + phase {
					p.empty(1)
					time.Sleep(50 * time.Microsecond)
				}
				time.Sleep(gap)
				p.empty(1)
				p.a.post(roce.Send, 0, 64, nil, 0)
				began := time.Now()
				for found := 0; found == 0; {
					time.Sleep(gap)
					if found = p.b.cq.Poll(make([]roce.WC, 1)); found == 0 && time.Since(began) > gap+2*tick {
						t.Fatalf("polls every %v: nothing after %v", gap, time.Since(began))
					}
				}
				p.a.wait()
			})
		}
	}
}

// A program polls for less than a tick, and then watches its memory. After some such rounds the background goroutine does not pause any more,
// so that the WRITEs for which the program watches come at once.
func TestWatchingAfterShortPolls(t *testing.T) {
	const rounds, step = 100, 10 * time.Microsecond
	for _, polls := range []time.Duration{300 * time.Microsecond, 700 * time.Microsecond} {
		bubble(t, func(t *testing.T) {
			p := newProgram(t, false)
			for i := range rounds {
				p.pollsFor(20 * step)
				p.a.post(roce.Write, 0, 64, p.b, 0) // the background goroutine sees that the program polls, and pauses
				time.Sleep(time.Microsecond)
				p.pollsFor(polls)
				time.Sleep(26 * step)
				began := time.Now()
				p.a.post(roce.Write, 0, 64, p.b, 0)
				p.a.wait()
				p.a.wait()
				if d := time.Since(began); i >= rounds/2 && d > 5*step {
					t.Fatalf("round %d: polled for %v, then a WRITE took %v", i, polls, d)
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
}
