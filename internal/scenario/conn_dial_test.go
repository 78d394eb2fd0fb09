package scenario_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// wantReject checks that a connection was rejected, and returns how.
func wantReject(t testing.TB, err error, reason cm.RejectReason) roce.RejectError {
	t.Helper()
	var r *roce.RejectError
	if !errors.As(err, &r) || r.Reason != reason || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v, want a rejection with reason %d", err, reason)
		return roce.RejectError{}
	}
	return *r
}

// couple is two devices, with a listener on the server.
type couple struct {
	t              testing.TB
	net            *network
	server, client *roce.Device
	listener       *roce.Listener
}

// newCouple opens the devices in background mode or polled.
func newCouple(t testing.TB, polled bool) *couple {
	t.Helper()
	c := &couple{t: t, net: newNetwork(t)}
	open := func(addr string) *roce.Device {
		config := c.net.config(addr)
		config.Polled = polled
		return c.net.open(config)
	}
	c.server, c.client = open("10.0.0.1"), open("10.0.0.2")
	c.listener = ok(c.server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
	return c
}

const serverAddr = "10.0.0.1:7471"

// connect dials and accepts.
func (c *couple) connect(d roce.DialConfig, a roce.AcceptConfig) (server, client *roce.Conn) {
	c.t.Helper()
	ctx := within(c.t, time.Minute)
	var wg sync.WaitGroup
	wg.Go(func() {
		r, err := c.listener.Accept(ctx)
		if err == nil {
			server, err = r.Accept(ctx, a)
		}
		if err != nil {
			c.t.Errorf("server: %v", err)
		}
	})
	client = ok(c.client.Dial(ctx, serverAddr, d))(c.t)
	wg.Wait()
	if server == nil {
		c.t.FailNow()
	}
	return server, client
}

// both runs a test in bubbles with background and polled devices. Goroutines drive the devices of a polled couple all the
// time.
func both(t *testing.T, f func(t *testing.T, c *couple)) {
	t.Run("background", func(t *testing.T) {
		bubble(t, func(t *testing.T) { f(t, newCouple(t, false)) })
	})
	t.Run("polled", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := newCouple(t, true)
			keepBusy(t, c.server, c.client)
			f(t, c)
		})
	})
}

func TestConnect(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		server, client := c.connect(
			roce.DialConfig{Param: roce.ConnParam{PrivateData: []byte("from the client"), ResponderResources: 3, InitiatorDepth: 5, RetryCount: 6, RNRRetryCount: 4}},
			roce.AcceptConfig{Param: roce.ConnParam{PrivateData: []byte("from the server"), ResponderResources: 9, InitiatorDepth: 2, RNRRetryCount: 1}})
		private := func(c *roce.Conn, want string, size int) {
			t.Helper()
			if got := c.PrivateData(); len(got) != size || string(bytes.TrimRight(got, "\x00")) != want {
				t.Errorf("private data %d bytes %q, want %d bytes %q", len(got), got, size, want)
			}
		}
		private(server, "from the client", cm.REQUserLen)
		private(client, "from the server", cm.REPPrivateLen)
		if server.RemoteAddr() != client.LocalAddr() || server.LocalAddr() != client.RemoteAddr() || client.RemoteAddr().String() != serverAddr {
			t.Errorf("the server is %v, its peer %v; the client is %v, its peer %v",
				server.LocalAddr(), server.RemoteAddr(), client.LocalAddr(), client.RemoteAddr())
		}
		s, _ := server.QP().Query()
		k, _ := client.QP().Query()
		if s.State != qp.RTS || k.State != qp.RTS || s.DestQPN != client.QP().Num() || k.DestQPN != server.QP().Num() ||
			s.RQPSN != k.SQPSN || s.SQPSN != k.RQPSN || s.PathMTU != k.PathMTU {
			t.Errorf("the queue pairs do not fit:\n%+v\n%+v", s, k)
		}
		// The client wants to initiate 5 and serve 3; the server initiates 2 and
		// would serve 9.
		if s.MaxDestRdAtomic != 5 || k.MaxRdAtomic != 5 || s.MaxRdAtomic != 2 || k.MaxDestRdAtomic != 2 {
			t.Errorf("READs: server %d there, %d here; client %d there, %d here; want 2, 5, 5, 2",
				s.MaxRdAtomic, s.MaxDestRdAtomic, k.MaxRdAtomic, k.MaxDestRdAtomic)
		}
		if s.RetryCnt != 6 || k.RetryCnt != 6 || s.RNRRetry != 4 || k.RNRRetry != 1 {
			t.Errorf("retries: server %d and RNR %d, client %d and %d, want 6, 4, 6, 1", s.RetryCnt, s.RNRRetry, k.RetryCnt, k.RNRRetry)
		}
		for _, x := range []*roce.Conn{server, client} {
			if x.Err() != nil {
				t.Errorf("Err of a connection that stands: %v", x.Err())
			}
		}
		check(t, server.Close())
		<-client.Done()
		wantErr(t, "the closing side's Err", server.Err(), net.ErrClosed)
		wantErr(t, "the other side's Err", client.Err(), roce.ErrDisconnected)
		check(t, client.Close())
		wantErr(t, "the queue pair of a closed connection", client.QP().PostRecv(&roce.RecvWR{}), net.ErrClosed)
		wantErr(t, "Close again", server.Close(), roce.ErrClosed)
		wantErr(t, "Disconnect after Close", client.Disconnect(within(t, time.Minute)), roce.ErrClosed)
	})
}

