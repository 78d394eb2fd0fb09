package rdmacm_test

import (
	"bytes"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/rdmacm"
)

// TestExchange: a connection in both modes moves data both ways and ends with
// one Disconnected at each side.
func TestExchange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := connected(t, rdmacm.TCP, smallQP(), rdmacm.ConnParam{}, rdmacm.ConnParam{})
		if p.request.ListenID != p.listener || p.server.Context != "of the listener" {
			t.Errorf("request of %p with context %v", p.request.ListenID, p.server.Context)
		}
		if l, r := p.server.LocalAddr(), p.server.PeerAddr(); l != at("10.0.0.1:7471") || r != p.client.LocalAddr() {
			t.Errorf("server's end %v -> %v, the client is %v", l, r, p.client.LocalAddr())
		}
		if p.client.DstPort() != 7471 || p.client.SrcPort() == 0 {
			t.Errorf("client's ports %d %d", p.client.SrcPort(), p.client.DstPort())
		}
		transfer(t, p.client, p.server)
		transfer(t, p.server, p.client)
		check(t, p.client.Disconnect(t.Context()))
		next(t, p.sc, rdmacm.Disconnected)
		check(t, p.server.Disconnect(t.Context()))
		next(t, p.cc, rdmacm.Disconnected)
		if s := p.client.QP().State(); s != qp.Err {
			t.Errorf("client's queue pair is in %v", s)
		}
		next(t, p.cc, rdmacm.TimewaitExit)
		next(t, p.sc, rdmacm.TimewaitExit)
		check(t, p.client.Disconnect(t.Context())) // over: nothing to do
	})
}

// transfer sends, reads and writes with the helpers of rdma_verbs.h.
func transfer(t testing.TB, from, to *rdmacm.ID) {
	t.Helper()
	ctx := within(t)
	src, dst := []byte("over the connection"), make([]byte, 19)
	ms, md := ok(from.RegMsgs(src))(t), ok(to.RegMsgs(dst))(t)
	check(t, to.PostRecv(7, md.SGE(0, 19)))
	check(t, from.PostSend(8, roce.Signaled, ms.SGE(0, 19)))
	if wc := ok(to.RecvComp(ctx))(t); wc.ID != 7 || wc.Status != cq.Success || !bytes.Equal(src, dst) {
		t.Errorf("received %q, completion %+v", dst, wc)
	}
	if wc := ok(from.SendComp(ctx))(t); wc.ID != 8 || wc.Status != cq.Success {
		t.Errorf("sent with %+v", wc)
	}
	target := make([]byte, 19)
	mw := ok(to.RegWrite(target))(t)
	check(t, from.PostWrite(9, roce.Signaled, mw.Addr(), mw.RKey(), ms.SGE(0, 19)))
	if wc := ok(from.SendComp(ctx))(t); wc.Status != cq.Success {
		t.Errorf("wrote with %+v", wc)
	}
	check(t, mw.Close())
	mrd := ok(to.RegRead([]byte("the peer's contents")))(t)
	check(t, from.PostRead(10, roce.Signaled, mrd.Addr(), mrd.RKey(), ms.SGE(0, 19)))
	if wc := ok(from.SendComp(ctx))(t); wc.Status != cq.Success || string(src) != "the peer's contents" {
		t.Errorf("read %q with %+v", src, wc)
	}
	for _, m := range []*roce.MR{ms, md, mrd} {
		check(t, m.Close())
	}
}

