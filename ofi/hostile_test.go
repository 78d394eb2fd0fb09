package ofi_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/ofi"
)

// listen opens a passive endpoint on a device, and an event queue for it.
func listen(t testing.TB, d *roce.Device, backlog int) (*ofi.PassiveEndpoint, *end) {
	t.Helper()
	e := newEnd(t, d)
	info := must(ofi.GetInfo(d, tooltest.Server4, "0", ofi.Source, nil))(t)
	pep := must(e.fabric.OpenPassive(info, e.eq, nil))(t)
	check(t, pep.SetBacklog(backlog))
	check(t, pep.Listen())
	if err := pep.SetBacklog(1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a backlog after Listen: %v, want EINVAL", err)
	}
	return pep, e
}

// A program that does not read its event queue holds at most as many requests as the backlog. It answers them
// when it reads; the senders of other requests repeat them.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tooltest.Pair(t, fault.Config{})
		const backlog, clients = 3, 20
		pep, server := listen(t, a, backlog)
		refused := make(chan error, clients)
		for range clients {
			go func() {
				_, err := b.Dial(context.Background(), pep.Name().String(), roce.DialConfig{})
				refused <- err
			}()
		}
		synctest.Wait()
		if held := clients - a.Counters().CM.RequestsFull; held < backlog || held > backlog+1 {
			t.Errorf("%d requests are held, want the backlog of %d, and one in the event queue", held, backlog)
		}
		for range clients {
			ev := server.event(ofi.ConnRequest)
			check(t, ev.Info.Request.Reject(nil))
		}
		for range clients {
			var rejected *roce.RejectError
			if err := <-refused; !errors.As(err, &rejected) {
				t.Errorf("dial: %v, want a reject", err)
			}
		}
		check(t, pep.Close())
	})
}

// The program sees at most one abandoned request: the one that was in its event queue already.
func TestAbandonedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tooltest.Pair(t, fault.Config{})
		pep, server := listen(t, a, 8)
		ctx, giveUp := context.WithCancel(t.Context())
		var dials sync.WaitGroup
		for range 5 {
			dials.Go(func() {
				if _, err := b.Dial(ctx, pep.Name().String(), roce.DialConfig{}); !errors.Is(err, context.Canceled) {
					t.Errorf("dial: %v", err)
				}
			})
			synctest.Wait()
		}
		giveUp()
		dials.Wait()
		seen := 0
		for {
			synctest.Wait()
			ev, err := server.eq.TryRead()
			if err != nil {
				break
			}
			seen++
			ev.Info.Request.Reject(nil) // it fails: the request is over
		}
		if seen > 1 {
			t.Errorf("%d abandoned requests, want at most 1", seen)
		}
		check(t, pep.Close())
	})
}

// Close rejects a request that is in the event queue already.
func TestPassiveCloseRejects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tooltest.Pair(t, fault.Config{})
		pep, server := listen(t, a, 0)
		client := newEnd(t, b)
		client.open(must(ofi.GetInfo(b, "", "", 0, nil))(t))
		check(t, client.ep.Connect(pep.Name(), nil))
		synctest.Wait()
		check(t, pep.Close())
		if _, err := client.eq.Read(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connect: %v, want ECONNREFUSED", err)
		}
		if ev, err := server.eq.TryRead(); err != syscall.EAGAIN {
			t.Errorf("the request is still there: %v, %v", ev, err)
		}
		check(t, client.ep.Close())
		if err := client.ep.Connect(pep.Name(), nil); !errors.Is(err, syscall.EBADF) {
			t.Errorf("connect after close: %v, want EBADF", err)
		}
	})
}

// Closing an endpoint removes its events.
func TestCloseTakesEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := pair(t, fault.Config{})
		check(t, client.ep.Shutdown(t.Context()))
		synctest.Wait()
		check(t, server.ep.Close())
		if ev, err := server.eq.TryRead(); err != syscall.EAGAIN {
			t.Errorf("an event of a closed endpoint: %v, %v", ev, err)
		}
	})
}

