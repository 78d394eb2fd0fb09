package scenario_test

import (
	"context"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// testQKey is the Q_Key of the tests' datagrams.
const testQKey bth.QKey = 0x11111111

// udEnd is a UD queue pair in RTS with memory. It sends from the first half of buf, and
// receives into the second.
type udEnd struct {
	t   testing.TB
	dev *roce.Device
	pd  *roce.PD
	cq  *roce.CQ
	qp  *roce.QP
	mr  *roce.MR
	buf []byte
}

const udHalf = 4096 + roce.GRHLen

func newUD(t testing.TB, d *roce.Device) *udEnd { return newUDOn(t, d, 0, testQKey) }

func newUDOn(t testing.TB, d *roce.Device, shard int, qkey bth.QKey) *udEnd {
	t.Helper()
	u := &udEnd{t: t, dev: d, pd: d.AllocPD(), buf: make([]byte, 2*udHalf)}
	u.cq = ok(d.CreateCQWith(roce.CQConfig{Entries: 100, Shard: shard}))(t)
	u.mr = ok(u.pd.RegMR(u.buf, roce.LocalWrite))(t)
	u.qp = ok(u.pd.CreateQP(roce.QPConfig{Type: qp.UD, SendCQ: u.cq}))(t)
	check(t, u.qp.Init(0, qkey))
	check(t, u.qp.Ready(7))
	return u
}

// recv posts the receive half.
func (u *udEnd) recv() {
	u.t.Helper()
	check(u.t, u.qp.PostRecv(&roce.RecvWR{ID: 1, SG: []roce.SGE{u.mr.SGE(udHalf, udHalf)}}))
}

// received is the receive half: GRH area and payload.
func (u *udEnd) received() []byte { return u.buf[udHalf:] }

// send sends text, unsignaled.
func (u *udEnd) send(ah *roce.AH, qpn bth.QPN, qkey bth.QKey, text string) {
	u.t.Helper()
	n := copy(u.buf, text)
	check(u.t, u.qp.PostSend(&roce.SendWR{ID: 2, Opcode: roce.Send, SG: []roce.SGE{u.mr.SGE(0, n)}, AH: ah, RemoteQPN: qpn, RemoteQKey: qkey}))
}

// want waits for a datagram and checks its text and sender.
func (u *udEnd) want(from *udEnd, text string) roce.WC {
	u.t.Helper()
	wc := ok(u.cq.Next(within(u.t, time.Minute)))(u.t)
	if wc.Status != cq.Success || wc.ByteLen != uint32(roce.GRHLen+len(text)) || wc.SrcQPN != from.qp.Num() || wc.Flags&cq.GRH == 0 {
		u.t.Fatalf("completion %+v, want %q from %v", wc, text, from.qp.Num())
	}
	if got := string(u.received()[roce.GRHLen:wc.ByteLen]); got != text {
		u.t.Fatalf("received %q, want %q", got, text)
	}
	return wc
}

// wantNothing checks that there is no completion.
func (u *udEnd) wantNothing() {
	u.t.Helper()
	var wcs [4]roce.WC
	if n := u.cq.Poll(wcs[:]); n > 0 {
		u.t.Errorf("unexpected completions %+v", wcs[:n])
	}
}

// ah makes the address handle to another device's first address.
func (u *udEnd) ah(to *udEnd) *roce.AH {
	u.t.Helper()
	return ok(u.dev.CreateAH(context.Background(), roce.AHAttr{DGID: to.dev.GIDs()[0]}))(u.t)
}
