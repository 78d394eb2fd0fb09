package cm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var xrcService = Service(PortSpaceIB, 7174)

func xrcREQ() *REQ {
	m := ownREQ()
	m.ServiceID, m.Transport, m.ExtTransport = xrcService, Extended, ExtXRC
	m.ResponderResources, m.RetryCount, m.RNRRetryCount = 0, 0, 0
	return m
}

// TestXRC: the messages of each side of an XRC connection, and their effects.
func TestXRC(t *testing.T) {
	t.Run("initiator", func(t *testing.T) {
		d := newDialogue(t)
		p := connectParam()
		p.ServiceID, p.Transport, p.SRQ = xrcService, Extended, true
		c, err := d.m.Connect(d.now, p)
		d.must(err)
		d.send(xrcREQ())
		rep := peerREP()
		rep.QPN, rep.LocalEECN, rep.InitiatorDepth, rep.SRQ = 0, uint32(peerQPN), 0, true
		d.recv(rep)
		d.event(ConnectResponse)
		a, err := c.QPAttr()
		d.must(err)
		if a.DestQPN != peerQPN || a.RetryCount != 7 || a.RNRRetry != rep.RNRRetryCount || a.MaxRdAtomic != 5 || a.MaxDestRdAtomic != 0 || a.RemoteRead {
			t.Errorf("%+v", a)
		}
		d.must(c.ReadyToUse(d.now, nil))
		d.send(ownRTU())
		d.must(c.Disconnect(d.now, nil))
		d.send(ownDREQ()) // with the target's QPN
		d.finish(c)
	})
	t.Run("target", func(t *testing.T) {
		d := newDialogue(t)
		_, err := d.m.Listen(ListenParam{ServiceID: xrcService, XRC: true})
		d.must(err)
		req := peerREQ()
		req.ServiceID, req.Transport, req.ExtTransport, req.ResponderResources = xrcService, Extended, ExtXRC, 0
		d.recv(req)
		c := d.event(ConnectRequest).Conn
		if o := c.Offer(); o.Transport != Extended || o.QPN != peerQPN || o.ResponderResources != 8 || o.InitiatorDepth != 0 {
			t.Errorf("%+v", o)
		}
		d.must(c.Accept(d.now, acceptParam()))
		rep := ownREP()
		rep.LocalEECN, rep.QPN, rep.InitiatorDepth, rep.FlowControl, rep.SRQ = uint32(ownQPN), 0, 0, false, true
		d.send(rep)
		a, err := c.QPAttr()
		d.must(err)
		if a.DestQPN != peerQPN || a.MaxDestRdAtomic != 6 || a.MaxRdAtomic != 0 || !a.RemoteRead {
			t.Errorf("%+v", a)
		}
		d.recv(peerRTU())
		d.event(Established)
		d.recv(peerDREQ()) // with the target's QPN
		d.event(DisconnectRequest)
		d.finish(c)
	})
}

// TestXRCOrNot: a listener accepts either XRC or RC and UC, and XRC only in a port space that has
// it.
func TestXRCOrNot(t *testing.T) {
	for _, tt := range []struct {
		name string
		xrc  bool
		ps   PortSpace
		req  func(*REQ)
		want bool
	}{
		{"XRC", true, PortSpaceIB, func(m *REQ) { m.Transport, m.ExtTransport = Extended, ExtXRC }, true},
		{"not asked for", false, PortSpaceIB, func(m *REQ) { m.Transport, m.ExtTransport = Extended, ExtXRC }, false},
		{"RC", true, PortSpaceIB, func(m *REQ) {}, false},
		{"UC", true, PortSpaceIB, func(m *REQ) { m.Transport = UC }, false},
		{"something else", true, PortSpaceIB, func(m *REQ) { m.Transport, m.ExtTransport = Extended, 2 }, false},
		{"port space", true, PortSpaceTCP, func(m *REQ) { m.Transport, m.ExtTransport = Extended, ExtXRC }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDialogue(t)
			_, err := d.m.Listen(ListenParam{ServiceID: Service(tt.ps, 7174), XRC: tt.xrc})
			d.must(err)
			req := peerREQ()
			req.ServiceID = Service(tt.ps, 7174)
			tt.req(req)
			d.recv(req)
			if tt.want {
				d.event(ConnectRequest)
			} else {
				d.send(&REJ{Header: Header{TID: peerTID}, RemoteID: peerID, Of: OfREQ, Reason: RejectConsumer})
			}
			d.silent()
		})
	}
}

// TestXRCGolden: the REP of a target, by the layout in ibta_vol1_c12.h.
func TestXRCGolden(t *testing.T) {
	rep := REP{LocalID: 1, RemoteID: 2, QPN: 0x123456, StartingPSN: 3, ResponderResources: 4, InitiatorDepth: 5, FlowControl: true, LocalGUID: 6}
	rep.target()
	want := mad(t, `0107020300000000 0000000000000000 0013000000000000 00000001 00000002 00000000 000000 00 123456 00 000003 00 04 00 00 10 0000000000000006`)
	if diff := cmp.Diff(want, encode(&rep)); diff != "" {
		t.Error(diff)
	}
}
