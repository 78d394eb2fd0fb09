package harness

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/bench/internal/stats"
)

// sampler collects round-trip times.
type sampler struct {
	start, end time.Time
	last       time.Time // the present round trip began
	ns         []uint32
}

const (
	minSamples = 16      // least number of samples of a measurement
	maxSamples = 4 << 20 // largest number
)

func newSampler(s Spec) *sampler {
	now := time.Now()
	start := now.Add(s.Warmup)
	return &sampler{start: start, end: start.Add(s.Duration), last: now, ns: make([]uint32, 0, maxSamples)}
}

// begin notes that a round trip begins.
func (s *sampler) begin() { s.last = time.Now() }

// done notes that the round trip is over. It reports whether there are enough samples.
func (s *sampler) done() (enough bool) {
	now := time.Now()
	if s.last.After(s.start) {
		s.ns = append(s.ns, uint32(min(now.Sub(s.last), time.Second)))
	}
	return now.After(s.end) && len(s.ns) >= minSamples || len(s.ns) == maxSamples
}

// measure computes the distribution.
func (s *sampler) measure(took time.Duration) Measure {
	slices.Sort(s.ns)
	us := func(q float64) float64 { return float64(stats.Quantile(s.ns, q)) / 1e3 }
	l := &Latency{Count: len(s.ns), P50: us(0.5), P99: us(0.99), P999: us(0.999)}
	for _, q := range Quantiles {
		l.Quantiles = append(l.Quantiles, us(q))
	}
	return Measure{Seconds: took.Seconds(), Messages: uint64(len(s.ns)), Latency: l}
}

// RoundTrips calls trip repeatedly, for one round trip each, and measures the time of each call. If
// between is not nil, RoundTrips calls it between two round trips; its time does not count.
func RoundTrips(s Spec, trip, between func() error) (Measure, error) {
	began := time.Now()
	for r := newSampler(s); ; {
		r.begin()
		if err := trip(); err != nil {
			return Measure{}, err
		}
		if r.done() {
			return r.measure(time.Since(began)), nil
		}
		if between == nil {
			continue
		}
		if err := between(); err != nil {
			return Measure{}, err
		}
	}
}

// connectors is how many connections are made at a time.
const connectors = 32

// Connections calls once, which makes a connection and closes it, repeatedly in several goroutines,
// and counts the successful calls: at the active end for the Duration of s, at the other end until
// ctx is done. An error of once ends the measurement at the active end only.
func Connections(ctx context.Context, s Spec, once func(context.Context) error) (Measure, error) {
	if s.Active {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, s.Duration)
		defer stop()
	}
	var (
		began  = time.Now()
		made   atomic.Uint64
		failed = make(chan error, connectors)
		all    sync.WaitGroup
	)
	for range connectors {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := once(ctx); err == nil {
					made.Add(1)
				} else if s.Active && ctx.Err() == nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	m := Measure{Seconds: time.Since(began).Seconds(), Messages: made.Load()}
	select {
	case err := <-failed:
		return m, err
	default:
		return m, nil
	}
}
