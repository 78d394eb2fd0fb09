package perftest

import (
	"fmt"
	"time"
)

// Result is what a program has found out: a row for each size, of one of the two
// kinds. A server that sees nothing of a latency test has none.
type Result struct {
	Bandwidth []Report
	Latency   []Latency
}

// Rows are the rows of either kind.
func (r Result) Rows() (all []any) {
	for _, row := range r.Bandwidth {
		all = append(all, row)
	}
	for _, row := range r.Latency {
		all = append(all, row)
	}
	return all
}

// Report is what a client has measured. The JSON names are those of perftest's
// --out_json.
type Report struct {
	Size    int     `json:"MsgSize"`
	Iters   int     `json:"n_iterations"`
	Peak    float64 `json:"BW_peak"`    // MiB/s, or Gb/s if that was asked for; 0: not looked for
	Average float64 `json:"BW_average"` // the same
	MsgRate float64 `json:"MsgRate"`    // millions a second

	gbits bool // for String
}

const (
	mebi = 1 << 20
	giga = 1e9
	mega = 1e6
	rule = "---------------------------------------------------------------------------------------"
)

// bandwidthHeader is the first line of perftest's table.
func bandwidthHeader(gbits bool) string {
	unit := "MiB/sec"
	if gbits {
		unit = "Gb/sec"
	}
	return fmt.Sprintf(" #bytes     #iterations    BW peak[%s]    BW average[%[1]s]   MsgRate[Mpps]", unit)
}

// String prints it as a row of perftest's table.
func (r Report) String() string {
	if r.gbits && r.Average < 0.1 {
		return fmt.Sprintf(" %-7d    %-10d       %-7.6f            %-7.6f            %-7.6f", r.Size, r.Iters, r.Peak, r.Average, r.MsgRate)
	}
	return fmt.Sprintf(" %-7d    %-10d       %-7.2f            %-7.2f             %-7.6f", r.Size, r.Iters, r.Peak, r.Average, r.MsgRate)
}

// plus is both directions together.
func (r Report) plus(other Report) Report {
	r.Peak += other.Peak
	r.Average += other.Average
	r.MsgRate += other.MsgRate
	return r
}

// Beyond this many messages perftest looks for no peak: it takes the square of them.
const maxPeak = 20000

// bandwidth is what so many bytes in so many seconds are, in the unit asked for.
func (c *Config) bandwidth(bytes, seconds float64) float64 {
	if c.Gbits {
		return rate(bytes*8/giga, seconds)
	}
	return rate(bytes/mebi, seconds)
}

// plainReport has everything but the peak.
func plainReport(c *Config, size, n int, took time.Duration) Report {
	return Report{Size: size, Iters: n, Average: c.bandwidth(float64(size)*float64(n), took.Seconds()), MsgRate: rate(float64(n)/mega, took.Seconds()), gbits: c.Gbits}
}

// peak is the time in seconds that a message takes in the best stretch of them, out of
// when each was posted and completed.
func peak(posted, completed []time.Duration) float64 {
	n := len(completed)
	best := (completed[n-1] - posted[0]).Seconds() / float64(n)
	for i := range posted {
		for j := i; j < n; j++ {
			best = min(best, (completed[j]-posted[i]).Seconds()/float64(j-i+1))
		}
	}
	return best
}

// rate is what a second brings, 0 if the clock has not moved.
func rate(v, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return v / seconds
}
