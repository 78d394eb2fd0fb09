package scenario_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/qp"
)

func TestOpenErrors(t *testing.T) {
	n := newNetwork(t)
	addr := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	a, b := n.port("10.0.0.1"), n.port("10.0.0.2")
	for name, c := range map[string]roce.Config{
		"no ports":      {Addrs: addr},
		"no addresses":  {Ports: []link.Port{a}},
		"zero address":  {Ports: []link.Port{a}, Addrs: []netip.Addr{{}}},
		"unspecified":   {Ports: []link.Port{a}, Addrs: []netip.Addr{netip.IPv4Unspecified()}},
		"multicast":     {Ports: []link.Port{a}, Addrs: []netip.Addr{netip.MustParseAddr("224.0.0.1")}},
		"another's MAC": {Ports: []link.Port{a, b}, Addrs: addr},

		"negative Spin":          {Ports: []link.Port{a}, Addrs: addr, Options: roce.Options{Spin: -1}},
		"SleepAtOnce and Spin":   {Ports: []link.Port{a}, Addrs: addr, Options: roce.Options{SleepAtOnce: true, Spin: 1}},
		"negative CloseTimeout":  {Ports: []link.Port{a}, Addrs: addr, Options: roce.Options{Limits: roce.ConnLimits{CloseTimeout: -1}}},
		"negative MaxConns":      {Ports: []link.Port{a}, Addrs: addr, Options: roce.Options{Limits: roce.ConnLimits{MaxConns: -1}}},
		"a VLAN that is too big": {Ports: []link.Port{a}, Addrs: addr, Options: roce.Options{VLAN: 4095}},
	} {
		_, err := roce.Open(c)
		wantErr(t, name, err, syscall.EINVAL)
	}
	wantErr(t, "the ports after a failed Open", a.Close(), link.ErrClosed)
	wantErr(t, "the ports after a failed Open", b.Close(), link.ErrClosed)
}

// TestInUse: an object in use cannot be closed, and a closed one cannot be used.
func TestInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newNetwork(t).device("10.0.0.1")
		pd, sends, recvs := d.AllocPD(), ok(d.CreateCQ(10))(t), ok(d.CreateCQ(10))(t)
		mr := ok(pd.RegMR(make([]byte, 10), roce.LocalWrite))(t)
		qp := ok(pd.CreateQP(roce.QPConfig{SendCQ: sends, RecvCQ: recvs}))(t)

		wantErr(t, "closing a PD with an MR and a QP", pd.Close(), syscall.EBUSY)
		wantErr(t, "closing a send CQ in use", sends.Close(), syscall.EBUSY)
		var e *roce.Error
		if err := recvs.Close(); sends.Num() != 1 || recvs.Num() != 2 || !errors.As(err, &e) || e.Object != "cq 2" {
			t.Errorf("queues %d and %d, error %v of %q", sends.Num(), recvs.Num(), err, e.Object)
		}
		wantErr(t, "closing a receive CQ in use", recvs.Close(), syscall.EBUSY)
		check(t, qp.Close())
		wantErr(t, "closing a PD with an MR", pd.Close(), syscall.EBUSY)
		check(t, mr.Close())
		for name, o := range map[string]interface{ Close() error }{"PD": pd, "send CQ": sends, "receive CQ": recvs} {
			if err := o.Close(); err != nil {
				t.Errorf("closing an unused %s: %v", name, err)
			}
		}
		for name, o := range map[string]interface{ Close() error }{"PD": pd, "CQ": sends, "QP": qp, "MR": mr} {
			wantErr(t, "closing a "+name+" twice", o.Close(), net.ErrClosed)
		}

		_, err := pd.RegMR(make([]byte, 10), 0)
		wantErr(t, "RegMR in a closed PD", err, net.ErrClosed)
		cq2 := ok(d.CreateCQ(1))(t)
		_, err = pd.CreateQP(roce.QPConfig{SendCQ: cq2})
		wantErr(t, "CreateQP in a closed PD", err, net.ErrClosed)
		_, err = d.AllocPD().CreateQP(roce.QPConfig{SendCQ: cq2, RecvCQ: recvs})
		wantErr(t, "CreateQP with a closed CQ", err, net.ErrClosed)
		check(t, cq2.Close()) // the failures left no user behind
		_, err = recvs.Next(context.Background())
		wantErr(t, "Next of a closed CQ", err, net.ErrClosed)
		wantErr(t, "PostSend to a closed QP", qp.PostSend(&roce.SendWR{Opcode: roce.Send}), net.ErrClosed)
		wantErr(t, "PostRecv to a closed QP", qp.PostRecv(&roce.RecvWR{}), net.ErrClosed)
		wantErr(t, "Init of a closed QP", qp.Init(0, 0), net.ErrClosed)
	})
}

