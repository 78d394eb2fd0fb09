package qp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// TestMaskedErrors is the table of masked atomics that a responder must refuse.
func TestMaskedErrors(t *testing.T) {
	var table []refusal
	add := func(name string, nak bth.Syndrome, event qp.EventType, change func(m *mr.MR, p *packet)) {
		for _, op := range []bth.Opcode{bth.MaskedCompareSwap, bth.MaskedFetchAdd} {
			table = append(table, refusal{name: op.String() + " " + name, config: pairConfig{masked: true}, nak: nak, event: event, recv: cq.WRFlushErr,
				bad: func(m *mr.MR) packet {
					p := packet{op: op, va: m.Addr(), key: m.RKey(), size: 4, swap: ^uint64(0), swapMask: ^uint64(0)}
					change(m, &p)
					return p
				}})
		}
	}
	for _, size := range []uint8{0, 3, 5, 6, 7, 9, 16, 255} {
		add("of no such size", bth.NAKInvalidRequest, qp.EventReqErr, func(_ *mr.MR, p *packet) { p.size = size })
	}
	for _, tt := range []struct {
		size uint8
		off  uint64
	}{{2, 1}, {4, 2}, {4, 3}, {8, 4}, {8, 1}} {
		add("unaligned", bth.NAKInvalidRequest, qp.EventReqErr, func(_ *mr.MR, p *packet) { p.size, p.va = tt.size, p.va+tt.off })
	}
	add("with an unknown key", bth.NAKRemoteAccess, qp.EventAccessErr, func(_ *mr.MR, p *packet) { p.key ^= 1 })
	add("beyond the region", bth.NAKRemoteAccess, qp.EventAccessErr, func(m *mr.MR, p *packet) { p.va += uint64(m.Length()) })
	add("at the end of addresses", bth.NAKRemoteAccess, qp.EventAccessErr, func(_ *mr.MR, p *packet) { p.va = ^uint64(0) - 3 })
	checkRefusals(t, table)
}

// TestMaskedResponder: operands of every size. The answer has the old value in its low bytes. A duplicate is not
// executed again.
func TestMaskedResponder(t *testing.T) {
	b, mem, region := server(t, pairConfig{masked: true})
	psn := e0
	for _, tt := range []struct {
		name   string
		p      packet
		off    int
		n      int
		before uint64
		want   uint64
	}{
		{"bytes carry nothing into each other", packet{op: bth.MaskedFetchAdd, swap: 0x0101, swapMask: 0x8080, size: 2}, 6, 2, 0x7FFF, 0x8000},
		{"one field of 8 bytes", packet{op: bth.MaskedFetchAdd, swap: 1, size: 8}, 8, 8, 0xFFFFFFFF, 0x100000000},
		{"the operand ends the last field", packet{op: bth.MaskedFetchAdd, swap: 0xFFFF02, size: 1}, 17, 1, 0xFF, 0x01},
		{"fields of a bit", packet{op: bth.MaskedFetchAdd, swap: 0xFFFFFFFF, swapMask: ^uint64(0), size: 4}, 20, 4, 0x0000FFFF, 0xFFFF0000},
		{"compares some bits, stores others", packet{op: bth.MaskedCompareSwap, compare: 0xFF34, cmpMask: 0xFF, swap: 0xABCD, swapMask: 0xF00, size: 2}, 24, 2, 0x1234, 0x1B34},
		{"differs in a bit that counts", packet{op: bth.MaskedCompareSwap, compare: 0x35, cmpMask: 0xFF, swap: 0xABCD, swapMask: 0xFFFF, size: 2}, 26, 2, 0x1234, 0x1234},
		{"compares nothing", packet{op: bth.MaskedCompareSwap, compare: 1, swap: ^uint64(0), swapMask: 1 << 63, size: 8}, 32, 8, 5, 1<<63 | 5},
		{"bits beyond the operand do not count", packet{op: bth.MaskedCompareSwap, compare: 0x1FF05, cmpMask: ^uint64(0), swap: ^uint64(0), swapMask: ^uint64(0), size: 1}, 41, 1, 5, 0xFF},
	} {
		number := func(v uint64) []byte {
			b := binary.LittleEndian.AppendUint64(nil, v)[:tt.n]
			if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
				b = binary.BigEndian.AppendUint64(nil, v)[8-tt.n:]
			}
			return b
		}
		for i := range mem[:64] {
			mem[i] = 0xEE
		}
		want := bytes.Clone(mem)
		copy(mem[tt.off:], number(tt.before))
		copy(want[tt.off:], number(tt.want))
		tt.p.psn, tt.p.va, tt.p.key = psn, region.Addr()+uint64(tt.off), region.RKey()
		for range 2 { // the second is repeated from what was saved
			b.inject(tt.p)
			p := b.want(bth.RCAtomicAck, psn)
			if p.AtomicValue() != tt.before || !bytes.Equal(mem, want) {
				t.Errorf("%s: answer %#x, memory %x; want %#x, %x", tt.name, p.AtomicValue(), mem[tt.off:tt.off+tt.n], tt.before, want[tt.off:tt.off+tt.n])
			}
		}
		psn = psn.Add(1)
	}
}