// TestPrivateData: each message carries private data up to its limit, padded with zeros. One byte
// more is an error.
func TestPrivateData(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fill := func(n int) []byte { return bytes.Repeat([]byte{0xA5}, n) }
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := sh.NewChannel(), ch.NewChannel()
		for _, c := range []struct {
			ps                 rdmacm.PortSpace
			ask, grant, refuse int
		}{{rdmacm.TCP, 56, 196, 148}, {rdmacm.IB, 56, 196, 148}, {rdmacm.UDP, 180, 136, 136}} {
			l := listener(t, sh, sc, c.ps, "10.0.0.1:7471")
			for _, accept := range []bool{true, false} {
				id := resolved(t, ch, cc, c.ps, "10.0.0.1:7471")
				check(t, id.CreateQP(nil, smallQP()))
				wantErr(t, "connect with too much", id.Connect(t.Context(), rdmacm.ConnParam{PrivateData: fill(c.ask + 1)}), syscall.EINVAL)
				check(t, id.Connect(t.Context(), rdmacm.ConnParam{PrivateData: fill(c.ask)}))
				req := next(t, sc, rdmacm.ConnectRequest)
				if got := private(req); !bytes.Equal(got, fill(c.ask)) {
					t.Errorf("%v: asked with % x", c.ps, got)
				}
				check(t, req.ID.CreateQP(nil, smallQP()))
				if accept {
					wantErr(t, "accept with too much", req.ID.Accept(t.Context(), rdmacm.ConnParam{PrivateData: fill(c.grant + 1)}), syscall.EINVAL)
					check(t, req.ID.Accept(t.Context(), rdmacm.ConnParam{PrivateData: fill(c.grant)}))
					if got := private(next(t, cc, rdmacm.Established)); !bytes.Equal(got, fill(c.grant)) {
						t.Errorf("%v: accepted with % x", c.ps, got)
					}
					if c.ps != rdmacm.UDP {
						next(t, sc, rdmacm.Established)
					}
				} else {
					wantErr(t, "reject with too much", req.ID.Reject(fill(c.refuse+1)), syscall.EINVAL)
					check(t, req.ID.Reject(fill(c.refuse)))
					checkRefusal(t, c.ps, ok(cc.Next(within(t)))(t), fill(c.refuse))
				}
				check(t, req.ID.DestroyEP())
				check(t, id.DestroyEP())
				time.Sleep(time.Minute) // in the bubble: timewait ends
			}
			check(t, l.Destroy())
		}
	})
}

func private(ev *rdmacm.Event) []byte {
	if ev.UD != nil {
		return ev.UD.PrivateData
	}
	return ev.Conn.PrivateData
}

func checkRefusal(t *testing.T, ps rdmacm.PortSpace, ev *rdmacm.Event, want []byte) {
	t.Helper()
	wantErr(t, "refusal", ev.Err, syscall.ECONNREFUSED)
	typ, status := rdmacm.Rejected, int(cm.RejectConsumer)
	if ps == rdmacm.UDP {
		typ, status = rdmacm.Unreachable, int(cm.SIDRReject)
	}
	if ev.Type != typ || ev.Status != status || !bytes.Equal(private(ev), want) {
		t.Errorf("%v: refused by %v, % x", ps, ev, private(ev))
	}
}

// TestParams: the request has the client's parameters from the server's view, limited to what the
// device supports. The zero ConnParam of Accept grants all of them.
func TestParams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := connected(t, rdmacm.TCP, smallQP(), rdmacm.ConnParam{ResponderResources: 3, InitiatorDepth: 5, FlowControl: true, RetryCount: 6,
			RNRRetryCount: 15}, rdmacm.ConnParam{})
		got := p.request.Conn
		if got.ResponderResources != 5 || got.InitiatorDepth != 3 || !got.FlowControl || got.RetryCount != 6 || got.RNRRetryCount != 7 ||
			got.QPN != p.client.QP().Num() {
			t.Errorf("the server was offered %+v", got)
		}
		a, _ := p.server.QP().Query()
		if a.MaxDestRdAtomic != 5 || a.MaxRdAtomic != 3 || a.RNRRetry != 7 || a.RetryCnt != 6 {
			t.Errorf("the server's queue pair has %+v", a)
		}
		a, _ = p.client.QP().Query()
		if a.MaxDestRdAtomic != 3 || a.MaxRdAtomic != 5 {
			t.Errorf("the client's queue pair has %+v", a)
		}
	})
}

