package qp_test

import (
	"bytes"
	"testing"

	"github.com/goroce/roce/bth"
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
		wr.Opcode, wr.Imm, wr.AH, wr.RemoteQPN, wr.RemoteQKey = qp.SendImm, 7, b.path, 0x99, c.key
		b.post(wr)
		p := b.want(bth.UDSendOnlyImm, bth.PSN(i))
		if p.QKey() != c.want || p.SrcQPN() != b.Num() || p.DestQPN() != 0x99 || p.Imm() != 7 || len(p.Payload()) != 101 {
			t.Errorf("sent %v with Q_Key %v from %v to %v", p.Op, p.QKey(), p.SrcQPN(), p.DestQPN())
		}
		b.wantDone(cq.Success)
	}
	wr := send(m, 1)
	wr.AH = b.path
	wr.SG[0].LKey++
	b.post(wr)
	b.wantDone(cq.LocProtErr)
	b.wantState(qp.SQE)
	b.post(wr)
	b.wantDone(cq.WRFlushErr)
}

// TestUDReceive: the GRH area comes first: an IPv6 header, or 20 zero bytes
// and an IPv4 header. A wrong Q_Key, no receive or a small one: dropped.
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
		if len(wc) != 1 || wc[0].ByteLen != 44 || wc[0].SrcQPN != 0x22 || wc[0].Flags != cq.GRH {
			t.Fatalf("completions %+v", wc)
		}
		if v6 && mem[0]>>4 != 6 || !v6 && (!bytes.Equal(mem[:20], make([]byte, 20)) || mem[20] != 0x45) || string(mem[40:44]) != "hell" {
			t.Errorf("received % x", mem[:44])
		}
	}
}
