package scenario_test

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

// altTo is the second address of the passive side of a doubleConn, seen from the
// active one.
var altTo = roce.AlternatePath{Local: addrs[0][1], Remote: addrs[1][2]}

// doubleConn is a doublePath whose devices are connected by the connection
// manager, beside the queue pairs that are there already.
type doubleConn struct {
	*doublePath
	ca, cb *roce.Conn
	dead   atomic.Bool // packets to and from the first address are lost
	deaf   atomic.Bool // packets of the passive side are lost
}

// taken makes the passive side accept any alternate path.
var taken = roce.AcceptConfig{OnAlternate: roce.AnyAlternate}

func (p *doublePath) dial(d roce.DialConfig, a roce.AcceptConfig) *doubleConn {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := ok(p.b.dev.Listen(ctx, "10.0.0.2:4000", roce.ListenConfig{}))(p.t)
	defer l.Close()
	accepted := make(chan *roce.Conn, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			var c *roce.Conn
			if c, err = r.Accept(ctx, a); err == nil {
				accepted <- c
			}
		}
		if err != nil {
			p.t.Error(err)
			close(accepted)
		}
	}()
	d.Local = addrs[0][0]
	if d.OnAlternate == nil {
		d.OnAlternate = roce.AnyAlternate
	}
	c := &doubleConn{doublePath: p}
	check(p.t, p.faults[0].AddRule(fault.Rule{Action: fault.Drop, Addr: fault.Is(addrs[0][0]),
		Func: func(fault.Direction, *bth.Packet) bool { return c.dead.Load() }}))
	check(p.t, p.faults[1].AddRule(fault.Rule{Action: fault.Drop, Dir: fault.Tx,
		Func: func(fault.Direction, *bth.Packet) bool { return c.deaf.Load() }}))
	c.ca = ok(p.a.dev.Dial(ctx, l.Addr().String(), d))(p.t)
	c.cb = <-accepted
	if c.cb == nil {
		p.t.FailNow()
	}
	p.t.Cleanup(func() { c.ca.Close(); c.cb.Close() })
	return c
}

// talk sends a message each way.
func (c *doubleConn) talk() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, x := range [][2]*roce.QP{{c.ca.QP(), c.cb.QP()}, {c.cb.QP(), c.ca.QP()}} {
		check(c.t, x[1].PostRecv(&roce.RecvWR{}))
		check(c.t, x[0].PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled}))
		for _, q := range []*roce.CQ{x[1].RecvCQ(), x[0].SendCQ()} {
			if wc := ok(q.Next(ctx))(c.t); wc.Status != 0 {
				c.t.Fatal(wc.Status)
			}
		}
	}
}

func (c *doubleConn) wantMigs(want qp.MigState) {
	c.t.Helper()
	for i, q := range []*roce.QP{c.ca.QP(), c.cb.QP()} {
		if got := q.MigState(); got != want {
			c.t.Errorf("end %d is %v, want %v", i, got, want)
		}
	}
}

// failOver cuts off the first addresses: both ends, and the connection manager, continue over the second ones.
func (c *doubleConn) failOver() {
	c.t.Helper()
	c.talk()
	c.wantMigs(qp.Armed)
	c.dead.Store(true)
	c.talk()
	c.wantMigs(qp.Migrated)
	if path, _ := c.ca.QP().Path(); path.DGID.Addr() != addrs[1][2] {
		c.t.Errorf("data go to %v", path.DGID.Addr())
	}
	for _, x := range []*roce.Conn{c.ca, c.cb} {
		if p, ok := x.Alternate(); ok {
			c.t.Errorf("alternate path %v after a migration", &p)
		}
	}
}

// TestDialAlternate: the connection request has the alternate path. It replaces the first path when that fails: for data,
// and for the end of the connection.
func TestDialAlternate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newDoublePath(t, false).dial(roce.DialConfig{Param: oneRetryVia(&altTo)}, taken)
		if _, ok := c.cb.Alternate(); !ok {
			t.Error("the passive side has no alternate path")
		}
		if p, ok := c.ca.Alternate(); !ok || p.LocalGID.Addr() != addrs[0][1] || p.RemoteGID.Addr() != addrs[1][2] {
			t.Errorf("alternate path %v, %v", &p, ok)
		}
		c.failOver()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		check(t, c.ca.Disconnect(ctx)) // by DREQ and DREP
		<-c.cb.Done()
	})
}

// oneRetry makes the queue pair retry only once, so that it leaves a dead path soon.
var oneRetry = roce.ConnParam{RetryCount: 1, RNRRetryCount: 7}

// oneRetryVia is oneRetry with an alternate path.
func oneRetryVia(a *roce.AlternatePath) roce.ConnParam {
	p := oneRetry
	p.Alternate = a
	return p
}

