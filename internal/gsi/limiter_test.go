package gsi

import (
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// The limiter admits a flood of management datagrams, from one source or from thousands, only
// at its rate. A flood from one source does not stop datagrams of other sources. After the
// flood the limiter admits a burst again.
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
			if l.admit(now, 0, gid(1+n%sources)) {
				taken++
			}
			if n%(rate/10) == 0 { // a hundred a second
				asked++
				if l.admit(now, 0, gid(1<<20)) {
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
			if !l.admit(now, 0, gid(1<<20)) {
				t.Fatalf("%d sources: after the flood, datagram %d of a burst is dropped", sources, n)
			}
		}
	}
}

// While connections transfer data, the limiter admits a flood at a fraction of the rate, and
// still admits the datagrams of other sources. Soon after the data, it admits datagrams at the
// full rate again.
func TestMADLimiterBesideData(t *testing.T) {
	const rate = 200_000
	a, b := bth.GIDFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1})), bth.GIDFrom(netip.AddrFrom4([4]byte{10, 16, 0, 2}))
	l := newMADLimiter(rate, 0x1234567)
	now := mono.Time(0)
	flood := func(d time.Duration, data bool) (taken, honest, asked int) {
		const gap = time.Microsecond
		for n := range int(d / gap) {
			now = now.Add(gap)
			dataAt := mono.Time(0)
			if data {
				dataAt = now
			}
			if l.admit(now, dataAt, &a) {
				taken++
			}
			if n%20_000 == 0 { // fifty a second
				asked++
				if l.admit(now, dataAt, &b) {
					honest++
				}
			}
		}
		return taken, honest, asked
	}
	taken, honest, asked := flood(2*time.Second, true)
	if most := int((2*time.Second + madBurst) * rate / slowdown / time.Second); taken > most || taken < most/2 {
		t.Errorf("%d datagrams taken in two seconds, %d are due", taken, most)
	}
	if honest != asked {
		t.Errorf("%d of %d datagrams of another source were taken", honest, asked)
	}
	now = now.Add(madBurst)
	if taken, _, _ = flood(time.Second, false); taken < rate/2 {
		t.Errorf("%d datagrams taken in a second without data, want the rate of %d", taken, rate)
	}
}

// The limiter keeps every rate, with and without data transfer, and still admits the datagrams
// of other sources during a flood.
func TestMADLimiterRates(t *testing.T) {
	a, b := bth.GIDFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1})), bth.GIDFrom(netip.AddrFrom4([4]byte{10, 16, 0, 2}))
	for _, data := range []bool{false, true} {
		for _, rate := range []int{1, 3, 10, 100, 1000, 10_000, 200_000} {
			l := newMADLimiter(rate, 0x1234567)
			gap := time.Second / time.Duration(rate)
			if data {
				gap *= slowdown
			}
			now, taken, honest, asked := mono.Time(0), 0, 0, 0
			take := func(from *bth.GID) bool {
				dataAt := mono.Time(0)
				if data {
					dataAt = now
				}
				return l.admit(now, dataAt, from)
			}
			const due = 10_000
			for n := range 7 * due { // seven times the rate
				now = now.Add(gap / 7)
				if take(&a) {
					taken++
				}
				if n%1400 == 1399 { // one for 200 that are due
					asked++
					if take(&b) {
						honest++
					}
				}
			}
			if most := due + max(int(madBurst/gap), madShares) + 1; taken > most || taken < due*9/10 {
				t.Errorf("rate %d, data %v: %d datagrams of a flood are taken, %d are due", rate, data, taken, due)
			}
			if honest != asked {
				t.Errorf("rate %d, data %v: %d of %d datagrams of another source are taken", rate, data, honest, asked)
			}
			now = now.Add(max(madBurst, 2*madShares*time.Second/time.Duration(rate))) // without data
			for n := range madShares {
				if !l.admit(now, 0, &b) {
					t.Fatalf("rate %d, data %v: after the flood, datagram %d of a burst is dropped", rate, data, n)
				}
			}
		}
	}
}
