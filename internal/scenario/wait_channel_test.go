package scenario_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// chanRig is a peer b whose queues, one for each queue pair, share a completion
// channel, and the peers a[i] that send to them. b's device may be polled.
type chanRig struct {
	t       *testing.T
	dev     *roce.Device
	channel *roce.CompChannel
	a, b    []*peer
}

func newChanRig(t *testing.T, polled bool, queues int) *chanRig {
	n := newNetwork(t)
	config := n.config("10.0.0.2")
	config.Polled = polled
	da, r := n.device("10.0.0.1"), &chanRig{t: t, dev: n.open(config)}
	r.channel = ok(r.dev.CreateCompChannel())(t)
	for i := range queues {
		a, b := newPeer(t, da, 4096), newPeer(t, r.dev, 4096)
		b.cq = ok(r.dev.CreateCQWith(roce.CQConfig{Entries: 1023, Channel: r.channel, UserData: i}))(t)
		b.qp = ok(b.pd.CreateQP(roce.QPConfig{SendCQ: b.cq, Caps: deepCaps, UserData: i}))(t)
		check(t, b.qp.Init(roce.DefaultQPAccess, 0))
		connect(t, a, b)
		r.a, r.b = append(r.a, a), append(r.b, b)
	}
	return r
}

// send makes queue i get a completion, and waits until it has.
func (r *chanRig) send(i int, flags roce.SendFlags) {
	r.t.Helper()
	r.b[i].recv(0, 64)
	r.sendTo(i, flags)
	r.a[i].wait()
}

func (r *chanRig) sendTo(i int, flags roce.SendFlags) {
	r.t.Helper()
	wr := r.a[i].wr(roce.Send, 0, 64, nil, 0)
	wr.Flags |= flags
	check(r.t, r.a[i].qp.PostSend(wr))
}

// next takes the next event, which must be of queue i.
func (r *chanRig) next(i int) {
	r.t.Helper()
	q, err := r.channel.Next(within(r.t, time.Minute))
	if err != nil || q != r.b[i].cq {
		r.t.Fatalf("event of queue %v, %v, want %d", q, err, i)
	}
	if q.UserData() != i || r.b[i].qp.UserData() != i || q.Channel() != r.channel {
		r.t.Errorf("user data %v and %v, want %d", q.UserData(), r.b[i].qp.UserData(), i)
	}
}

// silent checks that there is no event.
func (r *chanRig) silent(what string) {
	r.t.Helper()
	if r.dev.Progress() {
		for r.dev.Progress() {
		}
	}
	if q, ok := r.channel.TryNext(); ok {
		r.t.Errorf("%s: an event of queue %v", what, q.UserData())
	}
}

// TestCompChannel: a queue that was armed raises one event, in order with the
// others of the channel; solicited events follow the standard.
func TestCompChannel(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newChanRig(t, polled, 3)
			if polled {
				keepBusy(t, r.dev)
			}
			r.send(0, 0)
			r.silent("not armed")
			check(t, r.b[0].cq.RequestNotify(false))
			r.silent("armed after the completion")
			r.send(0, 0)
			r.send(0, 0)
			r.next(0)
			r.silent("armed once")

			for _, b := range r.b {
				check(t, b.cq.RequestNotify(false))
				check(t, b.cq.RequestNotify(true)) // changes nothing
			}
			for _, i := range []int{2, 0, 1} {
				r.send(i, 0)
			}
			for _, i := range []int{2, 0, 1} {
				r.next(i)
			}
			r.silent("taken all")

			check(t, r.b[1].cq.RequestNotify(true))
			r.send(1, 0)
			r.silent("not solicited")
			r.send(1, roce.Solicited)
			r.next(1)

			// Armed again before the first event was taken: two events.
			for range 2 {
				check(t, r.b[2].cq.RequestNotify(false))
				r.send(2, 0)
			}
			r.next(2)
			r.next(2)
			r.silent("two events")

			// A completion in error is solicited, also that of a send.
			check(t, r.b[0].cq.RequestNotify(true))
			r.b[0].post(roce.Write, 0, 10, r.a[0], 0)
			time.Sleep(time.Millisecond)
			r.silent("a send is not solicited")
			r.b[0].post(roce.Write, 0, 10, r.a[0], 5000)
			r.next(0)
		})
	}
}

