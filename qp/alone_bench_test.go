package qp_test

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// bare is a wire without envelopes and without a check of the ICRC. Each packet goes from one engine to the other as
// it was built. If it resembles the packet before, it takes the short path of [frame.Packet.Next], as in devices.
type bare struct {
	*wire
	env *frame.Envelope
}

func (w *bare) Begin(_ *frame.Path, size int) ([]byte, bth.CRC, bool) {
	if w.n == len(w.frames) {
		return nil, 0, false
	}
	b := w.frames[w.n][:size]
	w.frames[w.n] = b
	return b, 0, true
}

func (w *bare) deliver(to *node) int {
	n := w.n
	for i, b := range w.frames[:n] {
		if i > 0 && w.p.Next(b, w.env, uint16(i)) {
			to.HandlePacket(1, &w.p)
			continue
		}
		if err := w.p.ParseBody(b, w.env, uint16(i)); err != nil {
			panic(err)
		}
		to.HandlePacket(1, &w.p)
	}
	w.n = 0
	return n
}

func newBare(n *node) *bare {
	e := n.Path().Envelope()
	e.IDSeen = true
	return &bare{newWire(n, false), &e}
}

// BenchmarkEngineAlone measures the part of a packet's time that the engines of both ends take. There are no
// envelopes, and messages have no bytes, so there is nothing to copy and the ICRC covers almost nothing; with -tags
// noicrc there is no ICRC. Each message is a packet; its acknowledgement is shared with others. With recovery both
// ends could repair losses, but there are none.
func BenchmarkEngineAlone(b *testing.B) {
	for _, c := range []struct {
		name string
		op   qp.Opcode
	}{{"SEND", qp.Send}, {"WRITE", qp.Write}, {"READ", qp.Read}} {
		b.Run(c.name, func(b *testing.B) { benchAlone(b, c.op, false) })
		b.Run(c.name+"-recovery", func(b *testing.B) { benchAlone(b, c.op, true) })
	}
}

func benchAlone(b *testing.B, op qp.Opcode, repair bool) {
	na, nb, _ := newPair(b, 1, impairment{}, pairConfig{rd: 16, repair: repair, repairB: repair})
	wa, wb := newBare(na), newBare(nb)
	_, local := na.region(b, 64)
	_, remote := nb.region(b, 64)
	wr := qp.SendWR{Opcode: op, Flags: qp.Signaled, SG: []mr.SGE{local.SGE(0, 0)}, RemoteAddr: remote.Addr(), RKey: remote.RKey()}
	recv := qp.RecvWR{SG: []mr.SGE{remote.SGE(0, 64)}}
	wcs := make([]cq.WC, 64)
	packets, posted, done := 0, 0, 0
	b.ReportAllocs()
	for done < b.N {
		for ; posted < b.N && posted-done < 32; posted++ {
			if op == qp.Send {
				if err := nb.PostRecv(&recv); err != nil {
					b.Fatal(err)
				}
			}
			if err := na.PostSend(&wr); err != nil {
				b.Fatal(err)
			}
		}
		na.Emit(1, wa)
		packets += wa.deliver(nb)
		nb.Emit(1, wb)
		packets += wb.deliver(na)
		for _, wc := range wcs[:na.send.Poll(wcs)] {
			if wc.Status != cq.Success {
				b.Fatal(wc.Status)
			}
			done++
		}
		nb.recv.Poll(wcs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
}
