package scenario_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
)

// TestREQFlood sends valid connection requests, each from another peer, to a service with a full backlog and to one
// that does not exist, while a connection transfers data. The connection loses no packet and repeats none, memory
// and answers are bounded, and afterwards the next client connects.
func TestREQFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		config := n.config("10.0.0.1")
		config.Limits.MADRate = 10_000_000 // the connection manager is to see all of it
		server, client := n.open(config), n.device("10.0.0.2")
		evil := newAttacker(n, server)
		const backlog = 16
		l := ok(server.Listen(context.Background(), ":7471", roce.ListenConfig{Backlog: backlog}))(t)
		ctx := within(t, time.Hour)
		accepted := make(chan *roce.Conn, 2)
		accept := func() { accepted <- ok(ok(l.Accept(ctx))(t).Accept(ctx, roce.AcceptConfig{}))(t) }
		go accept()
		c := ok(client.Dial(ctx, serverAddr, roce.DialConfig{}))(t)
		<-accepted

		const floods, batch = 200, 50
		served := 0
		for i := range floods {
			for j := range batch {
				k := i*batch + j
				from := netip.AddrFrom4([4]byte{10, 1, byte(k >> 8), byte(k)})
				req := cm.REQ{LocalID: cm.CommID(k + 1), LocalGUID: cm.GUID(k + 1), QPN: bth.QPN(k + 2), PKey: bth.DefaultPKey, MTU: bth.MTU1024,
					ServiceID: cm.Service(cm.PortSpaceTCP, uint16(7471+j%2)), LocalResponseTimeout: 20, MaxCMRetries: 15,
					Primary: cm.Path{LocalGID: bth.GIDFrom(from), RemoteGID: server.GIDs()[0], HopLimit: 64, AckTimeout: 17}}
				h := cm.IPHeader{SrcPort: 1, Src: from, Dst: netip.MustParseAddr("10.0.0.1")}
				check(t, h.Put(req.Private[:]))
				evil.send(evil.path(from.String()), bth.BTHLen+bth.DETHLen+cm.MADLen+bth.ICRCLen, func(b []byte) {
					bth.PutBTH(b, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
					bth.PutDETH(b[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
					req.Put((*[cm.MADLen]byte)(b[bth.BTHLen+bth.DETHLen:]))
				})
			}
			check(t, c.QP().PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled}))
			if wc := ok(c.QP().SendCQ().Next(ctx))(t); wc.Status == cq.Success {
				served++
			}
		}
		if served != floods {
			t.Errorf("%d writes of %d", served, floods)
		}
		for what, d := range map[string]*roce.Device{"server": server, "client": client} {
			if got := d.Counters(); got.LocalAckTimeout+got.RcvdSeqErr+got.RetransPkts != 0 || got.CM.Foreign != 0 {
				t.Errorf("%s: the connection was disturbed: %+v", what, got.Counters)
			}
		}
		got := server.Counters().CM
		rejected := got.Sent[cm.AttrREJ-cm.AttrREQ]
		if got.Received[0] != floods*batch+1 || got.Evicted != floods*batch/2-backlog || rejected+got.RepliesLimited != floods*batch/2 ||
			rejected == 0 || got.RepliesLimited == 0 {
			t.Errorf("%d requests, %d made room for others, %d rejected, %d not answered", got.Received[0], got.Evicted, rejected, got.RepliesLimited)
		}
		// The program takes the requests and rejects them.
		synctest.Wait() // until the listener knows which requests were evicted
		for range backlog {
			check(t, ok(l.Accept(ctx))(t).Reject(nil))
		}
		go accept()
		c2 := ok(client.Dial(ctx, serverAddr, roce.DialConfig{}))(t)
		<-accepted
		check(t, c2.Disconnect(ctx))
		check(t, c.Disconnect(ctx))
	})
}
