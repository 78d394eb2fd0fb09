package scenario_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

// counted opens a device with a countingPort.
func (n *network) counted(addr string, polled bool) (*roce.Device, countingPort) {
	n.t.Helper()
	c := n.config(addr)
	c.Polled = polled
	p := newCountingPort(c.Ports[0])
	c.Ports[0] = p
	return n.open(c), p
}

// TestIdle: a device without work sleeps until there is some, also with connections, with a waiting goroutine, and after
// traffic.
func TestIdle(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			da, pa := n.counted("10.0.0.1", polled)
			db, pb := n.counted("10.0.0.2", polled)
			if polled {
				keepBusy(t, da, db)
			}
			a, b := newPeer(t, da, 100), newPeer(t, db, 100)
			connect(t, a, b)
			a.post(roce.Write, 0, 100, b, 0)
			a.wait()
			l := ok(da.Listen(context.Background(), ":1", roce.ListenConfig{}))(t)
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() { l.Accept(ctx) })
			wg.Go(func() { a.cq.Wait(ctx) })
			wg.Go(func() { da.NextEvent(ctx) })
			wg.Go(func() { b.cq.Wait(ctx) })
			time.Sleep(2 * time.Second)
			before := pa.waits.Load() + pb.waits.Load()
			time.Sleep(1000 * time.Hour)
			if n := pa.waits.Load() + pb.waits.Load() - before; n > 0 {
				t.Errorf("polled=%v: woke up %d times with nothing to do", polled, n)
			}
			cancel()
			wg.Wait()
		})
	}
}

// TestQuiet: a rare message costs only some polls of the port: the goroutines do not continue to tick until the next.
func TestQuiet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		da, pa := n.counted("10.0.0.1", false)
		db, pb := n.counted("10.0.0.2", false)
		a, b := newPeer(t, da, 100), newPeer(t, db, 100)
		connect(t, a, b)
		time.Sleep(time.Minute)
		before := pa.waits.Load() + pb.waits.Load()
		const messages = 100
		for range messages {
			a.post(roce.Write, 0, 100, b, 0)
			a.wait()
			time.Sleep(200 * time.Millisecond)
		}
		if n := pa.waits.Load() + pb.waits.Load() - before; n > 30*messages {
			t.Errorf("both ends looked at their ports %d times for %d messages, want 30 each at most", n, messages)
		}
	})
}

// TestPostWakesNobody: while there is traffic a post sends on its own
// goroutine; the device's goroutine sleeps on. After a long silence the first
// post wakes it once, for the timer.
func TestPostWakesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		da, port := n.counted("10.0.0.1", false)
		a, b := newPeer(t, da, 100), newPeer(t, n.device("10.0.0.2"), 100)
		connect(t, a, b)
		time.Sleep(time.Minute)
		for i, want := range []int64{1, 0, 0, 0, 0} {
			before := port.wakes.Load()
			for range 100 {
				a.post(roce.Write, 0, 100, b, 0)
				a.wait()
				time.Sleep(10 * time.Microsecond)
			}
			if got := port.wakes.Load() - before; got != want {
				t.Errorf("hundred %d: %d wake-ups, want %d", i, got, want)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// TestTimerWakes: the ACK timer of a post to a missing peer expires in time, although the device slept when it was set.
func TestTimerWakes(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			config := n.config("10.0.0.1")
			config.Polled = polled
			wire := ok(fault.Wrap(config.Ports[0], fault.Config{Tx: fault.Rates{Loss: 1}}))(t)
			config.Ports[0] = wire
			a, b := n.connected(config)
			done := make(chan roce.WC)
			go func() { done <- a.waitFor(cq.RetryExcErr) }()
			time.Sleep(time.Minute / 2)
			start := time.Now()
			a.post(roce.Write, 0, 100, b, 0)
			<-done
			// Timeout 14 is 67.1 ms; the first try and seven more.
			if took := time.Since(start); took < 536*time.Millisecond || took > 540*time.Millisecond {
				t.Errorf("polled=%v: failed after %v, want 537ms", polled, took)
			}
		})
	}
}