func TestPrivateDataTooLong(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		ctx := within(t, time.Minute)
		long := func(n int) roce.ConnParam { return roce.ConnParam{PrivateData: make([]byte, n)} }
		_, err := c.client.Dial(ctx, serverAddr, roce.DialConfig{Param: long(cm.REQUserLen + 1)})
		wantErr(t, "Dial", err, cm.ErrPrivateData)
		wantErr(t, "Dial", err, syscall.EINVAL)

		// Accept with private data that are too long rejects the request.
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := c.listener.Accept(ctx)
			if err == nil {
				_, err = r.Accept(ctx, roce.AcceptConfig{Param: long(cm.REPPrivateLen + 1)})
			}
			wantErr(t, "Accept", err, cm.ErrPrivateData)
		})
		_, err = c.client.Dial(ctx, serverAddr, roce.DialConfig{Param: long(cm.REQUserLen)})
		wantReject(t, err, cm.RejectConsumer)
		wg.Wait()

		// If the private data of Reject are too long, the program can call it again.
		wg.Go(func() {
			r, err := c.listener.Accept(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			wantErr(t, "Reject", r.Reject(make([]byte, cm.REJPrivateLen+1)), cm.ErrPrivateData)
			if err := r.Reject(make([]byte, cm.REJPrivateLen)); err != nil {
				t.Error(err)
			}
			wantErr(t, "Reject again", r.Reject(nil), syscall.EINVAL)
			_, err = r.Accept(ctx, roce.AcceptConfig{})
			wantErr(t, "Accept after Reject", err, syscall.EINVAL)
		})
		_, err = c.client.Dial(ctx, serverAddr, roce.DialConfig{})
		wantReject(t, err, cm.RejectConsumer)
		wg.Wait()
	})
}

func TestReject(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		ctx := within(t, time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := c.listener.Accept(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			if got := r.PrivateData()[:5]; string(got) != "knock" {
				t.Errorf("private data %q", got)
			}
			if o := r.Offer(); o.RetryCount != 7 || o.RNRRetryCount != 7 {
				t.Errorf("offer %+v", o)
			}
			if err := r.Reject([]byte("not today")); err != nil {
				t.Error(err)
			}
		})
		p := roce.ConnParam{PrivateData: []byte("knock")}
		_, err := c.client.Dial(ctx, serverAddr, roce.DialConfig{Param: p})
		wg.Wait()
		r := wantReject(t, err, cm.RejectConsumer)
		if got := bytes.TrimRight(r.PrivateData, "\x00"); string(got) != "not today" {
			t.Errorf("private data of the rejection %q", got)
		}

		_, err = c.client.Dial(ctx, "10.0.0.1:7472", roce.DialConfig{})
		wantReject(t, err, cm.RejectInvalidServiceID)
		if got, want := err.Error(), "roce: dial: 10.0.0.1:7472: connection rejected: reason 8 (invalid service ID)"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	})
}

