package scenario_test

import (
	"bytes"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// TestNullMR: a SEND that gathers from a null region has zeros there. A receive that scatters
// to a null region discards those bytes.
func TestNullMR(t *testing.T) {
	const skip = 3000 // more than a packet
	a, b := newPair(t, 2*skip)
	gap := func(p *peer) roce.SGE {
		null := ok(p.pd.AllocNullMR())(t)
		return roce.SGE{Addr: 0xDEAD, Length: skip, LKey: null.LKey()}
	}

	for i := range b.buf {
		b.buf[i] = 'x'
	}
	copy(a.buf, "abcd")
	check(t, b.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{b.mr.SGE(0, 2*skip)}}))
	check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{a.mr.SGE(0, 2), gap(a), a.mr.SGE(2, 2)}}))
	a.waitFor(cq.Success)
	b.waitFor(cq.Success)
	if want := "ab" + string(make([]byte, skip)) + "cdx"; string(b.buf[:len(want)]) != want {
		t.Errorf("gathered from a null region: %.10q … %q", b.buf, b.buf[skip:skip+6])
	}

	for i := range a.buf {
		a.buf[i] = byte(i)
	}
	check(t, b.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{b.mr.SGE(0, 10), gap(b), b.mr.SGE(10, 10)}}))
	check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{a.mr.SGE(0, skip+20)}}))
	a.waitFor(cq.Success)
	if wc := b.waitFor(cq.Success); wc.ByteLen != skip+20 {
		t.Errorf("received %d bytes", wc.ByteLen)
	}
	if want := append(bytes.Clone(a.buf[:10]), a.buf[skip+10:skip+20]...); !bytes.Equal(b.buf[:20], want) {
		t.Errorf("scattered past a null region: % x, want % x", b.buf[:20], want)
	}
}
