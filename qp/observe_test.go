package qp_test

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// TestObserveRequester: the PSNs, the packets in flight and the incidents of a requester.
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

// TestObserveResponder: the PSNs, the messages and the incidents of a responder.
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

// TestObserveCongestion: the incidents of congestion are marks and CNPs, and the rate falls.
func TestObserveCongestion(t *testing.T) {
	b, _, _ := client(t, pairConfig{cc: &qp.DCQCN{LineRate: qp.Gbps}})
	at := b.Observe().Expected
	b.inject(packet{op: bth.RCWriteOnly, psn: at, ce: true})
	b.inject(packet{op: bth.CNP})
	if o := b.Observe(); o.Marked != 1 || o.CNPsSent != 1 || o.CNPsReceived != 1 || o.Rate == 0 || o.Rate >= qp.Gbps {
		t.Errorf("%+v", o)
	}
}

// TestObserveBytesRequester: acknowledged payload counts as sent, READ data that has arrived as received, and failed
// work requests count nothing.
func TestObserveBytesRequester(t *testing.T) {
	b, _, m := client(t, pairConfig{mtu: bth.MTU1024, retry: 3, timeout: 14, rnr: 3})
	want := func(when string, sent, received uint64) {
		t.Helper()
		if o := b.Observe(); o.SentBytes != sent || o.ReceivedBytes != received {
			t.Errorf("%s: %d bytes sent and %d received, want %d and %d", when, o.SentBytes, o.ReceivedBytes, sent, received)
		}
	}
	b.post(send(m, 2500))
	b.post(read(m, 1500))
	b.post(send(m, 100))
	b.sent()
	want("in flight", 0, 0)
	b.inject(ack(s0))
	want("the first packet is acknowledged", 1024, 0)
	b.inject(ack(s0))
	b.inject(ack(s0.Add(2)))
	want("the SEND is acknowledged", 2500, 0)
	b.inject(packet{op: bth.RCReadResponseFirst, psn: s0.Add(3), syndrome: bth.AckNoCredits, payload: make([]byte, 1024)})
	want("the first READ response", 2500, 1024)
	b.inject(packet{op: bth.RCReadResponseLast, psn: s0.Add(4), syndrome: bth.AckNoCredits, payload: make([]byte, 476)})
	want("the last READ response", 2500, 1500)
	b.post(send(m, 300))
	b.inject(nak(bth.NAKRemoteAccess, s0.Add(5)))
	want("both SENDs have failed", 2500, 1500)
	b.post(send(m, 300)) // is flushed
	want("posted in ERR", 2500, 1500)
	if err := b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	want("after RESET", 2500, 1500)
}

// TestObserveBytesResponder: the payload of a message counts packet by packet, and so do READ responses that have
// left. Duplicates do not count.
func TestObserveBytesResponder(t *testing.T) {
	b, _, m := client(t, pairConfig{mtu: bth.MTU1024})
	want := func(when string, sent, received uint64) {
		t.Helper()
		if o := b.Observe(); o.SentBytes != sent || o.ReceivedBytes != received {
			t.Errorf("%s: %d bytes sent and %d received, want %d and %d", when, o.SentBytes, o.ReceivedBytes, sent, received)
		}
	}
	at := b.Observe().Expected
	first := packet{op: bth.RCWriteFirst, psn: at, va: m.Addr(), key: m.RKey(), length: 1500, payload: make([]byte, 1024)}
	last := packet{op: bth.RCWriteLast, psn: at.Add(1), payload: make([]byte, 476)}
	b.inject(first)
	want("the first packet of a WRITE", 0, 1024)
	b.inject(last)
	want("the WRITE", 0, 1500)
	b.inject(first)
	b.inject(last)
	want("the WRITE comes again", 0, 1500)
	if err := b.PostRecv(&qp.RecvWR{SG: []mr.SGE{m.SGE(0, 4096)}}); err != nil {
		t.Fatal(err)
	}
	b.inject(packet{op: bth.RCSendFirst, psn: at.Add(2), payload: make([]byte, 1024)})
	want("the first packet of a SEND", 0, 2524)
	b.inject(packet{op: bth.RCSendLast, psn: at.Add(3), payload: make([]byte, 6)})
	want("the SEND", 0, 2530)
	request := packet{op: bth.RCReadRequest, psn: at.Add(4), va: m.Addr(), key: m.RKey(), length: 3000}
	b.inject(request)
	b.sent()
	want("the answer of a READ", 3000, 2530)
	b.inject(request)
	b.sent()
	want("the READ comes again", 3000, 2530)
}

// TestObserveDatagrams: datagrams count when they leave and when they arrive, and each is a message.
func TestObserveDatagrams(t *testing.T) {
	b, _, m := client(t, pairConfig{typ: qp.UD})
	if err := b.PostRecv(&qp.RecvWR{SG: []mr.SGE{m.SGE(0, 4096)}}); err != nil {
		t.Fatal(err)
	}
	q := b.attr().QKey
	for range 2 { // for the second there is no receive
		b.inject(packet{op: bth.UDSendOnly, qkey: q, payload: make([]byte, 100)})
	}
	if o := b.Observe(); o.ReceivedBytes != 100 || o.Messages != 1 || o.SentBytes != 0 {
		t.Errorf("%+v", o)
	}
}