// TestDialDeadline: if the sender of a request gives up, the listener drops the request, and the sender closes its
// objects.
func TestDialDeadline(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.client.Dial(ctx, serverAddr, roce.DialConfig{})
		wantErr(t, "Dial nobody accepts", err, context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Dial took %v, want 1s", took)
		}
		synctest.Wait()
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = c.listener.Accept(ctx)
		wantErr(t, "Accept of a request that was given up", err, context.DeadlineExceeded)

		// The same with a request that was taken, but not answered.
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := c.listener.Accept(within(t, time.Minute))
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(2 * time.Second)
			_, err = r.Accept(within(t, time.Minute), roce.AcceptConfig{})
			wantReject(t, err, cm.RejectTimeout)
		})
		_, err = c.client.Dial(within(t, time.Second), serverAddr, roce.DialConfig{})
		wantErr(t, "Dial nobody answers", err, context.DeadlineExceeded)
		wg.Wait()

		// And with a peer that does not exist.
		_, err = c.client.Dial(within(t, time.Second), "10.0.0.77:1", roce.DialConfig{})
		wantErr(t, "Dial of nobody", err, context.DeadlineExceeded)
		_, err = c.client.Dial(within(t, time.Hour), "10.0.0.77:1", roce.DialConfig{})
		wantErr(t, "Dial of nobody, patiently", err, syscall.ETIMEDOUT)
	})
}

// TestBacklog: requests beyond the backlog wait at their senders.
func TestBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server, client := n.device("10.0.0.1"), n.device("10.0.0.2")
		l := ok(server.Listen(context.Background(), ":7471", roce.ListenConfig{Backlog: 2}))(t)
		const dials = 7
		ctx := within(t, 10*time.Minute)
		var wg sync.WaitGroup
		for range dials {
			wg.Go(func() {
				_, err := client.Dial(ctx, serverAddr, roce.DialConfig{})
				if err != nil {
					t.Errorf("Dial: %v", err)
				}
			})
		}
		time.Sleep(time.Second)
		if full := server.Counters().CM.RequestsFull; full != dials-2 {
			t.Errorf("%d requests found no room, want %d", full, dials-2)
		}
		for range dials {
			r := ok(l.Accept(ctx))(t)
			ok(r.Accept(ctx, roce.AcceptConfig{}))(t)
		}
		wg.Wait()
	})
}

func TestPorts(t *testing.T) {
	n := newNetwork(t)
	c := n.config("10.0.0.1")
	c.Addrs = append(c.Addrs, netip.MustParseAddr("fd00::1"))
	d := n.open(c)
	ctx := context.Background()
	listen := func(addr string) *roce.Listener { return ok(d.Listen(ctx, addr, roce.ListenConfig{}))(t) }
	refused := func(addr string, why error) {
		t.Helper()
		if l, err := d.Listen(ctx, addr, roce.ListenConfig{}); err == nil {
			l.Close()
			t.Errorf("Listen(%q) works, want %v", addr, why)
		} else if !errors.Is(err, why) {
			t.Errorf("Listen(%q): %v, want %v", addr, err, why)
		}
	}
	l := listen("10.0.0.1:7471")
	refused("10.0.0.1:7471", syscall.EADDRINUSE)
	refused("0.0.0.0:7471", syscall.EADDRINUSE)
	refused(":7471", syscall.EADDRINUSE)
	refused("10.0.0.2:7471", syscall.EADDRNOTAVAIL)
	refused("10.0.0.2:0", syscall.EADDRNOTAVAIL)
	refused("somewhere", syscall.EINVAL)
	refused("10.0.0.1", syscall.EINVAL)
	v6 := listen("[fd00::1]:7471") // does not collide with IPv4
	if got := v6.Addr().String(); got != "[fd00::1]:7471" {
		t.Errorf("Addr() = %v", got)
	}
	check(t, l.Close())
	wantErr(t, "Close again", l.Close(), net.ErrClosed)
	_, err := l.Accept(ctx)
	wantErr(t, "Accept of a closed listener", err, net.ErrClosed)
	l = listen("0.0.0.0:7471") // free again
	check(t, l.Close())

	ports := map[uint16]bool{}
	for range 100 {
		l := listen(":0")
		defer l.Close()
		if p := l.Addr().Port(); p < 1024 || ports[p] {
			t.Errorf("port 0 became %d", p)
		} else {
			ports[p] = true
		}
	}
}