// TestLoadAlternateConn: either side proposes the path later, and proposes the old one again after a migration.
func TestLoadAlternateConn(t *testing.T) {
	for _, side := range []string{"active", "passive"} {
		t.Run(side, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx := context.Background()
				c := newDoublePath(t, false).dial(roce.DialConfig{Param: oneRetry}, taken)
				asks, path := c.ca, altTo
				back := roce.AlternatePath{Local: addrs[0][0], Remote: addrs[1][0]}
				if side == "passive" {
					asks, path = c.cb, roce.AlternatePath{Local: altTo.Remote, Remote: altTo.Local}
					back = roce.AlternatePath{Local: back.Remote, Remote: back.Local}
				}
				if _, ok := asks.Alternate(); ok {
					t.Error("an alternate path without asking for one")
				}
				check(t, asks.LoadAlternate(ctx, path))
				c.failOver()

				c.dead.Store(false)
				c.talk()
				check(t, asks.LoadAlternate(ctx, back))
				c.talk()
				c.wantMigs(qp.Armed)
				check(t, c.ca.QP().Migrate())
				c.talk()
				c.wantMigs(qp.Migrated)
				if path, _ := c.ca.QP().Path(); path.DGID.Addr() != addrs[1][0] {
					t.Errorf("data go to %v", path.DGID.Addr())
				}
				check(t, asks.Disconnect(ctx))
			})
		})
	}
}

// TestAlternateRefused: the program may refuse, and some paths are impossible; the connection stays.
func TestAlternateRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		no := func(cm.Path) cm.APStatus { return cm.APInvalidTC }
		c := newDoublePath(t, false).dial(roce.DialConfig{Param: roce.ConnParam{Alternate: &altTo}}, roce.AcceptConfig{OnAlternate: no})
		for i, x := range []*roce.Conn{c.ca, c.cb} {
			if p, ok := x.Alternate(); ok {
				t.Errorf("end %d has %v", i, &p)
			}
		}
		for _, tt := range []struct {
			what   string
			path   roce.AlternatePath
			status cm.APStatus
			errno  syscall.Errno
		}{
			{"the program says no", altTo, cm.APInvalidTC, syscall.ECONNREFUSED},
			{"not an address of the peer", roce.AlternatePath{Local: addrs[0][1], Remote: addrs[0][0]}, cm.APInvalidGID, syscall.ECONNREFUSED},
			{"the primary path", roce.AlternatePath{Local: addrs[0][0], Remote: addrs[1][0]}, 0, syscall.EINVAL},
			{"not an address of ours", roce.AlternatePath{Local: netip.MustParseAddr("10.7.7.7"), Remote: addrs[1][2]}, 0, syscall.EADDRNOTAVAIL},
		} {
			err := c.ca.LoadAlternate(ctx, tt.path)
			var refused *roce.AlternateError
			if !errors.Is(err, tt.errno) || errors.As(err, &refused) != (tt.status != 0) || refused != nil && refused.Status != tt.status {
				t.Errorf("%s: %v", tt.what, err)
			}
		}
		// The program of the active side has no OnAlternate that refuses.
		check(t, c.cb.LoadAlternate(ctx, roce.AlternatePath{Local: altTo.Remote, Remote: altTo.Local}))
		c.talk()
		c.wantMigs(qp.Armed)

		check(t, c.ca.Disconnect(ctx))
		wantErr(t, "after the end", c.ca.LoadAlternate(ctx, altTo), syscall.EINVAL)
	})
}

// TestAlternateNotAskedFor: a program that does not ask for alternate paths gets none,
// neither with the connection nor later; the connection stays.
func TestAlternateNotAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newDoublePath(t, false).dial(roce.DialConfig{Param: roce.ConnParam{Alternate: &altTo}}, roce.AcceptConfig{})
		for i, x := range []*roce.Conn{c.ca, c.cb} {
			if p, ok := x.Alternate(); ok {
				t.Errorf("end %d has %v", i, &p)
			}
		}
		err := c.ca.LoadAlternate(within(t, time.Minute), altTo)
		var refused *roce.AlternateError
		if !errors.As(err, &refused) || refused.Status != cm.APUnsupported {
			t.Errorf("the proposed path: %v", err)
		}
		c.talk()
		c.wantMigs(qp.Migrated)
	})
}