// TestResources: more READs than the device supports, and numbers below -1, are EINVAL.
func TestResources(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		n.host("10.0.0.1")
		h := n.host("10.0.0.2")
		id := resolved(t, h, h.NewChannel(), rdmacm.TCP, "10.0.0.1:1")
		check(t, id.CreateQP(nil, smallQP()))
		for _, p := range []rdmacm.ConnParam{{ResponderResources: 253}, {InitiatorDepth: 256}, {InitiatorDepth: -2}} {
			wantErr(t, "connect", id.Connect(t.Context(), p), syscall.EINVAL)
		}
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{InitiatorDepth: 128}))
	})
}

// TestOptions: TOS and ACK timeout reach the queue pair. Options that cannot be set are EINVAL.
func TestOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := sh.NewChannel(), ch.NewChannel()
		listener(t, sh, sc, rdmacm.TCP, "10.0.0.1:7471")
		id := ok(ch.CreateID(cc, rdmacm.TCP, nil))(t)
		check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, at("10.0.0.1:7471"), 0))
		next(t, cc, rdmacm.AddrResolved)
		check(t, id.SetTOS(0x68))
		check(t, id.SetAckTimeout(14))
		wantErr(t, "timeout 32", id.SetAckTimeout(32), syscall.EINVAL)
		check(t, id.ResolveRoute(t.Context(), time.Second))
		next(t, cc, rdmacm.RouteResolved)
		wantErr(t, "afonly", id.SetAFOnly(true), syscall.EINVAL)
		check(t, id.CreateQP(nil, smallQP()))
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
		req := next(t, sc, rdmacm.ConnectRequest)
		check(t, req.ID.CreateQP(nil, smallQP()))
		check(t, req.ID.Accept(t.Context(), rdmacm.ConnParam{}))
		next(t, cc, rdmacm.Established)
		for _, side := range []*rdmacm.ID{id, req.ID} {
			a, _ := side.QP().Query()
			if path, _ := side.QP().Path(); path.TrafficClass != 0x68 {
				t.Errorf("traffic class %#x", path.TrafficClass)
			}
			if side == id && a.Timeout != 14 {
				t.Errorf("timeout %d, want 14", a.Timeout)
			}
		}
		ud := ok(ch.CreateID(cc, rdmacm.UDP, nil))(t)
		wantErr(t, "ack timeout of UD", ud.SetAckTimeout(14), syscall.EINVAL)
	})
}

// TestNoListener: without a listener a connection is rejected with reason 8, a UD lookup with
// status 1.
func TestNoListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		n.host("10.0.0.1")
		h := n.host("10.0.0.2")
		c := h.NewChannel()
		for ps, want := range map[rdmacm.PortSpace]struct {
			typ    rdmacm.EventType
			status int
		}{rdmacm.TCP: {rdmacm.Rejected, 8}, rdmacm.UDP: {rdmacm.Unreachable, 1}} {
			id := resolved(t, h, c, ps, "10.0.0.1:7471")
			check(t, id.CreateQP(nil, smallQP()))
			check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
			ev := next(t, c, want.typ)
			if ev.Status != want.status {
				t.Errorf("%v: status %d, want %d", ps, ev.Status, want.status)
			}
			wantErr(t, "connect again", id.Connect(t.Context(), rdmacm.ConnParam{}), syscall.EINVAL)
		}
	})
}

// TestUnreachable: if the peer does not answer, the status is -110 (ETIMEDOUT), for RC and UD, and
// Connect of a synchronous ID returns ETIMEDOUT.
func TestUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		h := n.host("10.0.0.2")
		c := h.NewChannel()
		for _, ps := range []rdmacm.PortSpace{rdmacm.TCP, rdmacm.UDP} {
			id := resolved(t, h, c, ps, "10.0.0.9:7471")
			check(t, id.CreateQP(nil, smallQP()))
			check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
			if ev := next(t, c, rdmacm.Unreachable); ev.Status != -110 {
				t.Errorf("%v: status %d", ps, ev.Status)
			}
			check(t, id.DestroyEP())
		}
		ep := ok(h.CreateEP(t.Context(), rdmacm.AddrInfo{PortSpace: rdmacm.TCP, Dst: at("10.0.0.9:1")}, nil, new(roce.QPConfig)))(t)
		wantErr(t, "synchronous", ep.Connect(within(t), rdmacm.ConnParam{}), syscall.ETIMEDOUT)
		check(t, ep.DestroyEP())
	})
}