// TestSetup: on either side receives of Setup are posted before the peer can send.
func TestSetup(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		setup := func(q *roce.QP) error {
			for i := range 10 {
				m, err := q.PD().RegMR(make([]byte, 10), roce.LocalWrite)
				if err == nil {
					err = q.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{m.SGE(0, 10)}})
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		server, client := c.connect(roce.DialConfig{Setup: setup}, roce.AcceptConfig{Setup: setup})
		for _, x := range [][2]*roce.Conn{{server, client}, {client, server}} {
			for range 10 {
				check(t, x[0].QP().PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("hi")}))
			}
			for i := range 10 {
				wc := ok(x[1].QP().RecvCQ().Next(within(t, time.Minute)))(t)
				if wc.Status != cq.Success || wc.ID != uint64(i) {
					t.Fatalf("completion %+v", wc)
				}
			}
		}
		for _, d := range []*roce.Device{c.server, c.client} {
			if n := d.Counters().SendRNRErr; n > 0 {
				t.Errorf("%d sends found no receive", n)
			}
		}

		// A Setup that fails ends the attempt, and leaves nothing behind.
		bad := errors.New("bad setup")
		var made []*roce.QP
		fails := func(q *roce.QP) error { made = append(made, q); return bad }
		_, err := c.client.Dial(within(t, time.Minute), serverAddr, roce.DialConfig{Setup: fails})
		wantErr(t, "Dial", err, bad)
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := c.listener.Accept(within(t, time.Minute))
			if err == nil {
				_, err = r.Accept(within(t, time.Minute), roce.AcceptConfig{Setup: fails})
			}
			wantErr(t, "Accept", err, bad)
		})
		_, err = c.client.Dial(within(t, time.Minute), serverAddr, roce.DialConfig{})
		wantReject(t, err, cm.RejectConsumer)
		wg.Wait()
		for _, q := range made {
			wantErr(t, "the queue pair made", q.Close(), net.ErrClosed)
			wantErr(t, "the CQ made", q.SendCQ().Close(), net.ErrClosed)
			wantErr(t, "the PD made", q.PD().Close(), net.ErrClosed)
		}
	})
}

// TestListenerAddr: the address that a listener on any address returns can be dialed. The wildcard cannot: the error says
// what to pass instead.
func TestListenerAddr(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("fe80::1")
		c.Addrs = append(c.Addrs, netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1"))
		server, client := n.open(c), n.device("10.0.0.2")
		for addr, want := range map[string]string{"0.0.0.0:7471": "10.0.0.1:7471", ":7472": "[fd00::1]:7472", "[fe80::1]:7473": "[fe80::1]:7473"} {
			l := ok(server.Listen(t.Context(), addr, roce.ListenConfig{}))(t)
			if got := l.Addr().String(); got != want {
				t.Errorf("Addr of a listener on %s: %s, want %s", addr, got, want)
			}
		}
		check(t, server.SetAddrs([]netip.Addr{netip.MustParseAddr("fe80::1")}))
		l := ok(server.Listen(t.Context(), ":7474", roce.ListenConfig{}))(t)
		if got := l.Addr().String(); got != "[fe80::1]:7474" {
			t.Errorf("Addr of a device with a link-local address: %s", got)
		}
		for _, addr := range []string{":7471", "0.0.0.0:7471"} {
			_, err := client.Dial(within(t, time.Minute), addr, roce.DialConfig{})
			wantErr(t, "Dial "+addr, err, syscall.EINVAL)
			if !strings.Contains(err.Error(), "stands for any address: give one of the listener's device") {
				t.Errorf("Dial %s: %v", addr, err)
			}
			_, err = client.ResolveUD(within(t, time.Minute), addr, roce.ResolveConfig{})
			wantErr(t, "ResolveUD "+addr, err, syscall.EINVAL)
		}
	})
}