// TestMaskedRequester: the fields of the requests, and the memory that the answers change.
func TestMaskedRequester(t *testing.T) {
	b, mem, m := client(t, pairConfig{masked: true})
	b.post(qp.SendWR{Opcode: qp.MaskedCompareSwap, SG: []mr.SGE{m.SGE(0, 2)}, RemoteAddr: 0x1006, RKey: 0x77,
		CompareAdd: 1, Swap: 2, CompareMask: 3, SwapMask: 4, Boundary: 5})
	p := b.want(bth.MaskedCompareSwap, s0)
	if p.VA() != 0x1006 || p.RKey() != 0x77 || p.Compare() != 1 || p.Swap() != 2 || p.CompareMask() != 3 || p.SwapMask() != 4 ||
		p.OperandSize() != 2 || !p.AckReq() {
		t.Errorf("sent %v", ptr(bth.Decode(&p.Packet)))
	}
	b.post(qp.SendWR{Opcode: qp.MaskedFetchAdd, SG: []mr.SGE{m.SGE(8, 1), m.SGE(16, 3)}, RemoteAddr: 0x1004, RKey: 0x77,
		CompareAdd: 9, Swap: 2, CompareMask: 3, SwapMask: 4, Boundary: 0x80})
	p = b.want(bth.MaskedFetchAdd, s0.Add(1))
	if p.Swap() != 9 || p.Compare() != 0 || p.SwapMask() != 0x80 || p.CompareMask() != 0 || p.OperandSize() != 4 {
		t.Errorf("sent %v", ptr(bth.Decode(&p.Packet)))
	}
	before := bytes.Clone(mem)
	b.inject(packet{op: bth.RCAtomicAck, psn: s0, syndrome: bth.AckNoCredits, value: 0x1122})
	b.inject(packet{op: bth.RCAtomicAck, psn: s0.Add(1), syndrome: bth.AckNoCredits, value: 0x33445566})
	binary.NativeEndian.PutUint16(before, 0x1122)
	word := binary.NativeEndian.AppendUint32(nil, 0x33445566)
	before[8] = word[0]
	copy(before[16:], word[1:])
	if !bytes.Equal(mem, before) {
		t.Errorf("memory %x, want %x", mem[:24], before[:24])
	}
	wcs := drain(b.send)
	if len(wcs) != 2 || wcs[0].Opcode != cq.OpMaskedCompSwap || wcs[0].ByteLen != 2 || wcs[1].Opcode != cq.OpMaskedFetchAdd || wcs[1].ByteLen != 4 {
		t.Errorf("completions %+v", wcs)
	}
}

func ptr[T any](v T) *T { return &v }

// TestMaskedDisabled: a queue pair that has not enabled masked atomics drops them, like a stack that does not know
// them. The requester's retries run out. Such a queue pair cannot send masked atomics.
func TestMaskedDisabled(t *testing.T) {
	b, mem, region := server(t, pairConfig{})
	b.inject(packet{op: bth.MaskedFetchAdd, psn: e0, va: region.Addr(), key: region.RKey(), swap: 1, size: 8})
	b.wantSilence()
	if b.cnt.WrongTransport != 1 || mem[0] != 0 {
		t.Errorf("%d of another transport, memory %x", b.cnt.WrongTransport, mem[:8])
	}
	b.wantState(qp.RTS)

	b, _, m := client(t, pairConfig{masked: true, retry: 1})
	b.post(qp.SendWR{Opcode: qp.MaskedFetchAdd, SG: []mr.SGE{m.SGE(0, 8)}})
	b.want(bth.MaskedFetchAdd, s0)
	b.expire()
	b.want(bth.MaskedFetchAdd, s0)
	b.expire()
	b.wantDone(cq.RetryExcErr)

	wr := qp.SendWR{Opcode: qp.MaskedFetchAdd}
	plain, _, m := client(t, pairConfig{})
	masked, _, mm := client(t, pairConfig{masked: true})
	for _, tt := range []struct {
		name string
		b    *bench
		sg   mr.SGE
		addr uint64
	}{
		{"not enabled", plain, m.SGE(0, 8), 0},
		{"nothing", masked, mm.SGE(0, 0), 0},
		{"3 bytes", masked, mm.SGE(0, 3), 0},
		{"16 bytes", masked, mm.SGE(0, 16), 0},
		{"unaligned", masked, mm.SGE(0, 4), 6},
	} {
		wr.SG, wr.RemoteAddr = []mr.SGE{tt.sg}, tt.addr
		if err := tt.b.PostSend(&wr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	wr = qp.SendWR{Opcode: qp.MaskedFetchAdd, Inline: make([]byte, 8)}
	if err := masked.PostSend(&wr); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("inline: %v", err)
	}
	if _, err := qp.New(qp.Config{Type: qp.UC, PD: plain.pd, Memory: plain.mem, SendCQ: plain.send, RecvCQ: plain.recv, MaskedAtomics: true}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("on UC: %v", err)
	}
}
