package roce

import (
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// A flood of management datagrams from one source, or from thousands, is taken at the rate
// only; with one source the others are heard, and all are once it is over.
func TestMADLimiter(t *testing.T) {
	const rate = 10_000
	gid := func(n int) *bth.GID {
		g := bth.GIDFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))
		return &g
	}
	for _, sources := range []int{1, 60_000} {
		l := newMADLimiter(rate, 0x1234567)
		now, taken, honest, asked := mono.Time(0), 0, 0, 0
		for n := range 20 * rate { // ten times the rate for two seconds
			now = now.Add(time.Second / (10 * rate))
			if l.take(now, gid(1+n%sources)) {
				taken++
			}
			if n%(rate/10) == 0 { // a hundred a second
				asked++
				if l.take(now, gid(1<<20)) {
					honest++
				}
			}
		}
		if most := rate*2 + int(rate*madBurst/time.Second); taken > most {
			t.Errorf("%d sources: %d datagrams taken in two seconds, at most %d are due", sources, taken, most)
		}
		if taken < rate {
			t.Errorf("%d sources: %d datagrams taken in two seconds", sources, taken)
		}
		if sources == 1 && honest != asked {
			t.Errorf("%d of %d datagrams of another source were taken", honest, asked)
		}
		now = now.Add(madBurst)
		for n := range int(rate * madBurst / 2 / time.Second) {
			if !l.take(now, gid(1<<20)) {
				t.Fatalf("%d sources: after the flood, datagram %d of a burst is dropped", sources, n)
			}
		}
	}
}