// TestOwnQP connects queue pairs that exist already, twice.
func TestOwnQP(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		a, b := newPeer(t, c.server, 100), newPeer(t, c.client, 100)
		for range 2 {
			server, client := c.connect(roce.DialConfig{QP: b.qp}, roce.AcceptConfig{QP: a.qp})
			a.recv(0, 10)
			b.post(roce.Send, 0, 10, nil, 0)
			a.wait()
			b.wait()
			_, err := c.client.Dial(within(t, time.Minute), serverAddr, roce.DialConfig{QP: b.qp})
			wantErr(t, "Dial with a connected queue pair", err, syscall.EINVAL)
			if s := b.qp.State(); s != qp.RTS {
				t.Errorf("the queue pair is in state %v after that", s)
			}
			check(t, client.Disconnect(within(t, time.Minute)))
			<-server.Done()
			check(t, server.Close())
			check(t, client.Close())
			for _, p := range []*peer{a, b} {
				if s := p.qp.State(); s != qp.Err {
					t.Errorf("a queue pair is in state %v after the connection", s)
				}
				check(t, p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
			}
		}
		_, err := c.client.Dial(within(t, time.Minute), serverAddr, roce.DialConfig{QP: a.qp})
		wantErr(t, "Dial with another device's queue pair", err, syscall.EINVAL)
	})
}

// TestOwnQPAlone: a program that passes its own queue pair must not pass parameters that the queue pair already has. The
// error names both.
func TestOwnQPAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCouple(t, false)
		p := newPeer(t, c.client, 100)
		for want, d := range map[string]roce.DialConfig{
			"and PD exclude":        {QP: p.qp, PD: p.pd},
			"and QPConfig exclude":  {QP: p.qp, QPConfig: roce.QPConfig{SignalAll: true}},
			"Access is for a queue": {QP: p.qp, Access: new(roce.RemoteRead)},
		} {
			if d.Access != nil {
				check(t, p.qp.Init(roce.RemoteWrite, 0))
			}
			_, err := c.client.Dial(within(t, time.Minute), serverAddr, d)
			wantErr(t, want, err, syscall.EINVAL)
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), p.qp.Num().String()) {
				t.Errorf("%v, want %q and the queue pair", err, want)
			}
			check(t, p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
		}
	})
}

// TestOwnQPAgain: a connection that has ended no longer changes its queue pair after the program has connected that queue
// pair again.
func TestOwnQPAgain(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		a, b := newPeer(t, c.server, 100), newPeer(t, c.client, 100)
		connect := func() (server, client *roce.Conn) {
			return c.connect(roce.DialConfig{QP: b.qp}, roce.AcceptConfig{QP: a.qp})
		}
		oldServer, oldClient := connect()
		check(t, oldClient.Disconnect(within(t, time.Minute)))
		<-oldServer.Done()
		for _, p := range []*peer{a, b} {
			check(t, p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
		}
		connect()
		check(t, oldServer.Close())
		check(t, oldClient.Close())
		wantErr(t, "Disconnect after Close", oldClient.Disconnect(within(t, time.Minute)), roce.ErrClosed)
		for _, p := range []*peer{a, b} {
			if s := p.qp.State(); s != qp.RTS {
				t.Fatalf("a queue pair is in state %v after its first connection was closed, want %v as the second has it", s, qp.RTS)
			}
		}
		a.recv(0, 10)
		b.post(roce.Send, 0, 10, nil, 0)
		a.wait()
		b.wait()
	})
}