// A program can close an endpoint while it reads its completions.
func TestCloseDuringRead(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	pep, server := listen(t, a, 0)
	client := newEnd(t, b)
	var reader sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	reader.Go(func() {
		var entries [4]ofi.Entry
		for ctx.Err() == nil {
			server.cq.Read(entries[:])
		}
	})
	for range 100 {
		client.open(must(ofi.GetInfo(b, "", "", 0, nil))(t))
		check(t, client.ep.Connect(pep.Name(), nil))
		server.open(server.event(ofi.ConnRequest).Info)
		for range 100 {
			check(t, server.ep.Recv(server.mem[:64], server.mr.Desc(), nil))
		}
		check(t, server.ep.Accept(nil))
		client.event(ofi.Connected)
		server.event(ofi.Connected)
		check(t, client.ep.Shutdown(ctx)) // all receives complete, flushed
		check(t, server.ep.Close())
		check(t, client.ep.Close())
	}
	stop()
	reader.Wait()
	check(t, pep.Close())
}

// Two readers of one queue each get their completion, even if one call could have taken
// both.
func TestTwoReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := pair(t, fault.Config{})
		check(t, server.ep.Recv(server.mem[:8], server.mr.Desc(), nil))
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var one [1]ofi.Entry
				if _, err := server.cq.SRead(ctx, one[:]); err != nil {
					t.Errorf("read: %v", err)
				}
			})
		}
		synctest.Wait()
		for range 2 {
			check(t, client.ep.Send(client.mem[:8], client.mr.Desc(), nil))
		}
		readers.Wait()
	})
}

// A receive of a shared context completes even if the endpoint whose message took it is
// closed.
func TestSharedRecvSurvivesEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tooltest.Pair(t, fault.Config{})
		pep, server := listen(t, a, 0)
		client := newEnd(t, b)
		srx := must(server.domain.OpenSharedRecv(8))(t)
		check(t, srx.Recv(server.mem[:64], server.mr.Desc(), "shared"))
		client.open(must(ofi.GetInfo(b, "", "", 0, nil))(t))
		check(t, client.ep.Connect(pep.Name(), nil))
		server.ep = must(server.domain.OpenEndpoint(server.event(ofi.ConnRequest).Info, nil))(t)
		check(t, server.ep.BindEQ(server.eq))
		check(t, server.ep.BindCQ(server.cq, true, true))
		check(t, server.ep.BindSharedRecv(srx))
		check(t, server.ep.Enable())
		check(t, server.ep.Accept(nil))
		client.event(ofi.Connected)
		check(t, client.ep.Send(client.mem[:5], client.mr.Desc(), nil))
		synctest.Wait()
		check(t, server.ep.Close())
		var entries [2]ofi.Entry
		n, err := server.cq.Read(entries[:])
		if n != 1 || err != nil || entries[0].Context != "shared" || entries[0].Len != 5 {
			t.Errorf("read %d entries, %+v, %v", n, entries[0], err)
		}
		check(t, srx.Close())
		check(t, client.ep.Close())
		check(t, pep.Close())
	})
}

// Enabling a closed endpoint fails and does not bind its queue.
func TestEnableAfterClose(t *testing.T) {
	a, _ := tooltest.Pair(t, fault.Config{})
	e := newEnd(t, a)
	ep := must(e.domain.OpenEndpoint(must(ofi.GetInfo(a, tooltest.Client4, "1", 0, nil))(t), nil))(t)
	check(t, ep.BindEQ(e.eq))
	check(t, ep.BindCQ(e.cq, true, true))
	check(t, ep.Close())
	if err := ep.Enable(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("Enable: %v, want EBADF", err)
	}
	if err := e.cq.Close(); err != nil {
		t.Errorf("the queue of an endpoint that was closed: %v", err)
	}
}
