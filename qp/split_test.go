package qp_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// splitTests are messages around the limits of splitting, with packets of 1024 bytes.
var splitTests = []struct {
	typ  qp.Type
	op   qp.Opcode
	n    int
	want int // packets that are a message of their own
}{
	{qp.RC, qp.Write, 1024, 1},
	{qp.RC, qp.Write, 1025, 2},
	{qp.RC, qp.Write, 32 << 10, 32},
	{qp.RC, qp.Write, 32<<10 + 1, 0},
	{qp.RC, qp.WriteImm, 4096, 0}, // the last would be longer than the others
	{qp.RC, qp.Send, 4096, 0},     // a message takes one receive
	{qp.UC, qp.Write, 4096, 0},    // all of it arrives, or nothing
}

// TestSplitWrites: only these WRITEs are split, and every piece has its own address and length.
func TestSplitWrites(t *testing.T) {
	for _, tt := range splitTests {
		for _, imp := range []impairment{{}, {loss: 0.05, dup: 0.05, reorder: 0.05, jitter: 20 * time.Microsecond}} {
			if tt.typ == qp.UC && imp != (impairment{}) {
				continue
			}
			t.Run(fmt.Sprintf("%v, %v of %d, %v", tt.typ, tt.op, tt.n, imp.loss), func(t *testing.T) {
				testSplit(t, tt.typ, tt.op, tt.n, tt.want, imp)
			})
		}
	}
}

func testSplit(t *testing.T, typ qp.Type, op qp.Opcode, n, want int, imp impairment) {
	a, b, w := newPair(t, 1, imp, pairConfig{typ: typ, splitting: true})
	from, own := a.region(t, n)
	to, far := b.region(t, n)
	for i := range from {
		from[i] = byte(i * 11)
	}
	if op != qp.Write {
		if err := b.PostRecv(&qp.RecvWR{SG: []mr.SGE{far.SGE(0, n)}}); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[bth.PSN]bool)
	only := 0
	w.tap = func(f []byte) {
		var p frame.Packet
		if err := p.Parse(f, frame.LayoutEthernet); err != nil {
			t.Fatal(err)
		}
		if p.Info.Flags&bth.Request == 0 || p.Info.Flags&bth.Only != bth.Only {
			return
		}
		off := uint64(p.PSN()) * 1024
		if p.VA() != far.Addr()+off || int(p.DMALen()) != min(1024, n-int(off)) {
			t.Errorf("PSN %v: WRITE of %d bytes to offset %d", p.PSN(), p.DMALen(), p.VA()-far.Addr())
		}
		if !seen[p.PSN()] {
			only++
		}
		seen[p.PSN()] = true
	}
	wr := qp.SendWR{Opcode: op, Flags: qp.Signaled, SG: []mr.SGE{own.SGE(0, n)}, RemoteAddr: far.Addr(), RKey: far.RKey()}
	if err := a.PostSend(&wr); err != nil {
		t.Fatal(err)
	}
	var done []cq.WC
	for len(done) == 0 && w.step(a, b) {
		done = drain(a.send)
	}
	if len(done) != 1 || done[0].Status != cq.Success {
		t.Fatalf("completions %+v", done)
	}
	for typ == qp.UC && w.step(a, b) { // it completes before it arrives
	}
	if only != want {
		t.Errorf("%d messages of one packet, want %d", only, want)
	}
	if !bytes.Equal(from, to) {
		t.Error("the data differs")
	}
}
