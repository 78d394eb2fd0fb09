package rdmacm_test

import (
	"bytes"
	"context"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/rdmacm"
)

// TestSynchronous: a client and a server connect by CreateEP, GetRequest and the blocking calls, on
// background and on polled devices.
func TestSynchronous(t *testing.T) {
	for name, polled := range map[string]bool{"background": false, "polled": true} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			sh := hostOf(t, n.device(roce.Config{Options: roce.Options{Polled: polled}}, "10.0.0.1"))
			ch := hostOf(t, n.device(roce.Config{Options: roce.Options{Polled: polled}}, "10.0.0.2"))
			ctx := within(t)
			config := smallQP()
			info := ok(sh.GetAddrInfo(ctx, "10.0.0.1", "7471", &rdmacm.AddrInfo{Flags: rdmacm.Passive}))(t)[0]
			l := ok(sh.CreateEP(ctx, info, nil, &config))(t)
			check(t, l.Listen(1))
			served := make(chan error, 1)
			go func() { served <- serve(ctx, l) }()
			info = ok(ch.GetAddrInfo(ctx, "10.0.0.1", "7471", nil))(t)[0]
			info.Connect = []byte("before ")
			id := ok(ch.CreateEP(ctx, info, nil, &config))(t)
			buf := make([]byte, 8)
			m := ok(id.RegMsgs(buf))(t)
			check(t, id.PostRecv(1, m.SGE(0, 8)))
			check(t, id.Connect(ctx, rdmacm.ConnParam{PrivateData: []byte("hello")}))
			if ev := id.Event(); ev.Type != rdmacm.Established || !bytes.HasPrefix(ev.Conn.PrivateData, []byte("before hello!")) {
				t.Errorf("%v, private data %q", ev, ev.Conn.PrivateData)
			}
			if wc := ok(id.RecvComp(ctx))(t); wc.Status != roce.StatusSuccess || string(buf) != "welcome\x00" {
				t.Errorf("received %q, %v", buf, wc.Status)
			}
			check(t, id.Disconnect(ctx))
			check(t, id.Disconnect(ctx)) // the connection has ended: does nothing
			check(t, <-served)
			check(t, m.Close())
			check(t, id.DestroyEP())
			check(t, l.DestroyEP())
		})
	}
}

// serve accepts one connection, echoes its private data, and sends a message.
func serve(ctx context.Context, l *rdmacm.ID) error {
	id, err := l.GetRequest(ctx)
	if err != nil {
		return err
	}
	private := bytes.TrimRight(id.Event().Conn.PrivateData, "\x00")
	if err := id.Accept(ctx, rdmacm.ConnParam{PrivateData: append(private, '!')}); err != nil {
		return err
	}
	m, err := id.RegMsgs([]byte("welcome\x00"))
	if err != nil {
		return err
	}
	if err := id.PostSend(1, roce.Signaled, m.SGE(0, 8)); err != nil {
		return err
	}
	if _, err := id.SendComp(ctx); err != nil {
		return err
	}
	if err := id.Disconnect(ctx); err != nil {
		return err
	}
	if err := m.Close(); err != nil {
		return err
	}
	return id.DestroyEP()
}

// TestSynchronousRefusal: the error of Connect is the peer's refusal.
func TestSynchronousRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		n.host("10.0.0.1")
		h := n.host("10.0.0.2")
		for _, ps := range []rdmacm.PortSpace{rdmacm.TCP, rdmacm.UDP} {
			id := ok(h.CreateEP(t.Context(), rdmacm.AddrInfo{PortSpace: ps, Dst: at("10.0.0.1:1")}, nil, new(roce.QPConfig)))(t)
			wantErr(t, ps.String(), id.Connect(within(t), rdmacm.ConnParam{}), syscall.ECONNREFUSED)
			check(t, id.DestroyEP())
		}
		_, err := h.CreateEP(t.Context(), rdmacm.AddrInfo{PortSpace: rdmacm.TCP, QPType: roce.UD, Dst: at("10.0.0.1:1")}, nil, nil)
		wantErr(t, "UD in TCP", err, syscall.EINVAL)
	})
}

