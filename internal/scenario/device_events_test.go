package scenario_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

func TestEvents(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			config := n.config("10.0.0.2")
			config.Polled = polled
			da, db := n.device("10.0.0.1"), n.open(config)
			want := func(typ roce.EventType, q *roce.QP, c *roce.CQ) {
				t.Helper()
				e, err := db.NextEvent(within(t, time.Second))
				if err != nil || e.Type != typ || e.QP != q || e.CQ != c {
					t.Errorf("event %v (%v), want %v", e, err, typ)
				}
			}

			// Data for a queue pair that is not yet ready to send.
			a, b := newPeer(t, da, 100), newPeer(t, db, 100)
			connectOne(t, a, b)
			check(t, b.qp.Modify(&roce.Attr{State: qp.RTR, AV: ok(db.CreateAH(context.Background(), roce.AHAttr{DGID: da.GIDs()[0]}))(t),
				PathMTU: db.Query().PathMTU, DestQPN: a.qp.Num(), RQPSN: a.psn, MaxDestRdAtomic: 1},
				qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN|qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer))
			a.post(roce.Write, 0, 10, b, 0)
			a.post(roce.Write, 0, 10, b, 0)
			want(roce.EventCommEst, b.qp, nil)
			a.wait()
			a.wait()

			// A WRITE beyond the memory, which has no completion here.
			a.post(roce.Write, 0, 100, b, 50)
			want(roce.EventAccessErr, b.qp, nil)
			a.waitFor(cq.RemAccessErr)

			// A WRITE that the queue pair does not allow.
			a, b = newPeer(t, da, 100), newPeer(t, db, 100)
			connect(t, a, b)
			check(t, b.qp.Modify(&roce.Attr{Access: roce.RemoteRead}, qp.AttrAccess))
			a.post(roce.Write, 0, 10, b, 0)
			want(roce.EventReqErr, b.qp, nil)
			a.waitFor(cq.RemInvReqErr)

			// A draining send queue.
			a, b = newPeer(t, da, 100), newPeer(t, db, 100)
			connect(t, a, b)
			check(t, b.qp.Modify(&roce.Attr{State: qp.SQD, SQDNotify: true}, qp.AttrState|qp.AttrSQDNotify))
			want(roce.EventSQDrained, b.qp, nil)

			// A full completion queue.
			small := ok(db.CreateCQ(1))(t)
			c := &peer{t: t, dev: db, pd: b.pd, cq: small, mr: b.mr, psn: 5}
			c.qp = ok(c.pd.CreateQP(roce.QPConfig{SendCQ: small}))(t)
			check(t, c.qp.Init(roce.DefaultQPAccess, 0))
			a = newPeer(t, da, 100)
			connect(t, a, c)
			for range small.Cap() + 1 {
				c.post(roce.Write, 0, 10, a, 0)
			}
			want(roce.EventCQErr, nil, small)
			if s, full := (roce.Event{Type: roce.EventCQErr, CQ: small}).String(), fmt.Sprintf("CQ_ERR cq %d", small.Num()); s != full {
				t.Errorf("the event is %q, want %q", s, full)
			}
			if got := db.Counters().LostEvents; got != 0 {
				t.Errorf("%d events were lost", got)
			}
		})
	}
}

// TestLostEvents: events that no goroutine takes are counted, and block nothing.
func TestLostEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		da, db := n.device("10.0.0.1"), n.device("10.0.0.2")
		const many = 1100
		a, b := newPeer(t, da, 10), newPeer(t, db, 10)
		for range many { // b's queue pairs stay open: the events of a closed one are removed
			var err error
			a.qp, err = a.pd.CreateQP(roce.QPConfig{SendCQ: a.cq})
			check(t, err)
			b.qp, err = b.pd.CreateQP(roce.QPConfig{SendCQ: b.cq, Caps: roce.Caps{MaxRecvWR: 1}})
			check(t, err)
			check(t, a.qp.Init(roce.DefaultQPAccess, 0))
			check(t, b.qp.Init(roce.DefaultQPAccess, 0))
			connect(t, a, b)
			a.post(roce.Write, 0, 10, b, 5)
			a.waitFor(cq.RemAccessErr)
			check(t, a.qp.Close())
		}
		taken := 0
		for {
			if _, err := db.NextEvent(within(t, time.Second)); err != nil {
				break
			}
			taken++
		}
		if lost := db.Counters().LostEvents; lost+uint64(taken) != many || lost == 0 {
			t.Errorf("%d events taken, %d lost, of %d", taken, lost, many)
		}
		check(t, db.Close())
		_, err := db.NextEvent(context.Background())
		wantErr(t, "NextEvent of a closed device", err, roce.ErrClosed)
	})
}

func TestEventStrings(t *testing.T) {
	for want, e := range map[string]roce.Event{
		"CQ_ERR":             {Type: roce.EventCQErr},
		"QP_FATAL":           {Type: roce.EventFatal},
		"DEVICE_FATAL":       {Type: roce.EventDeviceFatal},
		"PORT_ACTIVE port 1": {Type: roce.EventPortActive, Port: 1},
		"GID_CHANGE port 1":  {Type: roce.EventGIDChange, Port: 1},
		"EventType(20)":      {Type: 20},
	} {
		if got := e.String(); got != want {
			t.Errorf("event %d is %q, want %q", e.Type, got, want)
		}
	}
	// Every event of enum ibv_event_type has a different name.
	names := map[string]bool{}
	for e := range roce.EventWQFatal + 1 {
		names[e.String()] = true
		if strings.Contains(e.String(), "(") {
			t.Errorf("event %d is called %v", uint8(e), e)
		}
	}
	if len(names) != 20 {
		t.Errorf("%d names for 20 events", len(names))
	}
}

// TestCounters: the counters of two devices match.
func TestCounters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 100_000)
		for range 10 {
			b.recv(0, 100_000)
			a.post(roce.Send, 0, 100_000, nil, 0)
			a.wait()
			b.wait()
		}
		x, y := a.dev.Counters(), b.dev.Counters()
		if x.SentPkts != 250 || y.RcvdPkts != 250 || x.RDMASends != 10 || y.RDMARecvs != 10 {
			t.Errorf("%d sent in %d packets, %d received in %d packets; want 10 in 250", x.RDMASends, x.SentPkts, y.RDMARecvs, y.RcvdPkts)
		}
		if y.SentPkts != x.RcvdPkts || x.Link.TxPackets != y.Link.RxPackets || x.Link.RxBytes != y.Link.TxBytes {
			t.Errorf("the counters do not fit:\n%+v\n%+v", x, y)
		}
		if !x.Link.LinkUp || x.Drops != (roce.DropCounters{}) || x.RetransPkts != 0 {
			t.Errorf("counters %+v", x)
		}
	})
}