// TestAlternateUnanswered: a call that waits for an answer returns when the connection or the device ends.
func TestAlternateUnanswered(t *testing.T) {
	for what, end := range map[string]func(*doubleConn){
		"closed": func(c *doubleConn) { c.ca.Close() },
		"device": func(c *doubleConn) { c.a.dev.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newDoublePath(t, false).dial(roce.DialConfig{}, taken)
				c.deaf.Store(true) // no APR
				got := make(chan error, 1)
				go func() { got <- c.ca.LoadAlternate(context.Background(), altTo) }()
				synctest.Wait()
				end(c)
				if err := <-got; err == nil {
					t.Error("no error")
				}
			})
		})
	}
	t.Run("timeout", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := newDoublePath(t, false).dial(roce.DialConfig{}, taken)
			c.deaf.Store(true)
			err := c.ca.LoadAlternate(context.Background(), altTo)
			wantErr(t, "no answer", err, syscall.ETIMEDOUT)
			c.deaf.Store(false)
			check(t, c.ca.LoadAlternate(context.Background(), altTo)) // the connection stays
		})
	})
	t.Run("context", func(t *testing.T) {
		c := newDoublePath(t, false).dial(roce.DialConfig{}, taken)
		c.deaf.Store(true)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := c.ca.LoadAlternate(ctx, altTo); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// slowResolver resolves one address only when the test permits it.
type slowResolver struct {
	roce.DerivedMACs
	slow         netip.Addr
	asked, found chan struct{}
}

func (r *slowResolver) Resolve(ctx context.Context, src, dst netip.Addr) (roce.Neighbour, error) {
	if dst == r.slow {
		r.asked <- struct{}{}
		<-r.found
	}
	return r.DerivedMACs.Resolve(ctx, src, dst)
}

// TestAlternateOfEndedConn: a connection that ends while its alternate path is being resolved keeps no path.
func TestAlternateOfEndedConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		second := netip.MustParseAddr("10.0.0.9")
		r := &slowResolver{slow: second, asked: make(chan struct{}, 1), found: make(chan struct{})}
		sc, cc := n.config("10.0.0.1"), n.config("10.0.0.2")
		sc.Resolver = r
		cc.Addrs = append(cc.Addrs, second)
		c := &couple{t: t, net: n, server: n.open(sc), client: n.open(cc)}
		c.listener = ok(c.server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{OnAlternate: roce.AnyAlternate})
		go client.LoadAlternate(t.Context(), roce.AlternatePath{Local: second, Remote: c.server.GIDs()[0].Addr()})
		<-r.asked
		check(t, client.Disconnect(within(t, time.Minute)))
		<-server.Done()
		time.Sleep(5 * time.Second) // the connection is forgotten
		close(r.found)
		synctest.Wait()
		if manager, ends, paths := remembered(c.server); manager+ends+paths != 0 {
			t.Errorf("%d connections, %d ends and %d paths are left", manager, ends, paths)
		}
	})
}

// lingeringResolver looks for one address until its context ends, and returns a second later.
type lingeringResolver struct {
	roce.DerivedMACs
	slow  netip.Addr
	asked chan struct{}
	ended atomic.Bool
}

func (r *lingeringResolver) Resolve(ctx context.Context, src, dst netip.Addr) (roce.Neighbour, error) {
	if dst == r.slow {
		close(r.asked)
		<-ctx.Done()
		time.Sleep(time.Second)
		r.ended.Store(true)
		return roce.Neighbour{}, ctx.Err()
	}
	return r.DerivedMACs.Resolve(ctx, src, dst)
}

// TestAlternateEndsWithDevice: Device.Close ends the resolution of a path that a peer has proposed, and returns when no
// goroutine of the device is left.
func TestAlternateEndsWithDevice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		r := &lingeringResolver{slow: netip.MustParseAddr("10.0.0.9"), asked: make(chan struct{})}
		sc, cc := n.config("10.0.0.1"), n.config("10.0.0.2")
		sc.Resolver = r
		cc.Addrs = append(cc.Addrs, r.slow)
		c := &couple{t: t, net: n, server: n.open(sc), client: n.open(cc)}
		c.listener = ok(c.server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		_, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{OnAlternate: roce.AnyAlternate})
		go client.LoadAlternate(t.Context(), roce.AlternatePath{Local: r.slow, Remote: c.server.GIDs()[0].Addr()})
		<-r.asked
		began := time.Now()
		check(t, c.server.Close())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("closed after %v", took)
		}
		if !r.ended.Load() {
			t.Error("a goroutine is left")
		}
	})
}

// TestAlternatesAnswered: a device resolves at most 16 proposed paths at a time, of all peers together, and refuses the
// others. When it has answered there is room again.
func TestAlternatesAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const room = 16
		n := newNetwork(t)
		second := netip.MustParseAddr("10.0.0.9")
		cc := n.config("10.0.0.2")
		cc.Addrs = append(cc.Addrs, second)
		c := &couple{t: t, net: n, server: n.open(n.config("10.0.0.1")), client: n.open(cc)}
		c.listener = ok(c.server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		var asked atomic.Int32
		found := make(chan struct{})
		accept := roce.AcceptConfig{OnAlternate: func(cm.Path) cm.APStatus {
			asked.Add(1)
			<-found
			return cm.APLoaded
		}}
		alternate := roce.AlternatePath{Local: second, Remote: c.server.GIDs()[0].Addr()}
		results := make(chan error, room)
		var last *roce.Conn
		for i := range room + 1 {
			if _, last = c.connect(roce.DialConfig{}, accept); i < room {
				go func(x *roce.Conn) { results <- x.LoadAlternate(t.Context(), alternate) }(last)
			}
		}
		synctest.Wait()
		if n := asked.Load(); n != room {
			t.Fatalf("%d paths are looked for, want %d", n, room)
		}
		var refused *roce.AlternateError
		if err := last.LoadAlternate(within(t, time.Minute), alternate); !errors.As(err, &refused) || refused.Status != cm.APUnsupported {
			t.Errorf("one path too many: %v", err)
		}
		close(found)
		for range room {
			check(t, <-results)
		}
		check(t, last.LoadAlternate(within(t, time.Minute), alternate))
		if n := asked.Load(); n != room+1 {
			t.Errorf("%d paths were looked for, want %d", n, room+1)
		}
	})
}