// TestDatagrams: the client looks up the queue pair of a UD service, and sends with the address,
// number and Q_Key of the answer.
func TestDatagrams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := connected(t, rdmacm.UDP, smallQP(), rdmacm.ConnParam{}, rdmacm.ConnParam{})
		ctx := within(t)
		to := p.reply.UD
		if to.QPN != p.server.QP().Num() || to.QKey != rdmacm.UDPQKey {
			t.Errorf("told %+v, the server has %v", to, p.server.QP().Num())
		}
		buf := make([]byte, roce.GRHLen+8)
		m := ok(p.server.RegMsgs(buf))(t)
		check(t, p.server.PostRecv(1, m.SGE(0, len(buf))))
		ah := ok(p.client.Device().CreateAH(ctx, to.AHAttr))(t)
		ms := ok(p.client.RegMsgs([]byte("datagram")))(t)
		check(t, p.client.PostUDSend(2, roce.Signaled, ah, to.QPN, ms.SGE(0, 8)))
		if wc := ok(p.server.RecvComp(ctx))(t); wc.Status != roce.StatusSuccess || string(buf[roce.GRHLen:]) != "datagram" {
			t.Errorf("received %q with %v", buf[roce.GRHLen:], wc.Status)
		}
		check(t, m.Close())
		check(t, ms.Close())
		wantErr(t, "disconnect", p.client.Disconnect(ctx), syscall.EINVAL)
		wantErr(t, "accept again", p.server.Accept(ctx, rdmacm.ConnParam{}), syscall.EINVAL)
	})
}

// TestForeignQKey: if a service has another Q_Key than UDPQKey, an ID with its own queue pair gets
// AddrError; an ID without one gets the Q_Key.
func TestForeignQKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device(roce.Config{}, "10.0.0.1")
		h := n.host("10.0.0.2")
		l := ok(d.ListenUD(t.Context(), ":7471", roce.ListenConfig{}))(t)
		queue := ok(d.CreateCQ(8))(t)
		q := ok(d.AllocPD().CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: queue}))(t)
		check(t, q.Init(0, 77))
		check(t, q.Ready(1))
		c := h.NewChannel()
		for _, own := range []bool{true, false} {
			id := resolved(t, h, c, rdmacm.UDP, "10.0.0.1:7471")
			if own {
				check(t, id.CreateQP(nil, smallQP()))
			}
			check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
			check(t, ok(l.Accept(t.Context()))(t).Accept(q, nil))
			if own {
				if ev := next(t, c, rdmacm.AddrError); ev.Status != -22 {
					t.Errorf("%v", ev)
				}
			} else if ev := next(t, c, rdmacm.Established); ev.UD.QKey != 77 {
				t.Errorf("Q_Key %v", ev.UD.QKey)
			}
		}
	})
}

// membership counts the joins of each group.
type membership map[netip.Addr]int

func (m membership) Join(g netip.Addr) (func() error, error) {
	m[g]++
	return func() error { m[g]--; return nil }, nil
}

// TestMulticast: joining attaches the queue pair and makes the host join the group; leaving undoes
// both. Destroying the ID also leaves the group.
func TestMulticast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		groups := membership{}
		h := hostOf(t, n.device(roce.Config{Options: roce.Options{Membership: groups}}, "10.0.0.1", "fd00::1"))
		sender := n.host("10.0.0.2", "fd00::2")
		ctx := within(t)
		for _, g := range []string{"239.1.2.3", "ff0e::123"} {
			group := netip.MustParseAddr(g)
			local, from := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
			if group.Is6() {
				local, from = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
			}
			c := h.NewChannel()
			id := ok(h.CreateID(c, rdmacm.UDP, nil))(t)
			wantErr(t, "unbound", id.JoinMulticast(ctx, group, nil), syscall.EINVAL)
			check(t, id.Bind(netip.AddrPortFrom(local, 0)))
			check(t, id.CreateQP(nil, smallQP()))
			wantErr(t, "no group", id.JoinMulticast(ctx, local, nil), syscall.EINVAL)
			wantErr(t, "not joined", id.LeaveMulticast(group), syscall.EADDRNOTAVAIL)
			check(t, id.JoinMulticast(ctx, group, &rdmacm.JoinConfig{Context: 42}))
			ev := next(t, c, rdmacm.MulticastJoin)
			if ev.Context != 42 || ev.UD.QPN != roce.QPNMulticast || ev.UD.QKey != rdmacm.UDPQKey || ev.UD.AHAttr.DGID.Addr() != group {
				t.Errorf("%+v %+v", ev, ev.UD)
			}
			if groups[group] != 1 {
				t.Errorf("the network has %v", groups)
			}
			buf := make([]byte, roce.GRHLen+5)
			m := ok(id.RegMsgs(buf))(t)
			check(t, id.PostRecv(1, m.SGE(0, len(buf))))

			sc := sender.NewChannel()
			sid := ok(sender.CreateID(sc, rdmacm.UDP, nil))(t)
			check(t, sid.ResolveAddr(ctx, netip.AddrPortFrom(from, 0), netip.AddrPortFrom(group, 0), 0))
			next(t, sc, rdmacm.AddrResolved)
			check(t, sid.CreateQP(nil, smallQP()))
			check(t, sid.JoinMulticast(ctx, group, &rdmacm.JoinConfig{SendOnly: true}))
			to := next(t, sc, rdmacm.MulticastJoin).UD
			ms := ok(sid.RegMsgs([]byte("hello")))(t)
			ah := ok(sid.Device().CreateAH(ctx, to.AHAttr))(t)
			check(t, sid.PostUDSend(1, roce.Signaled, ah, to.QPN, ms.SGE(0, 5)))
			if wc := ok(id.RecvComp(ctx))(t); wc.Status != roce.StatusSuccess || string(buf[roce.GRHLen:]) != "hello" {
				t.Errorf("received %q with %v", buf[roce.GRHLen:], wc.Status)
			}
			check(t, id.LeaveMulticast(group))
			if groups[group] != 0 {
				t.Errorf("the network has %v after leaving", groups)
			}
			check(t, id.JoinMulticast(ctx, group, nil))
			next(t, c, rdmacm.MulticastJoin)
			check(t, m.Close())
			check(t, ms.Close())
			check(t, id.DestroyEP())
			check(t, sid.DestroyEP())
			if groups[group] != 0 {
				t.Errorf("the network has %v after destroying", groups)
			}
		}
		tcp := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
		check(t, tcp.Bind(at("10.0.0.1:0")))
		wantErr(t, "RC", tcp.JoinMulticast(ctx, netip.MustParseAddr("239.1.2.3"), nil), syscall.EINVAL)
	})
}