// TestOwnQP: an ID without a queue pair gets ConnectResponse. The program modifies its own queue
// pair with the attributes of InitQPAttr and calls Establish.
func TestOwnQP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := sh.NewChannel(), ch.NewChannel()
		listener(t, sh, sc, rdmacm.TCP, "10.0.0.1:7471")
		id := resolved(t, ch, cc, rdmacm.TCP, "10.0.0.1:7471")
		wantErr(t, "connect without", id.Connect(t.Context(), rdmacm.ConnParam{}), syscall.EINVAL)
		own := func(id *rdmacm.ID) *roce.QP {
			d := id.Device()
			queue := ok(d.CreateCQ(8))(t)
			return ok(d.AllocPD().CreateQP(roce.QPConfig{SendCQ: queue}))(t)
		}
		move := func(id *rdmacm.ID, q *roce.QP, states ...qp.State) {
			t.Helper()
			for _, s := range states {
				a, mask, err := id.InitQPAttr(t.Context(), s)
				check(t, err)
				check(t, q.Modify(&a, mask))
			}
		}
		cq1 := own(id)
		move(id, cq1, qp.Init)
		_, _, err := id.InitQPAttr(t.Context(), qp.RTR)
		wantErr(t, "RTR before there is a connection", err, syscall.EINVAL)
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: cq1.Num(), RetryCount: 7}))
		req := next(t, sc, rdmacm.ConnectRequest)
		sq := own(req.ID)
		move(req.ID, sq, qp.Init, qp.RTR, qp.RTS)
		check(t, req.ID.Accept(t.Context(), rdmacm.ConnParam{QPN: sq.Num()}))
		ev := next(t, cc, rdmacm.ConnectResponse)
		if ev.Conn.QPN != sq.Num() {
			t.Errorf("the response names queue pair %v, not %v", ev.Conn.QPN, sq.Num())
		}
		none(t, sc)
		move(id, cq1, qp.Init, qp.RTR, qp.RTS)
		check(t, id.Establish(t.Context()))
		next(t, sc, rdmacm.Established)
		wantErr(t, "establish again", id.Establish(t.Context()), syscall.EINVAL)
		wantErr(t, "notify", req.ID.Notify(roce.EventCommEst), syscall.EISCONN)
		wantErr(t, "notify of something else", req.ID.Notify(roce.EventPathMig), syscall.EINVAL)
		check(t, req.ID.Disconnect(t.Context()))
		next(t, cc, rdmacm.Disconnected)
	})
}

// TestNotify: Notify with COMM_EST establishes a connection whose RTU does not arrive.
func TestNotify(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := sh.NewChannel(), ch.NewChannel()
		listener(t, sh, sc, rdmacm.TCP, "10.0.0.1:7471")
		id := resolved(t, ch, cc, rdmacm.TCP, "10.0.0.1:7471")
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: 99}))
		req := next(t, sc, rdmacm.ConnectRequest)
		wantErr(t, "before accept", req.ID.Notify(roce.EventCommEst), syscall.EINVAL)
		check(t, req.ID.CreateQP(nil, smallQP()))
		check(t, req.ID.Accept(t.Context(), rdmacm.ConnParam{}))
		next(t, cc, rdmacm.ConnectResponse) // and no RTU
		check(t, req.ID.Notify(roce.EventCommEst))
		next(t, sc, rdmacm.Established)
	})
}

// TestSimultaneous: if both sides disconnect at once, each gets one Disconnected event.
func TestSimultaneous(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := connected(t, rdmacm.TCP, smallQP(), rdmacm.ConnParam{}, rdmacm.ConnParam{})
		check(t, p.client.Disconnect(t.Context()))
		check(t, p.server.Disconnect(t.Context()))
		next(t, p.cc, rdmacm.Disconnected)
		next(t, p.sc, rdmacm.Disconnected)
		next(t, p.cc, rdmacm.TimewaitExit)
		next(t, p.sc, rdmacm.TimewaitExit)
		none(t, p.cc)
		none(t, p.sc)
	})
}

