package qp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// wordBytes returns numbers as the bytes of memory, in the given byte order.
func wordBytes(order binary.AppendByteOrder, words ...uint64) (b []byte) {
	for _, w := range words {
		b = order.AppendUint64(b, w)
	}
	return b
}

// TestWideErrors: a responder refuses wrong masked atomics of more than 8 bytes.
func TestWideErrors(t *testing.T) {
	var table []refusal
	for _, op := range []bth.Opcode{bth.MaskedCompareSwap, bth.MaskedFetchAdd} {
		for _, tt := range []struct {
			limit, size, payload int
			off                  uint64
			nak                  bth.Syndrome
			event                qp.EventType
		}{
			{8, 16, 32, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{16, 32, 96, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 64, 224, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 24, 64, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{8, 8, 32, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 4, 4, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 16, 0, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 16, 36, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 32, 32, 0, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 32, 96, 16, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 16, 32, 8, bth.NAKInvalidRequest, qp.EventReqErr},
			{32, 32, 96, 1 << 20, bth.NAKRemoteAccess, qp.EventAccessErr},
		} {
			table = append(table, refusal{name: fmt.Sprintf("%v %+v", op, tt), config: pairConfig{masked: true, maxArg: tt.limit}, nak: tt.nak, event: tt.event, recv: cq.WRFlushErr,
				bad: func(m *mr.MR) packet {
					return packet{op: op, va: (m.Addr()+31)&^31 + tt.off, key: m.RKey(), size: uint8(tt.size), swap: 1, swapMask: ^uint64(0), payload: make([]byte, tt.payload)}
				}})
		}
	}
	checkRefusals(t, table)
}

// TestWideResponder: the operands of the first 8 bytes are in the headers, the others behind them. The answer has all
// words. A repeated request gets the same answer, even after many others, and changes nothing.
func TestWideResponder(t *testing.T) {
	b, mem, region := server(t, pairConfig{masked: true, maxArg: mr.MaxOperand, rd: 2})
	at := int(-region.Addr() & 31)
	va := region.Addr() + uint64(at)
	order := binary.NativeEndian
	copy(mem[at:], wordBytes(order, 1, 2, 3, 4, 0x55))
	psn := e0
	ask := func(p packet, want ...uint64) {
		t.Helper()
		p.psn, p.va, p.key = psn, va, region.RKey()
		for range 2 {
			b.inject(p)
			got := b.want(bth.MaskedAtomicAck, psn)
			if got.AtomicValue() != want[0] || !bytes.Equal(got.Payload(), wordBytes(binary.BigEndian, want[1:]...)) {
				t.Errorf("answer %#x %x, want %x", got.AtomicValue(), got.Payload(), want)
			}
		}
		psn = psn.Add(1)
	}
	is := func(want ...uint64) {
		t.Helper()
		if got := mem[at:][:8*len(want)]; !bytes.Equal(got, wordBytes(order, want...)) {
			t.Errorf("memory %x, want %x", got, want)
		}
	}
	args := func(words ...uint64) []byte { return wordBytes(binary.BigEndian, words...) }
	ask(packet{op: bth.MaskedFetchAdd, size: 16, swap: ^uint64(0), payload: args(5, 0, 0, 0)}, 1, 2)
	is(0, 7, 3, 4, 0x55) // nothing is carried into the second word
	for range 20 {
		ask(packet{op: bth.MaskedFetchAdd, size: 32, swapMask: 1 << 63, payload: make([]byte, 96)}, 0, 7, 3, 4)
	}
	compare := packet{op: bth.MaskedCompareSwap, size: 32, compare: 0, cmpMask: ^uint64(0), swap: 0xA, swapMask: 0xF,
		payload: args(0xB0, 7, 0xF0, 0xFF, 0xC, 3, 0xF, 1, 0xD, 5, ^uint64(0), 4)}
	ask(compare, 0, 7, 3, 4)
	is(0xA, 0xB7, 0xC, 0xD, 0x55)
	ask(compare, 0xA, 0xB7, 0xC, 0xD) // the first word differs now
	is(0xA, 0xB7, 0xC, 0xD, 0x55)
	b.inject(packet{op: bth.MaskedFetchAdd, psn: psn.Add(-1), va: va, key: region.RKey(), size: 16, payload: make([]byte, 32)})
	if got := b.want(bth.MaskedAtomicAck, psn.Add(-1)); len(got.Payload()) != 24 {
		t.Errorf("a duplicate of another size is answered with %d bytes", len(got.Payload()))
	}
	is(0xA, 0xB7, 0xC, 0xD, 0x55)
}

// TestWideRequester: the fields of the requests, and the memory that the answers change, in the byte order of the
// host and in network byte order.
func TestWideRequester(t *testing.T) {
	for _, big := range []bool{false, true} {
		b, mem, m := client(t, pairConfig{masked: true, maxArg: mr.MaxOperand, bigReply: big})
		args := &qp.MaskedArgs{CompareAdd: mr.Words{1, 2, 3, 4}, CompareMask: mr.Words{5, 6, 7, 8}, Swap: mr.Words{9, 10, 11, 12}, SwapMask: mr.Words{13, 14, 15, 16},
			Boundary: mr.Words{17, 18, 19, 20}}
		b.post(qp.SendWR{Opcode: qp.MaskedCompareSwap, SG: []mr.SGE{m.SGE(0, 32)}, RemoteAddr: 0x1020, RKey: 0x77, Args: args})
		p := b.want(bth.MaskedCompareSwap, s0)
		if p.OperandSize() != 32 || p.Swap() != 9 || p.Compare() != 1 || p.SwapMask() != 13 || p.CompareMask() != 5 ||
			!bytes.Equal(p.Payload(), wordBytes(binary.BigEndian, 10, 2, 14, 6, 11, 3, 15, 7, 12, 4, 16, 8)) {
			t.Errorf("sent %v", ptr(bth.Decode(&p.Packet)))
		}
		b.post(qp.SendWR{Opcode: qp.MaskedFetchAdd, SG: []mr.SGE{m.SGE(40, 10), m.SGE(56, 6)}, RemoteAddr: 0x1010, RKey: 0x77, Args: args})
		*args = qp.MaskedArgs{} // they were copied
		p = b.want(bth.MaskedFetchAdd, s0.Add(1))
		if p.OperandSize() != 16 || p.Swap() != 1 || p.Compare() != 0 || p.SwapMask() != 17 || p.CompareMask() != 0 ||
			!bytes.Equal(p.Payload(), wordBytes(binary.BigEndian, 2, 0, 18, 0)) {
			t.Errorf("sent %v", ptr(bth.Decode(&p.Packet)))
		}
		b.post(qp.SendWR{Opcode: qp.MaskedFetchAdd, SG: []mr.SGE{m.SGE(80, 2)}, RemoteAddr: 0x1010, RKey: 0x77})
		b.want(bth.MaskedFetchAdd, s0.Add(2))
		want := bytes.Clone(mem)
		b.inject(packet{op: bth.MaskedAtomicAck, psn: s0, syndrome: bth.AckNoCredits, value: 0x101, payload: wordBytes(binary.BigEndian, 0x202, 0x303, 0x404)})
		b.inject(packet{op: bth.MaskedAtomicAck, psn: s0.Add(1), syndrome: bth.AckNoCredits, value: 0x505, payload: wordBytes(binary.BigEndian, 0x606)})
		b.inject(packet{op: bth.RCAtomicAck, psn: s0.Add(2), syndrome: bth.AckNoCredits, value: 0x1234})
		order := binary.AppendByteOrder(binary.NativeEndian)
		if big {
			order = binary.BigEndian
		}
		copy(want, wordBytes(order, 0x101, 0x202, 0x303, 0x404))
		second := wordBytes(order, 0x505, 0x606)
		copy(want[40:], second[:10])
		copy(want[56:], second[10:])
		copy(want[80:], order.AppendUint16(nil, 0x1234))
		if !bytes.Equal(mem, want) {
			t.Errorf("big-endian %v: memory %x, want %x", big, mem[:96], want[:96])
		}
		if wcs := drain(b.send); len(wcs) != 3 || wcs[0].ByteLen != 32 || wcs[1].ByteLen != 16 || wcs[0].Opcode != cq.OpMaskedCompSwap {
			t.Errorf("completions %+v", wcs)
		}
	}
}

// TestWideBadAnswers: an answer of another length, or of the kind for other operands, ends the work request.
func TestWideBadAnswers(t *testing.T) {
	wide := func(n int) packet {
		return packet{op: bth.MaskedAtomicAck, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, n)}
	}
	for _, tt := range []struct {
		size   int
		answer packet
	}{
		{8, wide(0)}, {8, wide(8)}, {16, wide(0)}, {16, wide(24)}, {32, wide(8)}, {16, packet{op: bth.RCAtomicAck, psn: s0, syndrome: bth.AckNoCredits}},
	} {
		b, _, m := client(t, pairConfig{masked: true, maxArg: mr.MaxOperand})
		wr := qp.SendWR{Opcode: qp.MaskedFetchAdd, SG: []mr.SGE{m.SGE(0, tt.size)}}
		if tt.size > 8 {
			wr.Args = new(qp.MaskedArgs)
		}
		b.post(wr)
		b.want(bth.MaskedFetchAdd, s0)
		b.inject(tt.answer)
		b.wantDone(cq.BadRespErr)
	}
}

// TestWideRefused: New and PostSend refuse these limits and operands.
func TestWideRefused(t *testing.T) {
	for _, tt := range []struct {
		limit, size int
		args        *qp.MaskedArgs
		addr        uint64
		fits        bool
	}{
		{0, 16, new(qp.MaskedArgs), 0, false},
		{8, 16, new(qp.MaskedArgs), 0, false},
		{16, 32, new(qp.MaskedArgs), 0, false},
		{32, 64, new(qp.MaskedArgs), 0, false},
		{32, 24, new(qp.MaskedArgs), 0, false},
		{32, 16, nil, 0, false},
		{32, 8, new(qp.MaskedArgs), 0, false},
		{32, 16, new(qp.MaskedArgs), 8, false},
		{32, 32, new(qp.MaskedArgs), 16, false},
		{16, 16, new(qp.MaskedArgs), 16, true},
		{32, 16, new(qp.MaskedArgs), 16, true},
		{16, 8, nil, 8, true},
	} {
		b, _, m := client(t, pairConfig{masked: true, maxArg: tt.limit})
		err := b.PostSend(&qp.SendWR{Opcode: qp.MaskedFetchAdd, SG: []mr.SGE{m.SGE(0, tt.size)}, RemoteAddr: tt.addr, Args: tt.args})
		if tt.fits != (err == nil) || err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	n, _, _ := client(t, pairConfig{})
	for _, limit := range []int{-8, 1, 4, 9, 24, 64, 264} {
		for _, masked := range []bool{true, false} {
			c := qp.Config{Type: qp.RC, PD: n.pd, Memory: n.mem, SendCQ: n.send, RecvCQ: n.recv, MaskedAtomics: masked, MaxAtomicArg: limit}
			if _, err := qp.New(c); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
	}
}
