package perftest

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Latency is one row of a latency test, in microseconds: half the round trip of SENDs and WRITEs, or
// the whole time of a READ or an atomic. The JSON names are those of perftest's
// --out_json.
type Latency struct {
	Size    int     `json:"MsgSize"`
	Iters   int     `json:"n_iterations"`
	Min     float64 `json:"t_min"`
	Max     float64 `json:"t_max"`
	Typical float64 `json:"t_typical"` // the median
	Average float64 `json:"t_avg"`
	Stdev   float64 `json:"t_stdev"`
	P99     float64 `json:"percentile_99"`
	P999    float64 `json:"percentile_99.9"`
	Rate    float64 `json:"tps_average,omitempty"` // rounds per second, in a test with a duration; such a test otherwise only has the average

	samples []float64 // in order
}

// tail is the number of largest samples that perftest ignores.
const tail = 2

// report returns the row of the size that was measured last.
func (g *trip) report() Latency {
	halves := 1.0
	if g.cfg.Test.mutual {
		halves = 2
	}
	if g.cfg.Duration > 0 {
		l := Latency{Size: g.size, Iters: g.sampled, Rate: rate(float64(g.sampled), g.clock.sample().Seconds())}
		if g.sampled > 0 {
			l.Average = g.clock.sample().Seconds() * 1e6 / halves / float64(g.sampled)
		}
		return l
	}
	return newLatency(g.size, g.posts, halves)
}

// newLatency computes a row from the times at which each message was posted.
func newLatency(size int, posts []time.Duration, halves float64) Latency {
	samples := make([]float64, len(posts)-1)
	for i := range samples {
		samples[i] = float64((posts[i+1] - posts[i]).Nanoseconds()) / 1000 / halves
	}
	l := Latency{Size: size, Iters: len(posts), samples: samples}
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted) - tail
	for _, v := range sorted[:n] {
		l.Average += v / float64(n)
	}
	variance := 0.0
	for _, v := range sorted[:n] {
		variance += (v - l.Average) * (v - l.Average) / float64(n)
	}
	at := func(share float64) float64 { return sorted[int(math.Ceil(float64(n)*share))] }
	l.Min, l.Max, l.Typical, l.Stdev = sorted[0], sorted[n], (sorted[n/2]+sorted[(n-1)/2])/2, math.Sqrt(variance)
	l.P99, l.P999 = at(0.99), at(0.999)
	return l
}

// Header is the first line of perftest's table.
func (l Latency) Header() string {
	if l.Rate > 0 {
		return " #bytes        #iterations       t_avg[usec]    tps average"
	}
	return " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
}

// String returns the row as perftest prints it.
func (l Latency) String() string {
	if l.Rate > 0 {
		return fmt.Sprintf(" %-7d       %d            %-7.2f        %-7.2f", l.Size, l.Iters, l.Average, l.Rate)
	}
	return fmt.Sprintf(" %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f", l.Size, l.Iters, l.Min, l.Max, l.Typical, l.Average, l.Stdev, l.P99, l.P999)
}

// dump prints every sample, in order or sorted.
func (l Latency) dump(w io.Writer, sorted bool) {
	samples := l.samples
	if sorted {
		samples = slices.Sorted(slices.Values(samples))[:max(0, len(samples)-tail)]
	}
	fmt.Fprintln(w, "#, usec")
	for i, v := range samples {
		fmt.Fprintf(w, "%d, %g\n", i+1, v)
	}
}
