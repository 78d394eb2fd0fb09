package linktest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// BenchmarkPort measures packets from one Port to another: one goroutine
// sends a batch at a time, another receives and waits when idle. It reports
// lost packets and does not send them again. Payloads are 0, 1024 and, if
// they fit, 4096 bytes.
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
	b.Helper()
	path := Between(b, false, from, to)
	payload := make([]byte, size)
	got := make(chan int)
	var sent atomic.Bool
	go func() {
		fr := make([]link.Frame, link.Batch)
		n := 0
		for n < b.N {
			k, err := to.Recv(fr)
			if err != nil {
				break
			}
			if n += k; k == 0 {
				last := sent.Load()
				before := time.Now()
				to.Wait(500 * time.Millisecond)
				if last && time.Since(before) >= 500*time.Millisecond {
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
		first := i
		for range min(link.Batch, b.N-i) {
			if !Put(from, path, bth.PSN(i)&bth.PSNMask, payload) {
				break
			}
			from.Commit()
			i++
		}
		from.Flush()
		if i == first {
			from.Wait(time.Second) // for room
		}
	}
	for s := from.Stats(); s.TxPackets+s.TxDrops+s.TxErrors < uint64(b.N); s = from.Stats() {
		from.Flush()
		from.Wait(time.Millisecond)
	}
	sent.Store(true)
	n := <-got
	b.StopTimer()
	b.ReportMetric(100*float64(b.N-n)/float64(b.N), "%lost")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "pkt/s")
}

// BenchmarkRoundTrip measures the round trip of a packet with 64 bytes of payload:
// both ends poll ("spin"), or both ends sleep in Wait ("wait").
func BenchmarkRoundTrip(b *testing.B, open func(b *testing.B) (from, to link.Port)) {
	for _, mode := range []string{"spin", "wait"} {
		b.Run(mode, func(b *testing.B) {
			from, to := open(b)
			there := Between(b, false, from, to)
			back := Between(b, false, to, from)
			payload := make([]byte, 64)
			receive := func(p link.Port, fr []link.Frame) error {
				for {
					if n, err := p.Recv(fr); n > 0 || err != nil {
						return err
					}
					if mode == "wait" {
						if err := p.Wait(time.Second); err != nil {
							return err
						}
					}
				}
			}
			done := make(chan bool)
			go func() {
				defer close(done)
				fr := make([]link.Frame, 1)
				for receive(to, fr) == nil {
					Put(to, back, 0, payload)
					to.Commit()
					to.Flush()
				}
			}()
			fr := make([]link.Frame, 1)
			b.ReportAllocs()
			for b.Loop() {
				Put(from, there, 0, payload)
				from.Commit()
				from.Flush()
				if err := receive(from, fr); err != nil {
					b.Fatal(err)
				}
			}
			to.Close()
			<-done
		})
	}
}
