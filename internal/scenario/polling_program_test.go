package scenario_test

import (
	"runtime"
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

// empty polls in vain.
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
		runtime.Gosched()
	}
}

// ping has b receive a message.
func (p *program) ping() {
	p.t.Helper()
	p.empty(100)
	p.b.recv(0, 64)
	p.a.recv(64, 64)
	p.a.post(roce.Send, 0, 64, nil, 0)
	p.take()
}

// answer has b send one back.
func (p *program) answer() {
	p.t.Helper()
	p.b.post(roce.Send, 64, 64, nil, 0)
	p.a.wait()
	p.a.wait()
	p.take()
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

// A program that answers late is waited for no longer, however it began.
func TestAnsweringLate(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		for range 100 {
			p.ping()
			p.answer()
		}
		for range 200 {
			p.ping()
			time.Sleep(100 * time.Microsecond)
			p.answer()
		}
		p.ping()
		began := time.Now()
		p.a.wait()
		d := time.Since(began)
		if d != 0 {
			t.Errorf("a program that answered late 200 times is still waited for: %v", d)
		}
	})
}

// An answer long after the last poll leaves at once.
func TestAnsweringAfterGap(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		for range 100 {
			p.ping()
			p.answer()
		}
		p.ping()
		time.Sleep(600 * time.Microsecond)
		began := time.Now()
		p.b.post(roce.Send, 64, 64, nil, 0)
		p.a.wait()
		p.a.wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("the answer was held %v", d)
		}
	})
}

// A program that waits after gaps between its polls is woken at once.
func TestWaitAfterGap(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		p.empty(1000)
		time.Sleep(100 * time.Microsecond)
		p.empty(1000)
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

// A program that receives a message with each poll, and answers none, holds up no acknowledgement.
func TestStreamAcknowledged(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		for range 100 {
			p.ping()
			p.answer()
		}
		var worst time.Duration
		out := map[int]time.Time{}
		sent, acked := 0, 0
		var wcs [16]roce.WC
		for range 2000 {
			if sent-acked < 60 {
				p.b.recv(0, 64)
				p.a.post(roce.Send, 0, 64, nil, 0)
				out[sent] = time.Now()
				sent++
			}
			time.Sleep(9 * time.Microsecond)
			p.b.cq.Poll(wcs[:1])
			time.Sleep(time.Nanosecond)
			for range p.a.cq.Poll(wcs[:]) {
				worst = max(worst, time.Since(out[acked]))
				acked++
			}
		}
		if worst > time.Millisecond/5 {
			t.Errorf("acknowledged %v later", worst)
		}
	})
}

// What was posted before the queue pair is closed leaves.
func TestPostThenClose(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		for range 10 {
			p.a.recv(64, 64)
		}
		time.Sleep(time.Second)
		for range 5 {
			p.b.post(roce.Send, 64, 64, nil, 0)
		}
		check(t, p.b.qp.Close())
		time.Sleep(time.Second)
		var wcs [16]roce.WC
		if n := p.a.cq.Poll(wcs[:]); n != 5 {
			t.Errorf("%d messages arrived, want 5", n)
		}
	})
}
