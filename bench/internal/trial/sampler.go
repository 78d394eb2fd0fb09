package trial

import (
	"slices"
	"time"

	"github.com/goroce/roce/bench/internal/stats"
)

// Sampler collects round trips.
type Sampler struct {
	start, end time.Time
	last       time.Time
	ns         []uint32
}

// minSamples is how many round trips there must be, however long they take.
const minSamples = 16

// maxSamples is a second of round trips of a quarter of a microsecond.
const maxSamples = 4 << 20

// NewSampler makes a Sampler for the round trips of a Spec.
func NewSampler(s Spec) *Sampler {
	now := time.Now()
	start := now.Add(s.Warmup)
	return &Sampler{start: start, end: start.Add(s.Duration), last: now, ns: make([]uint32, 0, maxSamples)}
}

// Begin notes that a round trip begins.
func (s *Sampler) Begin() { s.last = time.Now() }

// End notes that it is over, and reports whether there are enough.
func (s *Sampler) End() (enough bool) {
	now := time.Now()
	if s.last.After(s.start) {
		s.ns = append(s.ns, uint32(min(now.Sub(s.last), time.Second)))
	}
	return now.After(s.end) && len(s.ns) >= minSamples || len(s.ns) == maxSamples
}

// Measure makes the distribution.
func (s *Sampler) Measure(took time.Duration) Measure {
	slices.Sort(s.ns)
	us := func(q float64) float64 { return float64(stats.Quantile(s.ns, q)) / 1e3 }
	l := &Latency{Count: len(s.ns), P50: us(0.5), P99: us(0.99), P999: us(0.999)}
	for _, q := range Quantiles {
		l.Quantiles = append(l.Quantiles, us(q))
	}
	return Measure{Seconds: took.Seconds(), Messages: uint64(len(s.ns)), Latency: l}
}
