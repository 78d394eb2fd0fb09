package qp_test

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// ids lists what completed: IDs and statuses.
func ids(wcs []cq.WC) (out []outcome) {
	for _, wc := range wcs {
		out = append(out, outcome{wc.ID, wc.Status})
	}
	return out
}

type outcome struct {
	ID     uint64
	Status cq.Status
}

// TestReceiveInUse: a receive is taken when its message begins. It counts as
// outstanding and holds its place in the queue until it completes, and when the
// queue pair fails in the middle of the message it completes once, before the
// others.
func TestReceiveInUse(t *testing.T) {
	mtu := bytes.Repeat([]byte{'x'}, 1024)
	for _, typ := range []qp.Type{qp.RC, qp.UC} {
		ops := map[qp.Type]bth.Opcode{qp.RC: bth.RCSendFirst, qp.UC: bth.UCSendFirst}
		b, _, _ := server(t, pairConfig{typ: typ, caps: qp.Caps{MaxSendWR: 2, MaxRecvWR: 2, MaxRecvSGE: 1}})
		b.inject(packet{op: ops[typ], psn: e0, payload: mtu})
		if _, recvs := b.Outstanding(); recvs != 2 {
			t.Errorf("%v: %d receives outstanding, want 2", typ, recvs)
		}
		if err := b.PostRecv(&qp.RecvWR{}); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("%v: a third receive: %v", typ, err)
		}
		for range 2 {
			if err := b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := ids(drain(b.recv)), []outcome{{0, cq.WRFlushErr}, {1, cq.WRFlushErr}}; !slices.Equal(got, want) {
			t.Errorf("%v: completed %v, want %v", typ, got, want)
		}
	}
}

// TestReceiveInUseReset: RESET takes the receive in use away, too, without a
// completion.
func TestReceiveInUseReset(t *testing.T) {
	b, _, _ := server(t, pairConfig{})
	b.inject(packet{op: bth.RCSendFirst, psn: e0, payload: bytes.Repeat([]byte{'x'}, 1024)})
	if err := b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	if _, recvs := b.Outstanding(); recvs != 0 || len(drain(b.recv)) != 0 {
		t.Errorf("%d receives are left", recvs)
	}
}