func TestCreateErrors(t *testing.T) {
	n := newNetwork(t)
	d, other := n.device("10.0.0.1"), n.device("10.0.0.2")
	pd, own, foreign := d.AllocPD(), ok(d.CreateCQ(10))(t), ok(other.CreateCQ(10))(t)
	for name, c := range map[string]roce.QPConfig{
		"no CQ":              {},
		"foreign send CQ":    {SendCQ: foreign},
		"foreign receive CQ": {SendCQ: own, RecvCQ: foreign},
		"only a receive CQ":  {RecvCQ: own},
		"too many sends":     {SendCQ: own, Caps: roce.Caps{MaxSendWR: 1 << 20}},
		"too many elements":  {SendCQ: own, Caps: roce.Caps{MaxSendSGE: 1000}},
		"too much inline":    {SendCQ: own, Caps: roce.Caps{MaxInlineData: 1 << 20}},
		"negative":           {SendCQ: own, Caps: roce.Caps{MaxRecvWR: -1}},
	} {
		_, err := pd.CreateQP(c)
		wantErr(t, name, err, syscall.EINVAL)
	}
	_, err := pd.CreateQP(roce.QPConfig{SendCQ: own, Type: 99})
	wantErr(t, "unknown service type", err, syscall.EOPNOTSUPP)
	for _, size := range []int{0, -1, 1 << 30} {
		_, err := d.CreateCQ(size)
		wantErr(t, "size of a CQ", err, syscall.EINVAL)
	}
	_, err = d.CreateCQWith(roce.CQConfig{Entries: 10, Shard: 1})
	wantErr(t, "no such shard", err, syscall.EINVAL)
	_, err = pd.RegMR(make([]byte, 10), roce.RemoteWrite)
	wantErr(t, "RemoteWrite without LocalWrite", err, syscall.EINVAL)
	// All these failures left no user behind.
	check(t, own.Close())
	check(t, pd.Close())

	q := ok(d.AllocPD().CreateQP(roce.QPConfig{SendCQ: ok(d.CreateCQ(1))(t)}))(t)
	check(t, q.Init(0, 0))
	to := roce.Peer{AHAttr: roce.AHAttr{DGID: other.GIDs()[0]}, QPN: 5, MTU: 6}
	wantErr(t, "MTU beyond the port's", q.Connect(context.Background(), to, 0), syscall.EINVAL)
	to.SGIDIndex = 1
	wantErr(t, "GID index beyond the table", q.Connect(context.Background(), to, 0), errno.ENODATA)
	to.SGIDIndex, to.DGID = 0, roce.GID{0: 0xFD}
	wantErr(t, "IPv6 from an IPv4 address", q.Connect(context.Background(), to, 0), syscall.EINVAL)
}