// TestSRQ: the queue pair of an ID uses the shared receive queue of the ID.
func TestSRQ(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newNetwork(t).host("10.0.0.1")
		id := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
		check(t, id.Bind(at("10.0.0.1:0")))
		check(t, id.CreateSRQ(nil, roce.SRQConfig{MaxWR: 4}))
		wantErr(t, "another", id.CreateSRQ(nil, roce.SRQConfig{MaxWR: 4}), syscall.EINVAL)
		check(t, id.CreateQP(nil, smallQP()))
		if id.QP().SRQ() != id.SRQ() {
			t.Error("the queue pair does not use it")
		}
		wantErr(t, "destroy in use", id.DestroySRQ(), syscall.EBUSY)
		check(t, id.PostRecv(1))
		check(t, id.DestroyEP())
	})
}

// TestGetAddrInfo: hints, flags and errors.
func TestGetAddrInfo(t *testing.T) {
	h := newNetwork(t).host("10.0.0.1", "fd00::1")
	for _, c := range []struct {
		node, service string
		hints         *rdmacm.AddrInfo
		src, dst      string
		err           error
	}{
		{node: "10.0.0.9", service: "7471", src: "10.0.0.1:0", dst: "10.0.0.9:7471"},
		{node: "10.0.0.9", hints: &rdmacm.AddrInfo{Flags: rdmacm.NoRoute}, dst: "10.0.0.9:0"},
		{node: "fd00::9", service: "1", src: "[fd00::1]:0", dst: "[fd00::9]:1"},
		{service: "7471", hints: &rdmacm.AddrInfo{Flags: rdmacm.Passive}, src: "0.0.0.0:7471"},
		{service: "7471", hints: &rdmacm.AddrInfo{Flags: rdmacm.Passive, Family: 6}, src: "[::]:7471"},
		{node: "10.0.0.1", service: "http", hints: &rdmacm.AddrInfo{Flags: rdmacm.Passive}, src: "10.0.0.1:80"},
		{err: syscall.EINVAL},
		{node: "no.address", hints: &rdmacm.AddrInfo{Flags: rdmacm.NumericHost}, err: syscall.EINVAL},
		{node: "10.0.0.9", hints: &rdmacm.AddrInfo{Family: 6}, err: syscall.EADDRNOTAVAIL},
		{node: "10.0.0.9", service: "no such service", err: syscall.EINVAL},
	} {
		got, err := h.GetAddrInfo(t.Context(), c.node, c.service, c.hints)
		wantErr(t, c.node+" "+c.service, err, c.err)
		if err != nil {
			continue
		}
		for what, pair := range map[string][2]string{"source": {got[0].Src.String(), c.src}, "destination": {got[0].Dst.String(), c.dst}} {
			if pair[1] == "" {
				pair[1] = netip.AddrPort{}.String()
			}
			if pair[0] != pair[1] {
				t.Errorf("%q %q: %s %s, want %s", c.node, c.service, what, pair[0], pair[1])
			}
		}
		if got[0].PortSpace != rdmacm.TCP || got[0].QPType != roce.RC {
			t.Errorf("%v %v", got[0].PortSpace, got[0].QPType)
		}
	}
}
