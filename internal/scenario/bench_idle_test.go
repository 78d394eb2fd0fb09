package scenario_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link/mem"
)

// BenchmarkIdleConnection: memory of one end of an idle connection, including queue pair and connection manager. A
// connection is an iteration.
func BenchmarkIdleConnection(b *testing.B) {
	n := newNetworkOf(b, mem.Config{Backpressure: true})
	open := func(addr string) *roce.Device {
		c := n.config(addr)
		c.Limits.MaxConns = b.N + 1<<16
		return n.open(c)
	}
	server, client := open("10.0.0.1"), open("10.0.0.2")
	l, err := server.Listen(context.Background(), "10.0.0.1:7471", roce.ListenConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			r, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			if _, err := r.Accept(context.Background(), roce.AcceptConfig{}); err != nil {
				b.Error(err)
			}
		}
	}()
	before := heap()
	for range b.N {
		if _, err := client.Dial(context.Background(), "10.0.0.1:7471", roce.DialConfig{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heap()-before)/float64(b.N)/2, "B/end")
	runtime.KeepAlive(client)
	runtime.KeepAlive(server)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
