package qp_test

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// What somebody sees who watches a requester: its place, what is in flight, and what went wrong.
func TestObserveRequester(t *testing.T) {
	b, _, m := client(t, pairConfig{retry: 3, timeout: 14, rnr: 3})
	first := b.Observe()
	if first.State != qp.RTS || first.Sent != s0 || first.InFlight != 0 || first.RTT != 0 || first.Incidents != (qp.Incidents{}) || first.Own.IsZero() || first.Peer.IsZero() {
		t.Errorf("at first %+v", first)
	}
	b.post(send(m, 2500))
	b.post(send(m, 0))
	if o := b.Observe(); o.Sent.Sub(first.Sent) != 4 || o.InFlight != 4 || o.Posted != 2 || o.Window < 4 {
		t.Errorf("with two work requests %+v", o)
	}
	b.net.now += 1000
	b.inject(ack(s0.Add(2)))
	if o := b.Observe(); o.InFlight != 1 || o.Posted != 1 || o.RTT <= 0 {
		t.Errorf("with one acknowledged %+v", o)
	}
	b.sent()
	b.inject(nak(bth.NAKSequence, s0.Add(3)))
	b.inject(nak(bth.RNR(12), s0.Add(3)))
	b.sent()
	b.expire() // the wait of the RNR NAK
	b.sent()
	b.expire() // the ACK timer
	want := qp.Incidents{Retransmitted: 3, Timeouts: 1, NAKsReceived: 1, RNRsReceived: 1}
	if o := b.Observe(); o.Incidents != want || o.Sent.Sub(first.Sent) != 4 {
		t.Errorf("%+v, want %+v", o.Incidents, want)
	}
	b.inject(nak(bth.NAKRemoteAccess, s0.Add(3)))
	if o := b.Observe(); o.State != qp.Err || o.NAKsReceived != 2 {
		t.Errorf("after a fatal NAK %+v", o)
	}
	b.wantDone(cq.Success, cq.RemAccessErr)
}

// What somebody sees who watches a responder.
func TestObserveResponder(t *testing.T) {
	b, _, _ := client(t, pairConfig{})
	at := b.Observe().Expected
	b.inject(packet{op: bth.RCSendOnly, psn: at.Add(1)})
	if o := b.Observe(); o.NAKsSent != 1 || o.Expected != at || o.Messages != 0 {
		t.Errorf("after a gap %+v", o)
	}
	b.inject(packet{op: bth.RCSendOnly, psn: at})
	if o := b.Observe(); o.RNRsSent != 1 || o.Expected != at {
		t.Errorf("without a receive %+v", o)
	}
	b.inject(packet{op: bth.RCWriteOnly, psn: at}) // of no bytes
	if o := b.Observe(); o.Expected.Sub(at) != 1 || o.Messages != 1 {
		t.Errorf("after a WRITE %+v", o)
	}
}

// The incidents of congestion: marks and CNPs, and the rate that they leave.
func TestObserveCongestion(t *testing.T) {
	b, _, _ := client(t, pairConfig{cc: &qp.DCQCN{LineRate: qp.Gbps}})
	at := b.Observe().Expected
	b.inject(packet{op: bth.RCWriteOnly, psn: at, ce: true})
	b.inject(packet{op: bth.CNP})
	if o := b.Observe(); o.Marked != 1 || o.CNPsSent != 1 || o.CNPsReceived != 1 || o.Rate == 0 || o.Rate >= qp.Gbps {
		t.Errorf("%+v", o)
	}
}
