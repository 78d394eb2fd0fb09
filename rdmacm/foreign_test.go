package rdmacm_test

import (
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/rdmacm"
)

// Tests for programs that have their own queue pairs and their own event loop, like librdmacm.so.1 of
// cverbs.

// TestEventLoop: the sum of the numbers that NotifyFunc reports is the number of pending events, also
// when events are dropped or move to another channel.
func TestEventLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newNetwork(t).host("10.0.0.1")
		a, b := h.NewChannel(), h.NewChannel()
		var atA, atB atomic.Int64
		a.NotifyFunc(func(n int) { atA.Add(int64(n)) })
		b.NotifyFunc(func(n int) { atB.Add(int64(n)) })
		want := func(when string, wantA, wantB int64) {
			t.Helper()
			if got, other := atA.Load(), atB.Load(); got != wantA || other != wantB {
				t.Errorf("%s: %d and %d events, want %d and %d", when, got, other, wantA, wantB)
			}
		}
		if ev, ok := a.TryNext(); ok {
			t.Errorf("event %v of an empty channel", ev)
		}
		resolve := func() *rdmacm.ID {
			id := ok(h.CreateID(a, rdmacm.TCP, nil))(t)
			check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, at("10.0.0.1:7471"), 0))
			synctest.Wait()
			return id
		}
		first := resolve()
		want("resolved", 1, 0)
		second := resolve()
		want("both resolved", 2, 0)
		check(t, first.Destroy())
		want("destroyed", 1, 0)
		check(t, second.Migrate(b))
		want("migrated", 0, 1)
		if ev, ok := b.TryNext(); !ok || ev.ID != second || ev.Type != rdmacm.AddrResolved {
			t.Errorf("event %v, %v", ev, ok)
		}
		b.NotifyFunc(nil)
		check(t, second.ResolveRoute(t.Context(), 0))
		want("after NotifyFunc(nil)", 0, 1)
		check(t, b.Close())
		if _, ok := b.TryNext(); ok {
			t.Error("event of a closed channel")
		}
	})
}

// TestRejectFor: the peer gets the reason and the private data.
func TestRejectFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := sh.NewChannel(), ch.NewChannel()
		listener(t, sh, sc, rdmacm.TCP, "10.0.0.1:7471")
		id := resolved(t, ch, cc, rdmacm.TCP, "10.0.0.1:7471")
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: 77}))
		check(t, next(t, sc, rdmacm.ConnectRequest).ID.RejectFor(cm.RejectVendorOption, []byte("no")))
		if ev := next(t, cc, rdmacm.Rejected); ev.Status != int(cm.RejectVendorOption) || string(ev.Conn.PrivateData[:2]) != "no" {
			t.Errorf("status %d, private data %q", ev.Status, ev.Conn.PrivateData)
		}
	})
}

// TestForeignTypes: IDs of port space IB connect queue pairs of the program, of types that CreateQP does
// not know or does not make.
func TestForeignTypes(t *testing.T) {
	for name, c := range map[string]struct{ client, server roce.QPType }{"UC": {roce.UC, roce.UC}, "XRC": {roce.XRCSend, roce.XRCRecv}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
				sc, cc := sh.NewChannel(), ch.NewChannel()
				l := ok(sh.CreateID(sc, rdmacm.IB, nil))(t)
				check(t, l.SetQPType(c.server))
				check(t, l.Bind(at("10.0.0.1:7471")))
				check(t, l.Listen(0))
				id := resolved(t, ch, cc, rdmacm.IB, "10.0.0.1:7471")
				wantErr(t, "UD", id.SetQPType(roce.UD), syscall.EINVAL)
				check(t, id.SetQPType(c.client))
				check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: 77}))
				wantErr(t, "type while connecting", id.SetQPType(roce.RC), syscall.EINVAL)
				request := next(t, sc, rdmacm.ConnectRequest)
				if got := request.ID.QPType(); got != c.server || request.Conn.QPN != 77 {
					t.Errorf("request of %v, queue pair %v", got, request.Conn.QPN)
				}
				if attr, mask, err := request.ID.InitQPAttr(t.Context(), qp.RTR); err != nil || attr.DestQPN != 77 || mask&^qp.AttrFlushICRCQuirk != qp.MaskRTR(c.server)&^qp.AttrFlushICRCQuirk {
					t.Errorf("to RTR: peer %v, mask %v, %v", attr.DestQPN, mask, err)
				}
				check(t, request.ID.Accept(t.Context(), rdmacm.ConnParam{QPN: 78}))
				next(t, cc, rdmacm.ConnectResponse)
				for _, state := range []qp.State{qp.RTR, qp.RTS} {
					attr, _, err := id.InitQPAttr(t.Context(), state)
					if check(t, err); state == qp.RTR && attr.DestQPN != 78 {
						t.Errorf("peer's queue pair %v", attr.DestQPN)
					}
				}
				check(t, id.Establish(t.Context()))
				next(t, sc, rdmacm.Established)
				tcp := ok(ch.CreateID(cc, rdmacm.TCP, nil))(t)
				wantErr(t, "type in TCP", tcp.SetQPType(c.client), syscall.EINVAL)
			})
		})
	}
}