// TestDeviceClose closes a device with all objects open and a goroutine in each waiting call.
func TestDeviceClose(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			c := n.config("10.0.0.1")
			c.Polled = polled
			d := n.open(c)
			p := newPeer(t, d, 100)
			p.recv(0, 100)
			idle := ok(d.CreateCQ(1))(t)
			l := ok(d.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
			ctx := context.Background()

			waits := map[string]func() error{
				"CQ.Wait":         func() error { return idle.Wait(ctx) },
				"CQ.Next":         func() error { _, err := idle.Next(ctx); return err },
				"NextEvent":       func() error { _, err := d.NextEvent(ctx); return err },
				"Listener.Accept": func() error { _, err := l.Accept(ctx); return err },
				"Dial":            func() error { _, err := d.Dial(ctx, "10.0.0.9:1", roce.DialConfig{}); return err },
			}
			type result struct {
				name string
				err  error
			}
			results := make(chan result)
			for name, f := range waits {
				go func() { results <- result{name, f()} }()
			}
			time.Sleep(time.Second)
			check(t, d.Close())
			for range waits {
				r := <-results
				wantErr(t, r.name, r.err, net.ErrClosed)
			}

			wantErr(t, "Close again", d.Close(), net.ErrClosed)
			p.waitFor(cq.WRFlushErr) // what was flushed can still be polled
			_, err := p.cq.Next(ctx)
			wantErr(t, "Next when nothing is left", err, net.ErrClosed)
			if polled != d.Progress() && d.Progress() {
				t.Errorf("a closed device makes progress")
			}
			_, err = d.CreateCQ(1)
			wantErr(t, "CreateCQ", err, net.ErrClosed)
			_, err = p.pd.RegMR(make([]byte, 1), 0)
			wantErr(t, "RegMR", err, net.ErrClosed)
			_, err = p.pd.CreateQP(roce.QPConfig{SendCQ: p.cq})
			wantErr(t, "CreateQP", err, net.ErrClosed)
			_, err = d.Listen(ctx, ":1", roce.ListenConfig{})
			wantErr(t, "Listen", err, net.ErrClosed)
			_, err = d.Dial(ctx, "10.0.0.2:1", roce.DialConfig{})
			wantErr(t, "Dial", err, net.ErrClosed)
			wantErr(t, "PostRecv", p.qp.PostRecv(&roce.RecvWR{}), net.ErrClosed)
			wantErr(t, "PostSend", p.qp.PostSend(&roce.SendWR{Opcode: roce.Send}), net.ErrClosed)
			wantErr(t, "Modify", p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState), net.ErrClosed)
			d.Counters()
			d.Query()
			// Objects of a closed device close as usual.
			for _, o := range []interface{ Close() error }{l, p.qp, p.mr, p.cq, idle, p.pd} {
				check(t, o.Close())
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		two := func(v4, v6 string) *roce.Device {
			c := n.config(v4)
			c.Addrs = append(c.Addrs, netip.MustParseAddr(v6))
			macs := roce.Neighbours{}
			for i, a := range []string{"10.0.0.1", "10.0.0.2"} {
				macs[netip.MustParseAddr(a)] = roce.DerivedMAC(netip.MustParseAddr(a))
				macs[netip.MustParseAddr([]string{"fd00::1", "fd00::2"}[i])] = roce.DerivedMAC(netip.MustParseAddr(a))
			}
			c.Resolver = macs
			return n.open(c)
		}
		a, b := two("10.0.0.1", "fd00::1"), two("10.0.0.2", "fd00::2")
		ctx := within(t, time.Minute)
		for _, addr := range []string{"10.0.0.1", "fd00::1"} {
			l := ok(a.Listen(ctx, netip.AddrPortFrom(netip.MustParseAddr(addr), 7471).String(), roce.ListenConfig{}))(t)
			go func() {
				if r, err := l.Accept(ctx); err == nil {
					r.Accept(ctx, roce.AcceptConfig{})
				}
			}()
			c := ok(b.Dial(ctx, l.Addr().String(), roce.DialConfig{}))(t)
			if got := c.RemoteAddr(); got != l.Addr() {
				t.Errorf("remote address %v, want %v", got, l.Addr())
			}
			if got := c.LocalAddr().Addr().Is4(); got != l.Addr().Addr().Is4() {
				t.Errorf("connected to %v from %v", l.Addr(), c.LocalAddr())
			}
			check(t, c.Disconnect(ctx))
			check(t, c.Close())
			check(t, l.Close())
		}
		_, err := b.Dial(ctx, "10.0.0.7:1", roce.DialConfig{})
		wantErr(t, "a neighbour that is not in the table", err, syscall.EHOSTUNREACH)
		_, err = b.Dial(ctx, "[fe80::1]:1", roce.DialConfig{})
		wantErr(t, "link-local from a device without", err, syscall.ENETUNREACH)
		_, err = b.Dial(ctx, "10.0.0.1:1", roce.DialConfig{Local: netip.MustParseAddr("10.0.0.5")})
		wantErr(t, "foreign local address", err, syscall.EADDRNOTAVAIL)
		_, err = b.Dial(ctx, "10.0.0.1:1", roce.DialConfig{Local: netip.MustParseAddr("fd00::2")})
		wantErr(t, "IPv6 to IPv4", err, syscall.EINVAL)
		_, err = b.Dial(ctx, "10.0.0.1", roce.DialConfig{})
		wantErr(t, "no port", err, syscall.EINVAL)
	})
}
