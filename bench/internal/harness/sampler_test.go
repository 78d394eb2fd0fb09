package harness

import (
	"testing"
	"time"
)

func TestSampler(t *testing.T) {
	s := newSampler(Spec{Duration: time.Hour})
	for i := range 1000 {
		s.ns = append(s.ns, uint32(1000-i)*1000) // 1 to 1000 µs, not in order
	}
	m := s.measure(2 * time.Second)
	l := m.Latency
	if l.Count != 1000 || l.P50 != 500 || l.P99 != 990 || l.P999 != 999 {
		t.Errorf("%+v", l)
	}
	if len(l.Quantiles) != len(Quantiles) {
		t.Fatalf("%d quantiles, want %d", len(l.Quantiles), len(Quantiles))
	}
	for i := 1; i < len(l.Quantiles); i++ {
		if l.Quantiles[i] < l.Quantiles[i-1] {
			t.Errorf("quantile %v is %v, that of %v is %v", Quantiles[i], l.Quantiles[i], Quantiles[i-1], l.Quantiles[i-1])
		}
	}
	if got := m.Rate(); got != 500 {
		t.Errorf("rate %v", got)
	}
}

// Round trips of the warm-up do not count, and the measurement ends.
func TestSamplerWarmup(t *testing.T) {
	s := newSampler(Spec{Warmup: time.Hour})
	s.begin()
	if s.done() {
		t.Error("over in the warm-up")
	}
	if len(s.ns) != 0 {
		t.Errorf("%d samples of the warm-up", len(s.ns))
	}
	s = newSampler(Spec{Warmup: -time.Hour, Duration: -time.Hour}) // both are over
	for i := range minSamples {
		s.begin()
		if over := s.done(); over != (i == minSamples-1) {
			t.Errorf("behind the end, after %d round trips: over %v", i+1, over)
		}
	}
}
