package qp_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// datagrams makes a UD queue pair in RTS with a Q_Key.
func datagrams(t *testing.T, v6 bool) *bench {
	b := newBench(t, pairConfig{typ: qp.UD, stopAt: inReset, v6: v6})
	walk(t, b.node, qp.RTS)
	return b
}

// TestUDSend: one packet per message, complete when it is sent, with the Q_Key
// of the work request or, if that is privileged, of the queue pair.
func TestUDSend(t *testing.T) {
	b := datagrams(t, false)
	_, m := b.region(t, 4096)
	for i, c := range []struct{ key, want bth.QKey }{{0x22222222, 0x22222222}, {0x80000000, 0x11111111}} {
		wr := send(m, 101)
		wr.Opcode, wr.Imm, wr.AH, wr.RemoteQPN, wr.RemoteQKey = qp.SendImm, 7, qp.NewAH(b.path), 0x99, c.key
		b.post(wr)
		p := b.want(bth.UDSendOnlyImm, bth.PSN(i))
		if p.QKey() != c.want || p.SrcQPN() != b.Num() || p.DestQPN() != 0x99 || p.Imm() != 7 || len(p.Payload()) != 101 {
			t.Errorf("sent %v with Q_Key %v from %v to %v", p.Op, p.QKey(), p.SrcQPN(), p.DestQPN())
		}
		b.wantDone(cq.Success)
	}
	wr := send(m, 1)
	wr.AH = qp.NewAH(b.path)
	wr.SG[0].LKey++
	b.post(wr)
	b.wantDone(cq.LocProtErr)
	b.wantState(qp.SQE)
	b.post(wr)
	b.wantDone(cq.WRFlushErr)
}

// TestUDReceive: a receive starts with the GRH area: an IPv6 header, or 20 zero bytes and an IPv4 header. A datagram
// with a wrong Q_Key, without a receive, or with a receive that is too small is dropped.
func TestUDReceive(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		b := datagrams(t, v6)
		mem, m := b.region(t, 100)
		recv := func(n int) {
			if err := b.PostRecv(&qp.RecvWR{ID: uint64(n), SG: []mr.SGE{m.SGE(0, 10), m.SGE(10, n-10)}}); err != nil {
				t.Fatal(err)
			}
		}
		d := packet{op: bth.UDSendOnly, qkey: 0x11111111, payload: []byte("hello")}
		b.inject(d) // no receive
		recv(44)
		b.inject(d) // too small
		b.inject(packet{op: bth.UDSendOnly, qkey: 0x11111112, payload: []byte("hell")})
		if wc := drain(b.recv); len(wc) != 0 || b.cnt.UDNoReceive != 2 || b.cnt.QKeyViolation != 1 {
			t.Fatalf("completions %v, counters %+v", wc, b.cnt)
		}
		b.inject(packet{op: bth.UDSendOnly, qkey: 0x11111111, payload: []byte("hell")})
		wc := drain(b.recv)
		if len(wc) != 1 || wc[0].ByteLen != 44 || wc[0].SrcQPN != 0x22 || wc[0].Flags != cq.GRH || wc[0].IPv4 == v6 {
			t.Fatalf("completions %+v", wc)
		}
		if v6 && mem[0]>>4 != 6 || !v6 && (!bytes.Equal(mem[:20], make([]byte, 20)) || mem[20] != 0x45) || string(mem[40:44]) != "hell" {
			t.Errorf("received % x", mem[:44])
		}
	}
}

// TestUDReceiveMTU: a datagram larger than the port's MTU is dropped, even if there is room for it (IBTA 9.8.3).
func TestUDReceiveMTU(t *testing.T) {
	b := datagrams(t, false)
	_, m := b.region(t, 8192)
	if err := b.PostRecv(&qp.RecvWR{SG: []mr.SGE{m.SGE(0, 8192)}}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4100, 4096} { // newBench's port carries 4096
		b.inject(packet{op: bth.UDSendOnly, qkey: 0x11111111, payload: make([]byte, n)})
	}
	if wc := drain(b.recv); len(wc) != 1 || wc[0].ByteLen != 4096+qp.GRHLen || b.cnt.UDNoReceive != 1 {
		t.Fatalf("completions %v, counters %+v", wc, b.cnt)
	}
}

