package nic

import (
	"testing"
	"time"

	"github.com/goroce/roce/cq"
)

func (w *watcher) drain() (n int) {
	var wcs [16]cq.WC
	for k := w.testNIC.send.Poll(wcs[:]); k > 0; k = w.testNIC.send.Poll(wcs[:]) {
		for _, wc := range wcs[:k] {
			if wc.Status != cq.Success {
				w.t.Fatalf("completion %+v", wc)
			}
		}
		n += k
	}
	return n
}

// One acknowledgement completes two WRITEs, and the peer's WRITE comes with it: the poll need not linger.
func TestWatchingTwoCompletions(t *testing.T) {
	w := newWatcher(t)
	w.post()
	w.post()
	w.ack()
	w.write()
	s := w.shards[0]
	began := time.Now()
	sent := w.poll()
	d := time.Since(began)
	if n := w.drain(); n != 2 {
		t.Fatalf("%d completions", n)
	}
	if sent != 0 || s.polling.hits != 1 || !s.deferred {
		t.Errorf("the peer's WRITE came with the acknowledgement of two WRITEs: %d packets sent, %d hits, deferred %t; lingered %v", sent, s.polling.hits, s.deferred, d)
	}
}

// A program writes its data and a flag in every second round, and a flag alone in the others. The peer's WRITE always comes along with the
// acknowledgement. So no poll needs to linger.
func TestWatchingDataAndFlag(t *testing.T) {
	w := newWatcher(t)
	const rounds = 400
	for i := range rounds {
		w.post()
		if i&1 != 0 {
			w.post()
		}
		w.ack()
		w.write()
		w.poll()
		w.drain()
	}
	if hits := w.shards[0].polling.hits; hits != rounds {
		t.Errorf("%d of %d polls found the WRITE that was there", hits, rounds)
	}
}
