package perftest

import (
	"fmt"
	"time"
)

// Report is what a client has measured. The JSON names are those of perftest's
// --out_json.
type Report struct {
	Size    int     `json:"MsgSize"`
	Iters   int     `json:"n_iterations"`
	Peak    float64 `json:"BW_peak"`    // MiB/s; 0: not looked for
	Average float64 `json:"BW_average"` // MiB/s
	MsgRate float64 `json:"MsgRate"`    // millions a second
}

const (
	mebi = 1 << 20
	mega = 1e6
	rule = "---------------------------------------------------------------------------------------"
)

// String prints it as perftest's table of one row.
func (r Report) String() string {
	return fmt.Sprintf(" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n %-7d    %-10d       %-7.2f            %-7.2f             %-7.6f", r.Size, r.Iters, r.Peak, r.Average, r.MsgRate)
}

// Beyond this many messages perftest looks for no peak: it takes the square of them.
const maxPeak = 20000

// newReport computes the figures out of when each message was posted and completed.
func newReport(size int, posted, completed []time.Duration, peak bool) Report {
	n := len(completed)
	took := (completed[n-1] - posted[0]).Seconds()
	r := Report{Size: size, Iters: n, Average: rate(float64(size*n)/mebi, took), MsgRate: rate(float64(n)/mega, took)}
	if peak && n <= maxPeak {
		best := took / float64(n) // seconds a message takes, over any stretch of them
		for i := range posted {
			for j := i; j < n; j++ {
				best = min(best, (completed[j]-posted[i]).Seconds()/float64(j-i+1))
			}
		}
		r.Peak = max(r.Average, rate(float64(size)/mebi, best)) // the whole is a stretch, too
	}
	return r
}

// rate is what a second brings, 0 if the clock has not moved.
func rate(v, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return v / seconds
}
