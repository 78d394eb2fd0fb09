package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// TestStress uses two devices of two shards from many goroutines in real time:
// connections come and go, and queue pairs and memory are closed during transfers. In the end
// the devices are closed during all of that. The test is for the race detector, and finds
// calls that hang.
func TestStress(t *testing.T) {
	for i := range 4 {
		polled, lazy := i&1 != 0, i&2 != 0
		t.Run(fmt.Sprintf("%s,lazy=%v", modeName(polled), lazy), func(t *testing.T) {
			n := newNetwork(t)
			open := func(addr string) *roce.Device {
				c := n.multi(addr, 2, func(data []byte) int { return int(data[len(data)-1]) })
				c.Polled, c.Lazy = polled, lazy
				return n.open(c)
			}
			devices := []*roce.Device{open("10.0.0.1"), open("10.0.0.2")}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			for _, d := range devices {
				l := ok(d.Listen(ctx, ":7471", roce.ListenConfig{}))(t)
				wg.Go(func() {
					for {
						r, err := l.Accept(ctx)
						if err != nil {
							return
						}
						wg.Go(func() {
							c, err := r.Accept(ctx, roce.AcceptConfig{})
							if err != nil {
								return
							}
							<-c.Done()
							c.Close()
						})
					}
				})
				wg.Go(func() {
					for {
						if _, err := d.NextEvent(ctx); err != nil {
							return
						}
						d.Counters()
					}
				})
			}
			var workers sync.WaitGroup
			for w := range 4 {
				workers.Go(func() {
					rng := rand.New(rand.NewPCG(1, uint64(w)))
					for range 25 {
						d := devices[rng.IntN(2)]
						c, err := d.Dial(ctx, []string{"10.0.0.1:7471", "10.0.0.2:7471"}[rng.IntN(2)], roce.DialConfig{})
						if err != nil {
							t.Errorf("Dial: %v", err)
							return
						}
						abuse(t, ctx, rng, c)
						c.Close()
					}
				})
			}
			workers.Wait()
			for w := range 4 { // until the devices close
				workers.Go(func() {
					rng := rand.New(rand.NewPCG(2, uint64(w)))
					for {
						c, err := devices[rng.IntN(2)].Dial(ctx, "10.0.0.1:7471", roce.DialConfig{})
						if err != nil {
							return
						}
						abuse(t, ctx, rng, c)
						c.Close()
					}
				})
			}
			for range 20 {
				devices[0].Counters()
			}
			var closers sync.WaitGroup
			for _, d := range devices {
				closers.Go(func() {
					if err := d.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			closers.Wait()
			cancel()
			workers.Wait()
			wg.Wait()
		})
	}
}

// abuse uses a connection and its objects on several goroutines, and closes some of them
// meanwhile.
func abuse(t *testing.T, ctx context.Context, rng *rand.Rand, c *roce.Conn) {
	q := c.QP()
	m, err := q.PD().RegMR(make([]byte, 100_000), allRights)
	if err != nil {
		return // the device is closed
	}
	fatal := rng.IntN(3)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for k := range 20 {
				wr := &roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{m.SGE(0, 1000*(1+k))}, RemoteAddr: m.Addr(), RKey: m.RKey()}
				if i == 1 {
					wr = &roce.SendWR{Opcode: roce.Send, Inline: []byte("hello"), Flags: roce.Signaled}
				}
				if err := q.PostSend(wr); err != nil && !errors.Is(err, roce.ErrClosed) {
					return
				}
				q.PostRecv(&roce.RecvWR{SG: []roce.SGE{m.SGE(0, 100)}})
			}
		})
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			for _, queue := range []*roce.CQ{q.SendCQ(), q.RecvCQ()} {
				for {
					if _, err := queue.Next(ctx); err != nil {
						break
					}
				}
			}
		})
	}
	switch fatal {
	case 0:
		m.Close()
	case 1:
		q.Close()
	case 2:
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c.Disconnect(ctx)
	}
	wg.Wait()
	m.Close()
}