// TestWaiters: several goroutines wait for completions of one queue, and each completion wakes one, which takes it.
func TestWaiters(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			config := n.config("10.0.0.1")
			config.Polled = polled
			a, b := n.connected(config)
			const waiters, each = 5, 40
			var wg sync.WaitGroup
			seen := make([]bool, waiters*each+1)
			var mu sync.Mutex
			for range waiters {
				wg.Go(func() {
					for range each {
						wc := a.wait()
						mu.Lock()
						if seen[wc.ID] {
							t.Errorf("completion %d came twice", wc.ID)
						}
						seen[wc.ID] = true
						mu.Unlock()
					}
				})
			}
			synctest.Wait()
			for i := range waiters * each {
				a.post(roce.Write, 0, 100, b, 0)
				if i%7 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			wg.Wait()
		})
	}
}

// TestWaitersShare: each of two waiting goroutines gets one of two completions that come together.
func TestWaitersShare(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			config := n.config("10.0.0.1")
			config.Polled = polled
			a, b := n.connected(config)
			start := time.Now()
			for range 10 {
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() { a.wait() })
				}
				synctest.Wait()
				wr := a.wr(roce.Write, 0, 100, b, 0)
				if n, err := a.qp.PostSends([]roce.SendWR{*wr, *wr}); n != 2 || err != nil {
					t.Fatal(n, err)
				}
				wg.Wait()
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("polled=%v: took %v: a completion woke nobody", polled, took)
			}
		})
	}
}

// TestWakeByOthers: an action of another goroutine ends a wait at once, even if the waiting goroutine sleeps in the port
// of a polled device.
func TestWakeByOthers(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			config := n.config("10.0.0.1")
			config.Polled = polled
			d := n.open(config)
			p := newPeer(t, d, 100)
			connect(t, p, newPeer(t, n.device("10.0.0.2"), 100))
			l := ok(d.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
			idle, full := ok(d.CreateCQ(1))(t), ok(d.CreateCQ(1))(t)
			q := ok(p.pd.CreateQP(roce.QPConfig{SendCQ: full}))(t)
			check(t, q.Init(0, 0))
			ctx := context.Background()
			for _, test := range []struct {
				name string
				wait func() error
				do   func() error
				want error
			}{
				{"a flushed receive", func() error { return p.cq.Wait(ctx) }, func() error {
					p.recv(0, 100)
					return p.qp.Modify(&roce.Attr{State: qp.Err}, qp.AttrState)
				}, nil},
				{"closing a CQ", func() error { return idle.Wait(ctx) }, idle.Close, roce.ErrClosed},
				{"closing a listener", func() error { _, err := l.Accept(ctx); return err }, l.Close, roce.ErrClosed},
				{"an event", func() error { _, err := d.NextEvent(ctx); return err }, func() error {
					check(t, q.Modify(&roce.Attr{State: qp.Err}, qp.AttrState))
					for range 2 { // one too many for the queue
						check(t, q.PostRecv(&roce.RecvWR{}))
					}
					return nil
				}, nil},
			} {
				done := make(chan time.Time)
				go func() {
					wantErr(t, test.name, test.wait(), test.want)
					done <- time.Now()
				}()
				time.Sleep(10 * time.Second)
				start := time.Now()
				check(t, test.do())
				if took := (<-done).Sub(start); took != 0 {
					t.Errorf("polled=%v, %s: woke up after %v", polled, test.name, took)
				}
			}
		})
	}
}

// TestWaitContext: a wait ends with its context, in time, even if others wait, too; these continue to wait.
func TestWaitContext(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			config := n.config("10.0.0.1")
			config.Polled = polled
			a, b := n.connected(config)
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() {
					patience := time.Duration(i+1) * time.Second
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					start := time.Now()
					err := a.cq.Wait(ctx)
					wantErr(t, "Wait", err, context.DeadlineExceeded)
					if took := time.Since(start); took != patience {
						t.Errorf("polled=%v: waited %v, want %v", polled, took, patience)
					}
				})
			}
			wg.Wait()
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			wantErr(t, "Wait with a context that is over", a.cq.Wait(ctx), context.Canceled)
			a.post(roce.Write, 0, 100, b, 0)
			a.wait()
		})
	}
}

// TestSpin: a device that busy-polls before it sleeps does not hang in a bubble, where time stands still meanwhile.
func TestSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		config := n.config("10.0.0.1")
		config.Spin = time.Millisecond
		a, b := n.connected(config)
		for range 10 {
			a.post(roce.Read, 0, 100, b, 0)
			a.wait()
		}
	})
}

