package scenario_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// A program READs much, then watches its memory for a WRITE. It does this again and again. The WRITE should not wait for the end of a pause
// each time: the stack learns that the program watches.
func TestHostileReadsThenWatch(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		n := newNetwork(t)
		c := n.config("10.0.0.2")
		c.Lazy = lazy
		p := &program{t, newPeer(t, n.device("10.0.0.1"), 8192), newPeer(t, n.open(c), 8192)}
		joinWith(t, p.a, p.b, 14, 7)
		m := ok(p.b.pd.RegMR(words(1), allRights|roce.Watched))(t)
		round := uint64(0)
		watch := func() time.Duration {
			round++
			copy(p.a.buf, []byte{byte(round)})
			wr := p.a.wr(roce.Write, 0, 8, nil, 0)
			wr.RemoteAddr, wr.RKey = m.Addr(), m.RKey()
			check(t, p.a.qp.PostSend(wr))
			began := time.Now()
			for m.Load64(0)&0xff != round&0xff {
				time.Sleep(time.Microsecond)
			}
			d := time.Since(began)
			p.a.wait()
			return d
		}
		for range 20 { // it is found to watch its memory
			p.pollsFor(3 * time.Millisecond)
			watch()
		}
		const rounds = 50
		stalled := 0
		for range rounds {
			for range 600 {
				p.b.post(roce.Read, 0, 4096, p.a, 0)
				var wcs [1]roce.WC
				for p.b.cq.Poll(wcs[:]) == 0 { // without a sleep: it is the program that receives the response
					runtime.Gosched()
				}
			}
			if watch() > 200*time.Microsecond {
				stalled++
			}
		}
		t.Logf("%d of %d stalled", stalled, rounds)
		if stalled > rounds/4 {
			t.Errorf("%d of %d WRITEs waited for the end of a pause", stalled, rounds)
		}
	})
}
