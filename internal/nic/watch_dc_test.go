package nic

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// connectTarget adds a DC target to the NIC, to which the peer connects.
func (w *watcher) connectTarget() {
	q := w.newTarget(w.t)
	size := int(bth.DCConnect.Info().HeaderLen) + bth.ICRCLen
	body, crc, ok := w.peer.Begin(batchPath(w.t, batchPeer, batchOwn, 0), size)
	if !ok {
		w.t.Fatal("no room")
	}
	at := bth.PutBTH(body, bth.DCConnect, bth.AckReq, 0, bth.DefaultPKey, q.Num(), 0)
	at += bth.PutDCETH(body[at:], bth.DCETHFields{QPN: 9})
	bth.PutDCCETH(body[at:], &bth.DCCETHFields{Key: 1, Connection: 1, Depth: 4, MTU: uint8(bth.MTU1024)})
	end := len(body) - bth.ICRCLen
	bth.PutICRC(body[end:], crc.UpdateBody(body[:end]))
	w.peer.Commit()
	if err := w.peer.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watcher) newTarget(t *testing.T) *QP {
	t.Helper()
	pd := mr.NewPD()
	srq, err := qp.NewSRQ(qp.SRQConfig{PD: pd, MaxWR: 8})
	if err != nil {
		t.Fatal(err)
	}
	back, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(batchOwn), Dst: bth.GIDFrom(batchPeer), SrcMAC: frame.MAC{2, 1}, DstMAC: frame.MAC{2, 2}, SrcPort: 50000})
	if err != nil {
		t.Fatal(err)
	}
	q := new(QP)
	q.Init(w.shards[0], q, func(EventType) {})
	c := qp.Config{Type: qp.DCT, PD: pd, Memory: mr.NewTable(func() uint64 { return 1 }), RecvCQ: w.recv, SRQ: srq,
		DCT: &qp.DCTConfig{Key: 1, Own: bth.GIDFrom(batchOwn), MTU: bth.MTU1024, MinRNRTimer: 12,
			Rand: func() uint64 { return 77 }, PathBack: func(*frame.Packet, bool) *frame.Path { return back }}}
	if err := w.Create(q, c, nil, false, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	return q
}
