package qp

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// Masked atomics of 16 and 32 bytes. The headers have the arguments for the first 8 bytes of the operand, the payload
// has those for the others: for each 8 bytes swap (or add), compare, swap mask (or field boundary) and compare mask,
// as in the headers. In the answer the header has the first 8 bytes of the old value, and the payload the others.

// wideArgsLen is the payload of a masked atomic of size bytes: none up to 8.
func wideArgsLen(size int) int { return (max(size, 8)/8 - 1) * 32 }

// setWide notes the arguments of an atomic of more than 8 bytes. The slot keeps its memory for them.
func (r *sendRest) setWide(wr *SendWR) {
	if r.args == nil {
		r.args = new(MaskedArgs)
	}
	*r.args = *wr.Args
	r.swapAdd, r.compare, r.swapMask, r.cmpMask = r.args.word(wr.Opcode, 0)
}

// word returns the arguments for a word of the operand, as they are in a packet.
func (a *MaskedArgs) word(op Opcode, i int) (swapAdd, compare, swapMask, cmpMask uint64) {
	if op == MaskedFetchAdd {
		return a.CompareAdd[i], 0, a.Boundary[i], 0
	}
	return a.Swap[i], a.CompareAdd[i], a.SwapMask[i], a.CompareMask[i]
}

// putWideArgs writes the payload of an atomic.
func putWideArgs(b []byte, op Opcode, a *MaskedArgs) {
	for i := range len(b) / 32 {
		swapAdd, compare, swapMask, cmpMask := a.word(op, i+1)
		for k, v := range [...]uint64{swapAdd, compare, swapMask, cmpMask} {
			binary.BigEndian.PutUint64(b[32*i+8*k:], v)
		}
	}
}

// wideArgs reads the arguments of a request, whose payload has the right length.
func wideArgs(p *frame.Packet) (swapAdd, compare, swapMask, cmpMask mr.Words) {
	swapAdd[0], compare[0], swapMask[0], cmpMask[0] = p.Swap(), p.Compare(), p.SwapMask(), p.CompareMask()
	b := p.Payload()
	for i := 1; len(b) >= 32; i++ {
		for k, w := range [...]*mr.Words{&swapAdd, &compare, &swapMask, &cmpMask} {
			w[i] = binary.BigEndian.Uint64(b[8*k:])
		}
		b = b[32:]
	}
	return swapAdd, compare, swapMask, cmpMask
}

// wideResults keeps the old values that atomics of more than 8 bytes return, for answers that are due and for
// duplicates.
type wideResults struct {
	slots []mr.Words // a power of two
	next  uint64
}

// put keeps a result and returns its place. There are slots for all answers that may be due, and for as many as are
// kept for duplicates.
func (w *wideResults) put(r *mr.Words, kept int) (at uint64) {
	if n := ringSize(max(4*kept, firstSlots)); len(w.slots) < n {
		old := *w
		w.slots = make([]mr.Words, n)
		for i := range min(uint64(len(old.slots)), w.next) {
			*w.at(w.next - 1 - i) = *old.at(w.next - 1 - i)
		}
	}
	*w.at(w.next) = *r
	w.next++
	return w.next - 1
}

func (w *wideResults) at(i uint64) *mr.Words { return &w.slots[i&uint64(len(w.slots)-1)] }

// doWide executes an atomic of more than 8 bytes and keeps the old value.
func (q *QP) doWide(p *frame.Packet, o mr.Operand, v mr.Memory, at uint64) (place uint64, fault mr.Fault) {
	swapAdd, compare, swapMask, cmpMask := wideArgs(p)
	var old mr.Words
	if p.Op == bth.MaskedCompareSwap {
		old, fault = v.WideCompareSwap(at, o, &compare, &cmpMask, &swapAdd, &swapMask)
	} else {
		old, fault = v.WideFetchAdd(at, o, &swapAdd, &swapMask)
	}
	if fault != mr.OK {
		return 0, fault
	}
	s := &q.responder
	if s.wide == nil {
		s.wide = new(wideResults)
	}
	return s.wide.put(&old, s.saved.cap()), mr.OK
}

// emitWideAck builds the answer to an atomic of more than 8 bytes.
func (q *QP) emitWideAck(sink frame.Sink, a *answer) emission {
	const hdr = bth.BTHLen + bth.AETHLen + bth.AtomicAckETHLen
	n := hdr + int(a.length) - 8
	body, crc, ok := sink.Begin(q.path, n+bth.ICRCLen)
	if !ok {
		return blocked
	}
	old := q.responder.wide.at(a.value)
	q.putResponse(body, bth.MaskedAtomicAck, 0, a.psn)
	bth.PutAETH(body[bth.BTHLen:], bth.AckNoCredits, a.msn)
	bth.PutAtomicAckETH(body[bth.BTHLen+bth.AETHLen:], old[0])
	for i := 1; i < int(a.length)/8; i++ {
		binary.BigEndian.PutUint64(body[hdr+8*(i-1):], old[i])
	}
	seal(body, n, 0, crc)
	sink.Commit()
	q.cnt.SentPkts++
	return emitted
}

// putWideResult writes the old value of n bytes from an answer, in the byte order in which the requester stores it.
func putWideResult(buf *[mr.MaxOperand]byte, p *frame.Packet, n int, big bool) []byte {
	putOperand(buf[:], p.AtomicValue(), 8, big)
	for at := 8; at < n; at += 8 {
		putOperand(buf[at:], binary.BigEndian.Uint64(p.Payload()[at-8:]), 8, big)
	}
	return buf[:n]
}
