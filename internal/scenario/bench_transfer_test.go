package scenario_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/link/mem"
)

// load is two connected peers and a way to drive their devices.
type load struct {
	a, b   *peer
	polled bool // this goroutine drives both devices; otherwise it waits for completions
}

func modeName(polled bool) string {
	if polled {
		return "polled"
	}
	return "background"
}

// newLoad makes a load over a switch that loses nothing.
func newLoad(t testing.TB, polled bool, size int) *load {
	t.Helper()
	n := newNetworkOf(t, mem.Config{MTU: 4200, Backpressure: true})
	open := func(addr string) *roce.Device {
		c := n.config(addr)
		c.Polled = polled
		return n.open(c)
	}
	l := &load{newPeer(t, open("10.0.0.1"), size), newPeer(t, open("10.0.0.2"), size), polled}
	connect(t, l.a, l.b)
	return l
}

// take returns the next completion of p.
func (l *load) take(p *peer) {
	var wc [1]roce.WC
	if l.polled {
		for p.cq.Poll(wc[:]) == 0 {
			l.a.dev.Progress()
			l.b.dev.Progress()
		}
	} else {
		var err error
		if wc[0], err = p.cq.Next(context.Background()); err != nil {
			panic(err)
		}
	}
	if wc[0].Status != cq.Success {
		panic(fmt.Sprint(wc[0]))
	}
}

// sends makes the work requests that send n bytes from p's memory and receive n bytes into it.
func sends(p *peer, n int) (*roce.SendWR, *roce.RecvWR) {
	return &roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{p.mr.SGE(0, n)}}, &roce.RecvWR{SG: []roce.SGE{p.mr.SGE(0, n)}}
}

// pingPong returns a function that sends n bytes there and back.
func (l *load) pingPong(n int) func() {
	sendA, recvA := sends(l.a, n)
	sendB, recvB := sends(l.b, n)
	return func() {
		must(0, l.a.qp.PostRecv(recvA))
		must(0, l.b.qp.PostRecv(recvB))
		must(0, l.a.qp.PostSend(sendA))
		l.take(l.b)
		must(0, l.b.qp.PostSend(sendB))
		l.take(l.a)
	}
}

// stream sends count messages from a to b and keeps depth of them in flight. It posts recv for each, if there is one.
func (l *load) stream(wr *roce.SendWR, recv *roce.RecvWR, count, depth int) {
	posted := 0
	for done := 0; done < count; done++ {
		for ; posted < count && posted < done+depth; posted++ {
			if recv != nil {
				must(0, l.b.qp.PostRecv(recv))
			}
			must(0, l.a.qp.PostSend(wr))
		}
		if recv != nil {
			l.take(l.b)
		}
		l.take(l.a)
	}
}

// BenchmarkSendLatency is a round trip of 64 bytes.
func BenchmarkSendLatency(b *testing.B) {
	for _, polled := range []bool{false, true} {
		b.Run(modeName(polled), func(b *testing.B) {
			f := newLoad(b, polled, 64).pingPong(64)
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
	b.Run("polled by two goroutines", func(b *testing.B) {
		if runtime.GOMAXPROCS(0) < 2 {
			b.Skip("needs two processors")
		}
		l := newLoad(b, true, 64)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		send, recv := sends(l.b, 64)
		must(0, l.b.qp.PostRecv(recv))
		go func() {
			defer close(done)
			for {
				if _, err := l.b.cq.Next(ctx); err != nil {
					return
				}
				must(0, l.b.qp.PostRecv(recv))
				must(0, l.b.qp.PostSend(send))
			}
		}()
		sendA, recvA := sends(l.a, 64)
		b.ReportAllocs()
		for b.Loop() {
			must(0, l.a.qp.PostRecv(recvA))
			must(0, l.a.qp.PostSend(sendA))
			must(l.a.cq.Next(ctx))
		}
		cancel()
		<-done
	})
}

// BenchmarkSendRate is messages of 64 bytes, 64 of them in flight.
func BenchmarkSendRate(b *testing.B) {
	for _, polled := range []bool{false, true} {
		b.Run(modeName(polled), func(b *testing.B) {
			l := newLoad(b, polled, 64)
			wr, _ := sends(l.a, 64)
			wr.Flags = roce.Signaled
			_, recv := sends(l.b, 64)
			b.ReportAllocs()
			b.ResetTimer()
			l.stream(wr, recv, b.N, 64)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
		})
	}
}

// BenchmarkWrite and BenchmarkRead move large messages, four of them in flight.
func BenchmarkWrite(b *testing.B) { benchMove(b, roce.Write) }
func BenchmarkRead(b *testing.B)  { benchMove(b, roce.Read) }

func benchMove(b *testing.B, op roce.Opcode) {
	for _, polled := range []bool{false, true} {
		for _, size := range []int{64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", modeName(polled), size>>10), func(b *testing.B) {
				l := newLoad(b, polled, size)
				wr := l.a.wr(op, 0, size, l.b, 0)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				l.stream(wr, nil, b.N, 4)
			})
		}
	}
}

// TestAllocations: in steady state nothing is allocated, from post to poll, on either side, also for loopback inside a
// device and between its shards.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const size = 1 << 17
	for _, polled := range []bool{false, true} {
		n := newNetwork(t)
		c := n.multi("10.0.0.1", 2, func(data []byte) int { return destQPN(data) + 1 })
		c.Polled = polled
		two := n.open(c)
		c = n.config("10.0.0.2")
		c.Polled = polled
		loads := map[string]*load{
			"two devices": newLoad(t, polled, size),
			"loopback":    {newPeerOn(t, two, 0, size), newPeerOn(t, two, 0, size), polled},
			"two shards":  {newPeerOn(t, two, 0, size), newPeerOn(t, two, 1, size), polled},
			"astray":      {newPeerOn(t, two, 1, size), newPeer(t, n.open(c), size), polled},
		}
		for name, l := range loads {
			if name != "two devices" {
				connect(t, l.a, l.b)
			}
			wr, _ := sends(l.a, 64)
			wr.Flags = roce.Signaled
			_, recv := sends(l.b, 64)
			inline := &roce.SendWR{Opcode: roce.Send, Inline: make([]byte, 64), Flags: roce.Signaled}
			ops := map[string]func(){"SEND and back": l.pingPong(64)}
			for what, wr := range map[string]*roce.SendWR{"SENDs": wr, "inline SENDs": inline} {
				ops[what] = func() { l.stream(wr, recv, 100, 30) }
			}
			for _, op := range []roce.Opcode{roce.Write, roce.Read, roce.FetchAdd} {
				n := size
				if op == roce.FetchAdd {
					n = 8
				}
				wr := l.a.wr(op, 0, n, l.b, 0)
				ops[op.String()] = func() { l.stream(wr, nil, 20, 8) }
			}
			for op, f := range ops {
				// Queues and buffers grow until they have been full once.
				n := 1.0
				for try := 0; try < 10 && n > 0; try++ {
					n = testing.AllocsPerRun(20, f)
				}
				if n > 0 {
					t.Errorf("%s, %s, %s: %v allocations", modeName(polled), name, op, n)
				}
			}
		}
	}
}
