package qp_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// ferry carries packets between two engines, without loss, until a has as many
// completions as wanted. each is called after every round.
func ferry(t testing.TB, a, b *wire, want int, each func()) (wcs []cq.WC) {
	t.Helper()
	for idle := 0; len(wcs) < want; {
		a.Emit(1, a)
		n := a.deliver(b.node)
		b.Emit(1, b)
		n += b.deliver(a.node)
		if idle++; n > 0 {
			idle = 0
		}
		if idle > 1 {
			t.Fatalf("%d of %d completions, and nothing is sent", len(wcs), want)
		}
		if each != nil {
			each()
		}
		wcs = append(wcs, drain(a.send)...)
	}
	for _, wc := range wcs {
		if wc.Status != cq.Success {
			t.Fatalf("completion %+v", wc)
		}
	}
	return wcs
}

// TestSizes transfers messages of every size at which segmentation changes, at
// every path MTU, with the PSN going round at each place in the message. READs
// also go out as several requests.
func TestSizes(t *testing.T) {
	var r sizes
	for i := range r.mem {
		h := newHost(rand.New(rand.NewPCG(uint64(i), 1)))
		r.host[i], r.mem[i] = h, make([]byte, 6*4096)
		r.mr[i] = must(h.mem.Register(h.pd, r.mem[i], mr.LocalWrite|mr.RemoteWrite|mr.RemoteRead, mr.Options{}))
	}
	for mtu := bth.MTU256; mtu <= bth.MTU4096; mtu++ {
		m := mtu.Bytes()
		list := []int{0, 1, 2, 3, 4, 5}
		for k := 1; k <= 5; k++ {
			list = append(list, k*m-1, k*m, k*m+1)
		}
		for _, size := range list {
			packets := max(1, (size+m-1)/m)
			for before := range packets + 2 { // packets before PSN 0
				for _, op := range []qp.Opcode{qp.Send, qp.Write, qp.WriteImm, qp.Read} {
					for split := range uint32(4) {
						if split > 0 && (op != qp.Read || packets == 1) {
							continue
						}
						r.check(t, op, mtu, size, before, split)
						if t.Failed() {
							t.Fatalf("%v of %d bytes, MTU %d, %d packets before PSN 0, split by %d", op, size, m, before, split)
						}
					}
				}
			}
		}
	}
}

// sizes are two hosts with memory.
type sizes struct {
	host [2]*host
	mem  [2][]byte
	mr   [2]*mr.MR
}

func (s *sizes) check(t *testing.T, op qp.Opcode, mtu bth.MTU, size, before int, split uint32) {
	start := bth.PSN(0).Add(-before)
	na, nb, _ := newPair(t, 1, impairment{}, pairConfig{mtu: mtu, psnA: start, psnB: 77, rd: 2, split: split, hostA: s.host[0], hostB: s.host[1]})
	a, b := newWire(na, true), newWire(nb, true)
	const guard = 8
	local, remote := s.mem[0][:size+2*guard], s.mem[1][:size+2*guard]
	from, to := local, remote
	if op == qp.Read {
		from, to = remote, local
	}
	for i := range from {
		from[i] = byte(i*7 + size)
	}
	for i := range to {
		to[i] = 0xEE
	}
	lm, rm := s.mr[0], s.mr[1]
	if op == qp.Send || op == qp.WriteImm {
		must(0, nb.PostRecv(&qp.RecvWR{SG: []mr.SGE{rm.SGE(guard, size)}}))
	}
	must(0, na.PostSend(&qp.SendWR{ID: 1, Opcode: op, Flags: qp.Signaled, SG: []mr.SGE{lm.SGE(guard, size/3), lm.SGE(guard+size/3, size-size/3)},
		RemoteAddr: rm.Addr() + guard, RKey: rm.RKey()}))
	must(0, na.PostSend(&qp.SendWR{ID: 2, Opcode: qp.Write, Flags: qp.Signaled})) // its PSN follows
	wcs := ferry(t, a, b, 2, nil)
	if wcs[0].ID != 1 || int(wcs[0].ByteLen) != size || wcs[1].ID != 2 {
		t.Errorf("completions %+v", wcs)
	}
	if !bytes.Equal(to[guard:guard+size], from[guard:guard+size]) {
		t.Error("the data differs")
	}
	if want := bytes.Repeat([]byte{0xEE}, guard); !bytes.Equal(to[:guard], want) || !bytes.Equal(to[guard+size:], want) {
		t.Error("written beside the target")
	}
	attr, _ := na.Query()
	peer, _ := nb.Query()
	if end := start.Add(max(1, (size+mtu.Bytes()-1)/mtu.Bytes()) + 1); attr.SQPSN != end || peer.RQPSN != end {
		t.Errorf("next PSN %v, expected %v, want %v", attr.SQPSN, peer.RQPSN, end)
	}
	if c := na.cnt; c.RetransPkts+c.ImpliedNAK+nb.cnt.DuplicateRequest+nb.cnt.OutOfSeqRequest > 0 {
		t.Errorf("recovered on a perfect network: %+v", c)
	}
}

// TestReadSplitLost: any one packet of a READ that is split into several requests may be lost.
func TestReadSplitLost(t *testing.T) {
	const packets, split = 10, 3
	for lost := range 2*packets + 8 {
		a, b, w := newPair(t, 1, impairment{}, pairConfig{mtu: bth.MTU256, psnA: s0, rd: 1, split: split})
		n := 0
		w.drop = func(*frame.Packet) bool { n++; return n == lost+1 }
		src, rm := b.region(t, packets*256)
		dst, lm := a.region(t, packets*256)
		for i := range src {
			src[i] = byte(i * 3)
		}
		must(0, a.PostSend(&qp.SendWR{Opcode: qp.Read, SG: []mr.SGE{lm.SGE(0, packets*256)}, RemoteAddr: rm.Addr(), RKey: rm.RKey()}))
		must(0, a.PostSend(&qp.SendWR{Opcode: qp.Flush, Flags: qp.Signaled, FlushType: bth.FlushGlobal, RemoteAddr: rm.Addr(), RKey: rm.RKey()}))
		var done []cq.WC
		for range 1000 {
			if !w.step(a, b) {
				break
			}
			done = append(done, drain(a.send)...)
		}
		if len(done) != 1 || done[0].Status != cq.Success || !bytes.Equal(src, dst) || rm.Flushes() != 1 {
			t.Fatalf("packet %d lost: completions %+v, %d FLUSHes", lost, done, rm.Flushes())
		}
	}
}
