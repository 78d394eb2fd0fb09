package scenario_test

import (
	"bytes"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

// TestCongestion: all packets of one device are marked. Its WRITEs, and the READs of the other, continue at a reduced rate,
// and none stalls.
func TestCongestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const size = 1 << 20
		n := newNetwork(t)
		ca, cb := n.config("10.0.0.1"), n.config("10.0.0.2")
		ca.Ports[0] = ok(fault.Wrap(ca.Ports[0], fault.Config{Tx: fault.Rates{ECN: 1}}))(t)
		ca.Congestion, cb.Congestion = &roce.DCQCN{LineRate: 10 * qp.Gbps}, &roce.DCQCN{LineRate: 10 * qp.Gbps}
		a, b := newPeer(t, n.open(ca), size), newPeer(t, n.open(cb), size)
		connect(t, a, b)
		for i := range a.buf {
			a.buf[i] = byte(i * 7)
		}
		if got := a.qp.Congestion(); !got.On || got.Limited || got.Rate != 10*qp.Gbps {
			t.Errorf("before: %+v", got)
		}
		start := time.Now()
		a.post(roce.Write, 0, size, b, 0)
		a.wait()
		state := a.qp.Congestion()
		if took := time.Since(start); took < 8*time.Millisecond || !state.Limited || state.Rate > qp.Gbps {
			t.Errorf("a WRITE of 1 MiB took %v at 10 Gb/s under congestion: %+v", took, state)
		}
		if !bytes.Equal(a.buf, b.buf) {
			t.Error("the data is wrong")
		}
		clear(b.buf)
		b.post(roce.Read, 0, size, a, 0)
		b.wait()
		if !bytes.Equal(a.buf, b.buf) {
			t.Error("the data of the READ is wrong")
		}
		synctest.Wait() // the last notification may still be on its way
		x, y := a.dev.Counters(), b.dev.Counters()
		if x.CNPsHandled < 100 || x.CNPsHandled != y.CNPsSent || y.ECNMarked < 500 || x.CNPsSent+y.CNPsHandled != 0 {
			t.Errorf("counters %+v and %+v", x.Counters, y.Counters)
		}
		if b.qp.Congestion().Limited || x.LocalAckTimeout+y.LocalAckTimeout != 0 {
			t.Errorf("the receiver is %+v, %d timeouts", b.qp.Congestion(), x.LocalAckTimeout+y.LocalAckTimeout)
		}
	})
}

// TestCongestionConfig: the sources of parameters, and the refusal of wrong ones.
func TestCongestionConfig(t *testing.T) {
	n := newNetwork(t)
	c := n.config("10.0.0.1")
	c.Congestion = &roce.DCQCN{} // the port does not tell its speed
	_, err := roce.Open(c)
	wantErr(t, "no line rate", err, syscall.EINVAL)
	c = n.config("10.0.0.2")
	c.Congestion = &roce.DCQCN{LineRate: qp.Gbps}
	d := n.open(c)
	plain := n.device("10.0.0.3")
	for _, s := range []struct {
		dev  *roce.Device
		conf roce.QPConfig
		want roce.Rate
	}{
		{d, roce.QPConfig{}, qp.Gbps},
		{d, roce.QPConfig{Type: roce.UC}, qp.Gbps},
		{d, roce.QPConfig{Type: roce.UD}, 0},
		{d, roce.QPConfig{Congestion: &roce.DCQCN{LineRate: 2 * qp.Gbps}}, 2 * qp.Gbps},
		{plain, roce.QPConfig{}, 0},
		{plain, roce.QPConfig{Congestion: &roce.DCQCN{LineRate: 3 * qp.Gbps}}, 3 * qp.Gbps},
	} {
		s.conf.SendCQ = ok(s.dev.CreateCQ(1))(t)
		q := ok(s.dev.AllocPD().CreateQP(s.conf))(t)
		if got := q.Congestion(); got.Rate != s.want || got.On != (s.want > 0) {
			t.Errorf("%+v: %+v", s.conf, got)
		}
	}
	_, err = plain.AllocPD().CreateQP(roce.QPConfig{SendCQ: ok(plain.CreateCQ(1))(t), Congestion: &roce.DCQCN{}})
	wantErr(t, "queue pair without a line rate", err, syscall.EINVAL)
}

// TestCongestionHostile: a notification for no queue pair, or from another
// address than the peer's, is counted and changes nothing.
func TestCongestionHostile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		c.Congestion = &roce.DCQCN{LineRate: qp.Gbps}
		d := n.open(c)
		p, other := newPeer(t, d, 100), newPeer(t, n.device("10.0.0.2"), 100)
		connect(t, p, other)
		evil := newAttacker(n, d)
		const size = bth.BTHLen + bth.CNPReservedLen + bth.ICRCLen
		cnp := func(from string, to roce.QPN) {
			evil.send(evil.path(from), size, func(b []byte) { bth.PutBTH(b, bth.CNP, 0, 0, bth.DefaultPKey, to, 0) })
			time.Sleep(time.Millisecond)
		}
		cnp("10.0.0.2", p.qp.Num()+1)
		cnp("10.0.0.66", p.qp.Num())
		if got := d.Counters(); got.Drops.NoQP != 1 || got.WrongPeer != 1 || got.CNPsHandled != 0 || p.qp.Congestion().Limited {
			t.Errorf("%+v, %+v", got, p.qp.Congestion())
		}
		cnp("10.0.0.2", p.qp.Num())
		if got := d.Counters(); got.CNPsHandled != 1 {
			t.Errorf("%+v", got)
		}
	})
}
