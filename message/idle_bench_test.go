package message_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
)

// BenchmarkIdleConnection measures the memory of an idle connection at each end, and the time of a round trip on another
// connection of the device, without and with the idle connections. Each iteration makes one idle connection:
//
//	go test ./message -run '^$' -bench IdleConnection -benchtime 100000x
func BenchmarkIdleConnection(b *testing.B) {
	ctx := context.Background()
	limits := roce.ConnLimits{MaxConns: 2 * (b.N + 100), CloseTimeout: 1}
	server, client := tooltest.PairWith(b, fault.Config{}, roce.Options{Limits: limits})
	cfg := message.Config{MaxMessage: 256, Depth: 4, Linger: time.Nanosecond}
	l, err := message.Listen(server, tooltest.Server4+":0", cfg)
	if err != nil {
		b.Fatal(err)
	}
	conns := make(chan *message.Conn, b.N+1)
	go func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	dial := func() (there, here *message.Conn) {
		here, err := message.Dial(ctx, client, l.Addr().String(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		return <-conns, here
	}
	echoes, busy := dial()
	go func() {
		buf := make([]byte, 64)
		for {
			n, err := echoes.Recv(ctx, buf)
			if err != nil || echoes.Send(ctx, buf[:n]) != nil {
				return
			}
		}
	}()
	roundTrip := func() float64 {
		took := make([]time.Duration, 5000)
		buf := make([]byte, 64)
		for i := range took {
			began := time.Now()
			if err := busy.Send(ctx, buf); err != nil {
				b.Fatal(err)
			}
			if _, err := busy.Recv(ctx, buf); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		return float64(took[len(took)/2]) / 1e3
	}
	alone, before := roundTrip(), inUse()
	idle := make([]*message.Conn, 0, 2*b.N)
	for range b.N {
		there, here := dial()
		idle = append(idle, there, here)
	}
	b.ReportMetric(float64(inUse()-before)/float64(len(idle)), "B/end")
	b.ReportMetric(alone, "µs-alone")
	b.ReportMetric(roundTrip(), "µs-beside")
	runtime.KeepAlive(idle)
}

// inUse returns the heap and the stacks in use.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
