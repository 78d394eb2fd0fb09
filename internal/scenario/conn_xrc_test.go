package scenario_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/qp"
)

// TestConnectXRC connects an XRC initiator to a target by the connection manager.
// The target's side sends the number of its shared receive queue in private data.
func TestConnectXRC(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server, client := n.device("10.0.0.1"), n.device("10.0.0.2")
		ctx := within(t, time.Minute)
		service := cm.Service(cm.PortSpaceIB, 7471)

		domain := ok(server.OpenXRCD(roce.XRCDConfig{}))(t)
		pd := server.AllocPD()
		queue := ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 7, XRCD: domain, CQ: ok(server.CreateCQ(15))(t)}))(t)
		memory := ok(pd.RegMR(make([]byte, 64), roce.LocalWrite))(t)
		check(t, queue.PostRecv(&roce.RecvWR{SG: []roce.SGE{memory.SGE(0, 64)}}))
		target := ok(domain.CreateQP(roce.QPConfig{}))(t)
		check(t, target.Init(roce.DefaultQPAccess, 0))
		events := make(chan cm.Event, 8)
		requests := make(chan *gsi.Conn, 1)
		l := ok(inside.Agent(server).Listen(cm.ListenParam{ServiceID: service, XRC: true}, gsi.ListenHandler{Conn: func(c *gsi.Conn, _ cm.Event) {
			c.Handle(gsi.Handler{Event: func(ev cm.Event) { events <- ev }})
			requests <- c
		}}))(t)
		defer l.Close()

		initiator := ok(client.AllocPD().CreateQP(roce.QPConfig{Type: qp.XRCSend, SendCQ: ok(client.CreateCQ(15))(t)}))(t)
		check(t, initiator.Init(0, 0))
		answers := make(chan cm.Event, 8)
		cc := inside.Agent(client).NewConn(gsi.Handler{Event: func(ev cm.Event) { answers <- ev }})
		cc.SetQP(inside.QP(initiator))
		to := netip.MustParseAddrPort("10.0.0.1:7471")
		route := ok(inside.Agent(client).Route(ctx, netip.Addr{}, to.Addr(), 0))(t)
		check(t, cc.Connect(route, cm.ConnectParam{ServiceID: service, Dst: to, QPN: initiator.Num(), Transport: cm.Extended, InitiatorDepth: 4,
			RetryCount: 7, RNRRetryCount: 7}))

		sc := <-requests
		if o := sc.Offer(); o.Transport != cm.Extended || o.QPN != initiator.Num() || o.ResponderResources != 4 {
			t.Errorf("offered %+v", o)
		}
		ap := cm.AcceptParam{QPN: target.Num(), ResponderResources: 4, RNRRetryCount: 7, Private: binary.BigEndian.AppendUint32(nil, uint32(queue.Num()))}
		sc.SetQP(inside.QP(target))
		check(t, sc.ConnectQP(ctx, inside.QP(target), ok(sc.AcceptAttr(ap))(t), 0, 12, false))
		check(t, sc.Accept(ap))

		answer := <-answers
		if answer.Kind != cm.ConnectResponse {
			t.Fatal(answer)
		}
		attr := ok(cc.QPAttr())(t)
		if attr.DestQPN != target.Num() || attr.MaxRdAtomic != 4 {
			t.Errorf("%+v", attr)
		}
		check(t, cc.ConnectQP(ctx, inside.QP(initiator), attr, 0, 12, false))
		check(t, cc.ReadyToUse(nil))
		if ev := <-events; ev.Kind != cm.Established {
			t.Fatal(ev)
		}
		srqn := bth.SRQN(binary.BigEndian.Uint32(answer.Private))
		check(t, initiator.PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, RemoteSRQN: srqn, Inline: []byte("hello")}))
		if wc := ok(queue.CQ().Next(context.Background()))(t); wc.Status != 0 || wc.ByteLen != 5 {
			t.Errorf("received %+v", wc)
		}
		if wc := ok(initiator.SendCQ().Next(ctx))(t); wc.Status != 0 {
			t.Errorf("sent %+v", wc)
		}
		check(t, cc.Disconnect(nil))
		if ev := <-events; ev.Kind != cm.DisconnectRequest {
			t.Fatal(ev)
		}
		check(t, sc.Disconnect(nil))
		if ev := <-answers; ev.Kind != cm.Disconnected {
			t.Fatal(ev)
		}
		synctest.Wait() // the connection manager raises an event before it changes the queue pair
		for _, q := range []*roce.QP{initiator, target} {
			if s := q.State(); s != qp.Err {
				t.Errorf("queue pair is in %v after the end", s)
			}
		}
	})
}