// TestSimUD sends numbered datagrams over networks that lose, repeat, reorder and corrupt them. Every send completes,
// in order, and is sent once. Each datagram that arrives is whole, reports its source, and arrives at most as often
// as the network repeats it. On a good network, all datagrams arrive.
func TestSimUD(t *testing.T) {
	const messages, size = 60, 4096 + qp.GRHLen
	for seed := uint64(1); seed <= 300; seed++ {
		rng := rand.New(rand.NewPCG(seed, 5))
		imp := impairment{delay: 5 * time.Microsecond, jitter: 50 * time.Microsecond}
		copies := 1
		switch seed % 4 {
		case 1:
			imp.loss, imp.corrupt, imp.reorder = 0.1, 0.1, 0.3
		case 2:
			imp.loss, imp.dup, imp.reorder, copies = 0.1, 0.2, 0.3, 2
		case 3:
			imp.reorder = 0.3
		}
		c := pairConfig{typ: qp.UD, stopAt: inReset, v6: seed%2 == 0, caps: qp.Caps{MaxSendWR: messages, MaxRecvWR: 2 * messages, MaxSendSGE: 1, MaxRecvSGE: 1}}
		a, b, w := newPair(t, seed, imp, c)
		walk(t, a, qp.RTS)
		walk(t, b, qp.RTS)
		src, sm := a.region(t, messages*size)
		dst, dm := b.region(t, 2*messages*size)
		lengths := make([]int, messages)
		for i := range messages {
			lengths[i] = 8 + rng.IntN(4096-7)
			m := src[i*size:][:lengths[i]]
			for k := range m {
				m[k] = byte(i + k)
			}
			binary.BigEndian.PutUint64(m, uint64(i))
			for k := range 2 {
				if err := b.PostRecv(&qp.RecvWR{ID: uint64(2*i + k), SG: []mr.SGE{dm.SGE((2*i+k)*size, size)}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.PostSend(&qp.SendWR{ID: uint64(i), Opcode: qp.Send, Flags: qp.Signaled, SG: []mr.SGE{sm.SGE(i*size, lengths[i])},
				AH: qp.NewAH(a.path), RemoteQPN: b.Num(), RemoteQKey: 0x11111111}); err != nil {
				t.Fatal(err)
			}
		}
		for w.step(a, b) {
		}
		for i, wc := range drain(a.send) {
			if wc.ID != uint64(i) || wc.Status != cq.Success {
				t.Fatalf("seed %d: send %d: %+v", seed, i, wc)
			}
		}
		if w.sent != messages || a.cnt.RetransPkts != 0 || b.cnt.SentPkts != 0 {
			t.Fatalf("seed %d: %d packets sent for %d messages, %d again, %d by the receiver", seed, w.sent, messages, a.cnt.RetransPkts, b.cnt.SentPkts)
		}
		seen := map[int]int{}
		for _, wc := range drain(b.recv) {
			got := dst[int(wc.ID)*size:][:wc.ByteLen]
			i := int(binary.BigEndian.Uint64(got[qp.GRHLen:]))
			if wc.Status != cq.Success || wc.SrcQPN != a.Num() || i >= messages || !bytes.Equal(got[qp.GRHLen:], src[i*size:][:lengths[i]]) {
				t.Fatalf("seed %d: receive %d: %+v, message %d", seed, wc.ID, wc, i)
			}
			if seen[i]++; seen[i] > copies {
				t.Fatalf("seed %d: message %d came %d times", seed, i, seen[i])
			}
			grh, err := frame.ParseGRH(got)
			if err != nil || grh.Src != bth.GIDFrom(a.addr) || grh.Dst != bth.GIDFrom(b.addr) || grh.HopLimit != 64 {
				t.Fatalf("seed %d: GRH %+v, %v", seed, grh, err)
			}
		}
		if imp.loss == 0 && len(seen) != messages {
			t.Fatalf("seed %d: %d of %d messages on a network that loses none", seed, len(seen), messages)
		}
	}
}
