package qp_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// TestCancelRecv: a canceled receive completes at once. The others keep their order and their memory. A receive that
// a message has begun to use cannot be canceled.
func TestCancelRecv(t *testing.T) {
	b := newBench(t, pairConfig{psnB: e0})
	mem, region := b.region(t, 4096)
	for id := range uint64(5) {
		if err := b.PostRecv(&qp.RecvWR{ID: id, SG: []mr.SGE{region.SGE(int(id)*100, 100)}}); err != nil {
			t.Fatal(err)
		}
	}
	take := func() (ids []uint64, status []cq.Status) {
		var wcs [8]cq.WC
		for _, wc := range wcs[:b.recv.Poll(wcs[:])] {
			ids, status = append(ids, wc.ID), append(status, wc.Status)
		}
		return ids, status
	}
	for _, id := range []uint64{1, 4} {
		if err := b.CancelRecv(id); err != nil {
			t.Fatal(err)
		}
	}
	if ids, status := take(); !slices.Equal(ids, []uint64{1, 4}) || !slices.Equal(status, []cq.Status{cq.WRFlushErr, cq.WRFlushErr}) {
		t.Fatalf("canceled %v %v", ids, status)
	}
	for i, id := range []uint64{0, 2} {
		b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(i), payload: []byte{byte(10 + id)}})
		if ids, _ := take(); !slices.Equal(ids, []uint64{id}) || mem[id*100] != byte(10+id) {
			t.Errorf("message %d went to receives %v", i, ids)
		}
	}
	mtu := make([]byte, 1024)
	if err := b.PostRecv(&qp.RecvWR{ID: 9, SG: []mr.SGE{region.SGE(0, 4096)}}); err != nil {
		t.Fatal(err)
	}
	if err := b.CancelRecv(3); err != nil {
		t.Fatal(err)
	}
	take()
	b.inject(packet{op: bth.RCSendFirst, psn: e0.Add(2), payload: mtu})
	for _, id := range []uint64{9, 77} {
		if err := b.CancelRecv(id); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("cancel of %d: %v, want ENOENT", id, err)
		}
	}
}
