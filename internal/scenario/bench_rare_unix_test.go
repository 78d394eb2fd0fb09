//go:build unix

package scenario_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// BenchmarkRareMessage: processor time of a single message at both ends, including their work until the next one; and
// the time until its acknowledgement.
func BenchmarkRareMessage(b *testing.B) {
	for _, every := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		b.Run(every.String(), func(b *testing.B) {
			l := newLoad(b, false, 64)
			time.Sleep(every)
			before, took := busy(b), time.Duration(0)
			for b.Loop() {
				posted := time.Now()
				l.a.post(roce.Write, 0, 64, l.b, 0)
				l.take(l.a)
				took += time.Since(posted)
				time.Sleep(every)
			}
			b.ReportMetric(float64((busy(b)-before).Microseconds())/float64(b.N), "µs-busy/op")
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs-trip/op")
		})
	}
}

// busy returns the processor time of the process so far.
func busy(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