// TestOwnQPReset: if the program resets a queue pair and connects it by hand, the queue pair leaves its connection, which
// ends later.
func TestOwnQPReset(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		a, b := newPeer(t, c.server, 100), newPeer(t, c.client, 100)
		server, client := c.connect(roce.DialConfig{QP: b.qp}, roce.AcceptConfig{QP: a.qp})
		for _, p := range []*peer{a, b} {
			check(t, p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
			check(t, p.qp.Init(roce.DefaultQPAccess, 0))
		}
		connect(t, a, b)
		check(t, client.Disconnect(within(t, time.Minute)))
		<-server.Done()
		check(t, server.Close())
		check(t, client.Close())
		a.recv(0, 10)
		b.post(roce.Send, 0, 10, nil, 0)
		a.wait()
		b.wait()
	})
}

// TestOneQueue: without RecvCQ, SendCQ is also the receive completion queue.
func TestOneQueue(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		queue := ok(c.client.CreateCQ(10))(t)
		_, client := c.connect(roce.DialConfig{QPConfig: roce.QPConfig{SendCQ: queue}}, roce.AcceptConfig{})
		if q := client.QP(); q.SendCQ() != queue || q.RecvCQ() != queue {
			t.Error("the queue pair has another queue than the one given")
		}
	})
}

// TestListenerClose: closing a listener rejects unaccepted requests; connections stay.
func TestListenerClose(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := c.client.Dial(within(t, time.Minute), serverAddr, roce.DialConfig{})
				wantReject(t, err, cm.RejectConsumer)
			})
		}
		time.Sleep(time.Second)
		r := ok(c.listener.Accept(within(t, time.Minute)))(t) // Close does not reject a request that the program has
		check(t, c.listener.Close())
		time.Sleep(time.Second)
		check(t, r.Reject(nil))
		wg.Wait()
		_, err := c.client.Dial(within(t, time.Minute), serverAddr, roce.DialConfig{})
		wantReject(t, err, cm.RejectInvalidServiceID)

		buf := ok(server.QP().PD().RegMR(make([]byte, 10), roce.LocalWrite))(t)
		check(t, server.QP().PostRecv(&roce.RecvWR{SG: []roce.SGE{buf.SGE(0, 10)}}))
		check(t, client.QP().PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("still there")[:10]}))
		if wc := ok(server.QP().RecvCQ().Next(within(t, time.Minute)))(t); wc.Status != cq.Success {
			t.Errorf("completion %+v", wc)
		}
		check(t, server.Close())
		check(t, buf.Close())
	})
}

// TestMTUTooLarge: a request with a path MTU that the local link cannot carry is rejected.
func TestMTUTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		small := n.config("10.0.0.1")
		small.Ports[0] = smallPort{small.Ports[0]}
		server, client := n.open(small), n.device("10.0.0.2")
		ok(server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
		_, err := client.Dial(within(t, time.Minute), serverAddr, roce.DialConfig{})
		wantReject(t, err, cm.RejectInvalidMTU)
	})
}

// TestAcceptMany accepts on several goroutines.
func TestAcceptMany(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		const conns = 50
		ctx := within(t, time.Minute)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range conns {
			wg.Go(func() {
				r, err := c.listener.Accept(ctx)
				if err == nil {
					p := roce.ConnParam{PrivateData: r.PrivateData()[:8]}
					_, err = r.Accept(ctx, roce.AcceptConfig{Param: p})
				}
				if err != nil {
					t.Errorf("accept: %v", err)
				}
			})
			wg.Go(func() {
				p := roce.ConnParam{PrivateData: fmt.Appendf(nil, "%8d", i)}
				conn, err := c.client.Dial(ctx, serverAddr, roce.DialConfig{Param: p})
				if err != nil {
					t.Errorf("dial: %v", err)
				} else if got := conn.PrivateData()[:8]; !bytes.Equal(got, p.PrivateData) {
					t.Errorf("connected with %q, got the answer to %q", p.PrivateData, got)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > 0 {
			t.Errorf("took %v: a request woke nobody", took)
		}
	})
}
