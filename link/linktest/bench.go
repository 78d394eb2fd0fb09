package linktest

import (
	"fmt"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// BenchmarkPort measures packets from a to b: the sender in one goroutine, a
// batch a turn, the receiver in another, waiting when idle. What got lost on
// the way is shown, not repeated. Payloads are 0, 1024 and, if they fit, 4096
// bytes.
func BenchmarkPort(b *testing.B, open func(b *testing.B) (from, to link.Port)) {
	for _, size := range []int{0, 1024, 4096} {
		b.Run(fmt.Sprintf("payload=%d", size), func(b *testing.B) {
			from, to := open(b)
			if size+100 > from.Info().MTU {
				b.Skipf("MTU is %d", from.Info().MTU)
			}
			stream(b, from, to, size)
		})
	}
}

func stream(b *testing.B, from, to link.Port, size int) {
	path := Path(b, false, from.Info().MAC, to.Info().MAC)
	payload := make([]byte, size)
	got := make(chan int)
	go func() {
		fr := make([]link.Frame, link.Batch)
		n := 0
		for {
			k, err := to.Recv(fr)
			n += k
			if err != nil || n >= b.N {
				break
			}
			if k == 0 {
				before := time.Now()
				to.Wait(500 * time.Millisecond)
				if time.Since(before) >= 500*time.Millisecond {
					break // the rest is lost
				}
			}
		}
		got <- n
	}()
	b.ReportAllocs()
	b.SetBytes(int64(size))
	b.ResetTimer()
	for i := 0; i < b.N; {
		for range min(link.Batch, b.N-i) {
			if !Put(from, path, bth.PSN(i)&bth.PSNMask, payload) {
				break
			}
			from.Commit()
			i++
		}
		from.Flush()
		if from.Stats().TxRetries > 0 && !Put(from, path, 0, payload) {
			from.Wait(time.Second)
		}
	}
	n := <-got
	b.StopTimer()
	b.ReportMetric(100*float64(b.N-n)/float64(b.N), "%lost")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "pkt/s")
}