// TestCompChannelClose: a destroyed object raises no events, and no call waits for ever.
func TestCompChannelClose(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newChanRig(t, polled, 3)
			stop := make(chan struct{})
			for i, b := range r.b {
				check(t, b.cq.RequestNotify(false))
				if i == 2 {
					break // that one stays silent
				}
				b.recv(0, 64)
				r.sendTo(i, 0)
			}
			for r.dev.Progress() || r.b[0].cq.Poll(make([]roce.WC, 1)) == 0 {
				time.Sleep(time.Millisecond)
			}
			wantErr(t, "Close of a channel in use", r.channel.Close(), syscall.EBUSY)
			check(t, r.b[0].qp.Close())
			check(t, r.b[0].cq.Close())
			r.next(1) // the other one's event is gone
			r.silent("of a destroyed queue")
			wantErr(t, "RequestNotify of a destroyed queue", r.b[0].cq.RequestNotify(false), roce.ErrClosed)
			wantErr(t, "Resize of a destroyed queue", r.b[0].cq.Resize(5), roce.ErrClosed)
			for _, b := range r.b[1:] {
				check(t, b.qp.Close())
				check(t, b.cq.Close())
			}
			go func() {
				time.Sleep(time.Second)
				check(t, r.channel.Close())
				close(stop)
			}()
			_, err := r.channel.Next(context.Background())
			wantErr(t, "Next of a closed channel", err, roce.ErrClosed)
			<-stop
			wantErr(t, "second Close", r.channel.Close(), roce.ErrClosed)
			_, err = r.dev.CreateCQWith(roce.CQConfig{Entries: 1, Channel: r.channel})
			wantErr(t, "a queue on a closed channel", err, roce.ErrClosed)

			other := ok(r.dev.CreateCompChannel())(t)
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			_, err = other.Next(ctx)
			wantErr(t, "Next", err, context.Canceled)
			time.AfterFunc(time.Second, func() { r.dev.Close() })
			_, err = other.Next(context.Background())
			wantErr(t, "Next of a closed device", err, roce.ErrClosed)
			_, err = r.dev.CreateCompChannel()
			wantErr(t, "CreateCompChannel of a closed device", err, roce.ErrClosed)
		})
	}
}

// TestCompChannelAfterDevice: the flush of a device that closes is an event
// like any other.
func TestCompChannelAfterDevice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newChanRig(t, false, 1)
		check(t, r.b[0].cq.RequestNotify(true))
		r.b[0].recv(0, 64)
		check(t, r.dev.Close())
		r.next(0)
		r.b[0].waitFor(cq.WRFlushErr)
		_, err := r.channel.Next(context.Background())
		wantErr(t, "Next of a closed device", err, roce.ErrClosed)
	})
}

// TestCompChannelLosesNothing: the loop of the documentation sees every
// completion of every queue, also if several goroutines run it, and if a queue is resized meanwhile.
func TestCompChannelLosesNothing(t *testing.T) {
	for _, polled := range []bool{false, true} {
		for _, consumers := range []int{1, 3} {
			bubble(t, func(t *testing.T) {
				const queues, each = 4, 250
				r := newChanRig(t, polled, queues)
				var wg sync.WaitGroup
				var mu sync.Mutex
				left := queues * each
				ctx, done := context.WithCancel(context.Background())
				defer done()
				for i := range queues {
					check(t, r.b[i].cq.RequestNotify(false))
					for range 300 {
						r.b[i].recv(0, 64)
					}
				}
				for range consumers {
					wg.Go(func() {
						wcs := make([]roce.WC, 3)
						for {
							q, err := r.channel.Next(ctx)
							if err != nil {
								return
							}
							if err := q.RequestNotify(false); err != nil {
								t.Error(err)
							}
							for n := q.Poll(wcs); n > 0; n = q.Poll(wcs) {
								mu.Lock()
								if left -= n; left <= 0 {
									done()
								}
								mu.Unlock()
							}
						}
					})
				}
				for i := range queues {
					wg.Go(func() {
						for k := range each {
							if k%50 == 49 {
								if err := r.b[i].cq.Resize(500 + k); err != nil {
									t.Errorf("Resize: %v", err)
								}
							}
							r.sendTo(i, 0)
							r.a[i].wait()
						}
					})
				}
				wg.Wait()
				if left != 0 {
					t.Errorf("polled=%v: %d completions were not seen", polled, left)
				}
			})
		}
	}
}

