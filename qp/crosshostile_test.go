package qp_test

import (
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// forged is a packet that says it comes from the peer of a queue pair.
func forged(t testing.TB, to *node, f bth.Fields) *frame.Packet {
	t.Helper()
	f.BTH.PKey, f.BTH.DestQPN = bth.DefaultPKey, to.Num()
	payload := f.Append(nil)
	path := to.peer.path
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+len(payload)+bth.ICRCLen)
	body, crc := path.Put(b, frame.LayoutEthernet, len(payload)+bth.ICRCLen, 1)
	copy(body, payload)
	bth.PutICRC(body[len(payload):], crc.UpdateBody(payload))
	p := new(frame.Packet)
	if err := p.Parse(b, frame.LayoutEthernet); err != nil {
		t.Fatal("made a bad packet:", err)
	}
	return p
}

// crossForgery returns a random packet of a peer that knows PSNs and queue pair numbers. It guesses the key of a
// region among so many keys.
func crossForgery(t testing.TB, w *network, to *node, region *mr.MR, keys uint32) *frame.Packet {
	key := region.RKey() + bth.RKey(w.rng.Uint32N(keys))
	ops := []bth.Opcode{bth.RCAck, bth.RCAck, bth.RCAck, bth.RCSendOnly, bth.RCSendOnly, bth.RCSendOnlyImm, bth.RCWriteOnly, bth.RCReadRequest,
		bth.RCReadResponseOnly, bth.RCAtomicAck, bth.RCFetchAdd}
	op := ops[w.rng.IntN(len(ops))]
	f := bth.Fields{BTH: bth.BTHFields{Op: op, PSN: bth.PSN(w.rng.IntN(6)), Flags: bth.AckReq}}
	has := func(h bth.HeaderSet) bool { return op.Info().Headers&h != 0 }
	if has(bth.HasRETH) {
		f.RETH = &bth.RETHFields{VA: region.Addr(), RKey: key}
	}
	if has(bth.HasAtomicETH) {
		f.AtomicETH = &bth.AtomicETHFields{VA: region.Addr(), RKey: key}
	}
	if has(bth.HasAETH) {
		kinds := []bth.Syndrome{bth.AckNoCredits, bth.AckNoCredits, 1, 0x20, 0x2A, 0x60, 0x61, 0x62, 0x63}
		f.AETH = &bth.AETHFields{Syndrome: kinds[w.rng.IntN(len(kinds))], MSN: bth.MSN(w.rng.IntN(5))}
	}
	if has(bth.HasAtomicAckETH) {
		f.AtomicAckETH = &bth.AtomicAckETHFields{}
	}
	if has(bth.HasImm) {
		imm := w.rng.Uint32()
		f.Imm = &imm
	}
	return forged(t, to, f)
}

// TestCrossHostilePeer: whatever the peer of a managed queue pair sends, it neither releases nor
// completes a work request that is held, gets no receive that is held, and ends no wait but by an error of the
// queue pair.
func TestCrossHostilePeer(t *testing.T) {
	failed := 0
	for seed := range uint64(60) {
		w, m, _, s, _ := chain(t, seed, impairment{}, nil)
		_, region := s.region(t, 64)
		requests := 0
		w.drop = func(p *frame.Packet) bool { // no packet of the true peers arrives
			if p.Info.Flags&bth.Request != 0 && p.Dst == bth.GIDFrom(s.peer.addr) {
				requests++
			}
			return true
		}
		post(t, s, qp.SendWR{ID: 1, Opcode: qp.Send, Flags: qp.Signaled}, qp.SendWR{ID: 2, Opcode: qp.Write, Flags: qp.Signaled},
			qp.SendWR{ID: 3, Opcode: qp.CQEWait, WaitCQ: m.recv, Count: 1, Flags: qp.Signaled})
		postEmptyRecvs(t, s, 2)
		post(t, m, qp.SendWR{ID: 10, Opcode: qp.CQEWait, WaitCQ: s.recv, Count: 1, Flags: qp.Signaled},
			qp.SendWR{ID: 11, Opcode: qp.CQEWait, WaitCQ: s.send, Count: 1, Flags: qp.Signaled})
		for range 400 {
			s.HandlePacket(w.now, crossForgery(t, w, s, region, 1+uint32(seed%2)))
			w.now = w.now.Add(time.Microsecond)
			w.pump(m, s)
		}
		got := outcomes(drain(s.send)) + outcomes(drain(s.recv)) + outcomes(drain(m.send))
		want := "[][][]"
		if s.State() == qp.Err {
			failed++
			want = "[1 WR_FLUSH_ERR 2 WR_FLUSH_ERR 3 WR_FLUSH_ERR][0 WR_FLUSH_ERR 1 WR_FLUSH_ERR][10 SUCCESS 11 SUCCESS]"
		}
		if got != want || requests != 0 {
			t.Fatalf("seed %d, state %v: completed %s, want %s; %d requests were sent", seed, s.State(), got, want, requests)
		}
		if s.State() == qp.Err {
			continue
		}
		post(t, m.peer, qp.SendWR{Opcode: qp.SendEnable, Enable: s.QP, Count: 1})
		if w.pump(m.peer, s); requests != 1 {
			t.Fatalf("seed %d: %d requests were sent after one was enabled", seed, requests)
		}
	}
	if failed == 0 || failed == 60 {
		t.Errorf("%d of 60 hostile peers moved the queue pair to ERR: the test needs both", failed)
	}
}