// TestPeerDies: if the peer does not answer the DREQ, Disconnected arrives after the retries, with
// status -110.
func TestPeerDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := sh.NewChannel(), ch.NewChannel()
		listener(t, sh, sc, rdmacm.TCP, "10.0.0.1:7471")
		id := resolved(t, ch, cc, rdmacm.TCP, "10.0.0.1:7471")
		check(t, id.CreateQP(nil, smallQP()))
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
		req := next(t, sc, rdmacm.ConnectRequest)
		check(t, req.ID.CreateQP(nil, smallQP()))
		check(t, req.ID.Accept(t.Context(), rdmacm.ConnParam{}))
		next(t, cc, rdmacm.Established)
		next(t, sc, rdmacm.Established)
		check(t, sh.Devices()[0].SetAddrs([]netip.Addr{netip.MustParseAddr("10.0.0.77")})) // the server no longer receives packets to 10.0.0.1
		next(t, sc, rdmacm.AddrChange)
		next(t, sc, rdmacm.AddrChange)
		check(t, id.Disconnect(t.Context()))
		ev := next(t, cc, rdmacm.Disconnected)
		if ev.Status != -110 || !errors.Is(ev.Err, syscall.ETIMEDOUT) {
			t.Errorf("%v", ev)
		}
	})
}

// TestUC: IDs of port space IB connect UC queue pairs; IDs of port space TCP refuse them.
func TestUC(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := smallQP()
		c.Type = qp.UC
		p := connected(t, rdmacm.IB, c, rdmacm.ConnParam{}, rdmacm.ConnParam{})
		if got := p.server.QPType(); got != qp.UC {
			t.Errorf("the request is for %v", got)
		}
		check(t, p.server.Disconnect(t.Context()))
		next(t, p.cc, rdmacm.Disconnected)
		id := resolved(t, p.clientH, p.cc, rdmacm.TCP, "10.0.0.1:7471")
		wantErr(t, "UC in TCP", id.CreateQP(nil, c), syscall.EINVAL)
	})
}

// TestRedial: without a listener an ID repeats its request until the time of SetRedial has passed, or
// until the program destroys the ID. If a listener appears in that time, the ID connects.
func TestRedial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server, client := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := server.NewChannel(), client.NewChannel()
		connect := func(patience time.Duration) *rdmacm.ID {
			t.Helper()
			id := resolved(t, client, cc, rdmacm.TCP, "10.0.0.1:7471")
			check(t, id.SetRedial(patience))
			check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: 0x123}))
			return id
		}
		for _, patience := range []time.Duration{0, 100 * time.Millisecond} {
			began := time.Now()
			id := connect(patience)
			if ev := next(t, cc, rdmacm.Rejected); ev.Status != int(cm.RejectInvalidServiceID) || time.Since(began) < patience || time.Since(began) > patience+20*time.Millisecond {
				t.Errorf("patience of %v: status %d after %v", patience, ev.Status, time.Since(began))
			}
			check(t, id.DestroyEP())
		}

		gone := connect(time.Second)
		time.Sleep(5 * time.Millisecond) // refused, and to be repeated
		check(t, gone.DestroyEP())

		id := connect(time.Second)
		time.Sleep(50 * time.Millisecond)
		l := ok(server.CreateID(sc, rdmacm.TCP, nil))(t)
		check(t, l.Bind(at("10.0.0.1:7471")))
		check(t, l.Listen(0))
		request := next(t, sc, rdmacm.ConnectRequest).ID
		check(t, request.CreateQP(nil, smallQP()))
		check(t, request.Accept(t.Context(), rdmacm.ConnParam{}))
		if ev := next(t, cc, rdmacm.ConnectResponse); ev.ID != id {
			t.Errorf("the event is of %v", ev.ID)
		}
	})
}