// TestCompChannelSelect: the channel can be waited for in a select.
func TestCompChannelSelect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newChanRig(t, false, 2)
		check(t, r.b[0].cq.RequestNotify(false))
		check(t, r.b[1].cq.RequestNotify(false))
		got := 0
		r.send(0, 0)
		r.send(1, 0)
		timeout := time.After(time.Minute)
		for got < 2 { // one at a time, although both came at once
			select {
			case <-r.channel.C():
				if _, ok := r.channel.TryNext(); ok {
					got++
				}
			case <-timeout:
				t.Fatalf("%d events, want 2", got)
			}
		}
		select {
		case <-r.channel.C():
			r.silent("after the last")
		default:
		}
	})
}

// TestNotifyApart: a goroutine that waits for the queue and one that waits for its channel do not take each
// other's notifications.
func TestNotifyApart(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newChanRig(t, polled, 1)
			q := r.b[0].cq
			for range 50 {
				check(t, q.RequestNotify(true))
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := q.Wait(within(t, time.Minute)); err != nil {
						t.Errorf("Wait: %v", err)
					}
				})
				wg.Go(func() {
					if err := q.WaitSolicited(within(t, time.Minute)); err != nil {
						t.Errorf("WaitSolicited: %v", err)
					}
				})
				wg.Go(func() { r.next(0) })
				synctest.Wait()
				r.b[0].recv(0, 64)
				r.b[0].recv(0, 64)
				r.sendTo(0, 0)
				synctest.Wait()
				r.sendTo(0, roce.Solicited)
				wg.Wait()
				for range 2 {
					r.a[0].wait()
					r.b[0].wait()
				}
			}
			r.silent("after the last")
		})
	}
}

// TestWaitSolicited: WaitSolicited ignores completions that are not solicited, and leaves them to other waiters.
func TestWaitSolicited(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newChanRig(t, polled, 1)
			q := r.b[0].cq
			for range 4 {
				r.b[0].recv(0, 64)
			}
			ended := make(chan time.Time, 2)
			for range 2 {
				go func() {
					if err := q.WaitSolicited(context.Background()); err != nil {
						t.Errorf("WaitSolicited: %v", err)
					}
					ended <- time.Now()
				}()
			}
			r.sendTo(0, 0)
			check(t, q.Wait(within(t, time.Second)))
			wantErr(t, "WaitSolicited of another", q.WaitSolicited(within(t, time.Second)), context.DeadlineExceeded)
			if n := len(ended); n != 0 {
				t.Errorf("%d were woken by what is not solicited", n)
			}
			sent := time.Now()
			r.sendTo(0, roce.Solicited)
			for range 2 {
				if took := (<-ended).Sub(sent); took > time.Second {
					t.Errorf("woke after %v", took)
				}
			}
			if n := q.Poll(make([]roce.WC, 9)); n != 2 {
				t.Errorf("%d completions, want both", n)
			}
			time.AfterFunc(time.Second, func() {
				check(t, r.b[0].qp.Close())
				check(t, q.Close())
			})
			wantErr(t, "WaitSolicited of a closed queue", q.WaitSolicited(context.Background()), roce.ErrClosed)
		})
	}
}

// TestCompChannelDoesNotAllocate: events allocate nothing once as many have been pending.
func TestCompChannelDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d := newNetwork(t).device("10.0.0.1")
	channel := ok(d.CreateCompChannel())(t)
	var peers []*peer
	for range 5 {
		p := newPeer(t, d, 100)
		p.cq = ok(d.CreateCQWith(roce.CQConfig{Entries: 100, Channel: channel}))(t)
		p.qp = ok(p.pd.CreateQP(roce.QPConfig{SendCQ: p.cq}))(t)
		check(t, p.qp.Init(roce.DefaultQPAccess, 0))
		connect(t, p, p)
		peers = append(peers, p)
	}
	wr, wcs := roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled}, make([]roce.WC, 4)
	if n := testing.AllocsPerRun(200, func() {
		for _, p := range peers {
			check(t, p.cq.RequestNotify(true))
			check(t, p.cq.RequestNotify(false))
			check(t, p.qp.PostSend(&wr))
		}
		for left := len(peers); left > 0; {
			if q, ok := channel.TryNext(); ok && q.Poll(wcs) == 1 {
				left--
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
