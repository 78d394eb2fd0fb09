package perftest

import (
	"fmt"
	"time"
)

// Result has the measurements of a program: a row for each size, of one of the two kinds. The server of a one-sided latency
// test has none.
type Result struct {
	Bandwidth []Report
	Latency   []Latency
}

// Rows returns the rows of either kind.
func (r Result) Rows() (all []any) {
	for _, row := range r.Bandwidth {
		all = append(all, row)
	}
	for _, row := range r.Latency {
		all = append(all, row)
	}
	return all
}

// Report is one row of a bandwidth test. The JSON names are those of perftest's
// --out_json.
type Report struct {
	Size    int     `json:"MsgSize"`
	Iters   int     `json:"n_iterations"`
	Peak    float64 `json:"BW_peak"`    // MiB/s, or Gb/s if that was asked for; 0: not computed
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

// String returns the row as perftest prints it.
func (r Report) String() string {
	if r.gbits && r.Average < 0.1 {
		return fmt.Sprintf(" %-7d    %-10d       %-7.6f            %-7.6f            %-7.6f", r.Size, r.Iters, r.Peak, r.Average, r.MsgRate)
	}
	return fmt.Sprintf(" %-7d    %-10d       %-7.2f            %-7.2f             %-7.6f", r.Size, r.Iters, r.Peak, r.Average, r.MsgRate)
}

// plus returns the sum of both directions.
func (r Report) plus(other Report) Report {
	r.Peak += other.Peak
	r.Average += other.Average
	r.MsgRate += other.MsgRate
	return r
}

// maxPeak is the largest number of messages for which the peak is computed: the time of the computation grows with the square of the number.
const maxPeak = 20000

// bandwidth returns bytes per time in the unit of the options.
func (c *Config) bandwidth(bytes, seconds float64) float64 {
	if c.Gbits {
		return rate(bytes*8/giga, seconds)
	}
	return rate(bytes/mebi, seconds)
}

// plainReport returns the row of n messages without the peak.
func plainReport(c *Config, size, n int, took time.Duration) Report {
	return Report{Size: size, Iters: n, Average: c.bandwidth(float64(size)*float64(n), took.Seconds()), MsgRate: rate(float64(n)/mega, took.Seconds()), gbits: c.Gbits}
}

// peak finds the fastest sequence of successive messages, and returns the time that one message of it took, in seconds. posted and
// completed are the times at which each message was posted and completed.
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

// rate returns v per second, 0 if no time has passed.
func rate(v, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return v / seconds
}