// TestLazy: a lazy device defers posted messages, and acknowledgements of received ones, until the next Poll that finds
// nothing, or until a batch is complete. Other devices send them at once.
func TestLazy(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			open := func(addr string) *roce.Device {
				c := n.config(addr)
				c.Polled, c.Lazy = true, lazy
				return n.open(c)
			}
			a, b := newPeer(t, open("10.0.0.1"), 100), newPeer(t, open("10.0.0.2"), 100)
			connect(t, a, b)
			var wc [64]roce.WC
			polled := func(what string, p *peer, want bool) {
				t.Helper()
				if got := p.cq.Poll(wc[:]) > 0; got != want {
					t.Fatalf("lazy %v, %s: a completion %v, want %v", lazy, what, got, want)
				}
			}
			b.recv(0, 10)
			a.post(roce.Send, 0, 10, b, 0)
			polled("a SEND is posted", b, !lazy)
			if lazy {
				polled("its sender polls", a, false)
				polled("then", b, true)
			}
			polled("the receiver has polled once", a, !lazy)
			if lazy {
				polled("and again", b, false)
				polled("now it is acknowledged", a, true)
			}

			// A complete batch is sent at once.
			before := a.dev.Counters().Link.TxPackets
			for range link.Batch {
				a.post(roce.Write, 0, 1, b, 0)
			}
			if sent := a.dev.Counters().Link.TxPackets - before; sent < link.Batch {
				t.Errorf("lazy %v: %d packets of a batch were sent", lazy, sent)
			}
		})
	}
}

// TestLazyAsleep: posted messages do not wait for a sleeping goroutine.
func TestLazyAsleep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		c.Polled, c.Lazy = true, true
		a, b := n.connected(c)
		start := time.Now()
		done := make(chan error)
		go func() { done <- a.cq.Wait(context.Background()) }()
		synctest.Wait()
		a.post(roce.Write, 0, 1, b, 0)
		if err := <-done; err != nil || time.Since(start) != 0 {
			t.Errorf("Wait: %v after %v, want nil at once", err, time.Since(start))
		}
	})
}

// halting is a port whose Wait fails when the test says so, which ends the background goroutine.
type halting struct {
	link.Port
	halted chan struct{}
}

func (p halting) Wait(d time.Duration) error {
	select {
	case <-p.halted:
		return link.ErrClosed
	default:
		return p.Port.Wait(d)
	}
}

// TestLazyBackground: while the background goroutine of a lazy device sleeps, two posts are sent at once, and a third
// wakes it. While it is awake (in this test it has ended), posts are sent by the next Poll or Wait that finds nothing,
// or when a batch is complete.
func TestLazyBackground(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			c := n.config("10.0.0.1")
			halted := make(chan struct{})
			c.Lazy, c.Ports[0] = lazy, halting{c.Ports[0], halted}
			a, b := n.connected(c)
			synctest.Wait()
			close(halted)
			inside.NIC(a.dev).WakePorts()
			synctest.Wait()

			atOnce, late := uint64(1), uint64(0)
			if lazy {
				atOnce, late = 0, 1
			}
			sent := func(what string, want uint64, f func()) {
				t.Helper()
				before := a.dev.Counters().Link.TxPackets
				f()
				if got := a.dev.Counters().Link.TxPackets - before; got != want {
					t.Errorf("lazy %v, %s: %d packets leave, want %d", lazy, what, got, want)
				}
			}
			post := func() { a.post(roce.Write, 0, 1, b, 0) }
			poll := func() {
				var wc [1]roce.WC
				a.cq.Poll(wc[:])
			}
			wait := func() {
				over, cancel := context.WithCancel(context.Background())
				cancel()
				wantErr(t, "Wait", a.cq.Wait(over), context.Canceled)
			}
			sent("asleep", 1, post)
			sent("asleep", 1, post)
			sent("asleep no longer", atOnce, post)
			sent("Poll", late, poll)
			sent("awake", atOnce, post)
			sent("Wait", late, wait)
			sent("a batch", link.Batch, func() {
				for range link.Batch {
					post()
				}
			})
		})
	}
}

// TestLazyPoll: if a program polls for completions between its posts, each post is sent at once while the background
// goroutine sleeps.
func TestLazyPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		c.Lazy = true
		a, b := n.connected(c)
		for range 5 {
			synctest.Wait()
			before := a.dev.Counters().Link.TxPackets
			a.post(roce.Write, 0, 1, b, 0)
			if sent := a.dev.Counters().Link.TxPackets - before; sent != 1 {
				t.Fatalf("%d packets leave, want 1", sent)
			}
			a.wait()
		}
	})
}
