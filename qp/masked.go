package qp

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// Atomics with operands of 1 to 32 bytes that compare and store under masks, or add field by field (the extended
// atomics of Mellanox). Their packets are an extension of this stack: see docs/masked-atomics.md. wide.go has the
// differences for operands of more than 8 bytes.

// maxAtomicArg returns how many bytes an operand may have, 0 without masked atomics.
func (c *Config) maxAtomicArg() uint8 {
	if !c.MaskedAtomics {
		return 0
	}
	return uint8(max(c.MaxAtomicArg, 8))
}

// checkAtomic returns why an atomic cannot be posted, or "".
func checkAtomic(wr *SendWR, n uint64) string {
	switch {
	case n != 8:
		return fmt.Sprintf("an atomic returns 8 bytes, the scatter list has %d", n)
	case wr.RemoteAddr&7 != 0:
		return fmt.Sprintf("remote address %#x of an atomic is not 8-byte aligned", wr.RemoteAddr)
	}
	return ""
}

// checkMasked returns why a masked atomic cannot be posted, or "".
func (q *QP) checkMasked(wr *SendWR, n uint64) string {
	switch {
	case q.maxArg == 0:
		return fmt.Sprintf("%v needs Config.MaskedAtomics, here and at the peer", wr.Opcode)
	case !operandSize(n):
		return fmt.Sprintf("an operand has 1, 2, 4, 8, 16 or 32 bytes, the scatter list has %d", n)
	case n > uint64(q.maxArg):
		return fmt.Sprintf("an operand of %d bytes, the queue pair has MaxAtomicArg %d", n, q.maxArg)
	case wr.RemoteAddr&(n-1) != 0:
		return fmt.Sprintf("remote address %#x is not a multiple of the operand's %d bytes", wr.RemoteAddr, n)
	case (wr.Args != nil) != (n > 8):
		return fmt.Sprintf("Args are required for operands of more than 8 bytes and not allowed for others; this one has %d", n)
	}
	return ""
}

// operandSize reports whether a masked atomic may operate on n bytes.
func operandSize(n uint64) bool { return n != 0 && n <= mr.MaxOperand && n&(n-1) == 0 }

// operand returns the address and the size of the memory that an atomic operates on.
func operand(p *frame.Packet) mr.Operand {
	if p.Info.Flags&bth.Masked != 0 {
		return mr.Operand{VA: p.VA(), Size: int(p.OperandSize())}
	}
	return mr.Operand{VA: p.VA(), Size: 8}
}

// admitsOperand checks the operand of an atomic: its size is allowed, its address is a multiple of the size, and the
// arguments of an operand of more than 8 bytes are behind the headers.
func (q *QP) admitsOperand(o mr.Operand, payload int) bool {
	return operandSize(uint64(o.Size)) && o.VA&uint64(o.Size-1) == 0 &&
		o.Size <= max(int(q.maxArg), 8) && payload == wideArgsLen(o.Size)
}

// setAtomic notes the operands of an atomic.
func (r *sendRest) setAtomic(wr *SendWR) {
	if wr.Args != nil {
		r.setWide(wr)
		return
	}
	switch wr.Opcode {
	case CompareSwap:
		r.swapAdd, r.compare = wr.Swap, wr.CompareAdd
	case FetchAdd:
		r.swapAdd, r.compare = wr.CompareAdd, 0
	case MaskedCompareSwap:
		r.swapAdd, r.compare, r.swapMask, r.cmpMask = wr.Swap, wr.CompareAdd, wr.SwapMask, wr.CompareMask
	case MaskedFetchAdd:
		r.swapAdd, r.compare, r.swapMask, r.cmpMask = wr.CompareAdd, 0, wr.Boundary, 0
	}
}

// doAtomic executes an atomic and returns the old value, or for more than 8 bytes its place in wideResults.
func (q *QP) doAtomic(p *frame.Packet, o mr.Operand) (old uint64, fault mr.Fault) {
	v, at, fault := q.mem.Remote(q.responder.pd, q.num, p.RKey(), o.VA, uint64(o.Size), mr.RemoteAtomic)
	if fault != mr.OK {
		return 0, fault
	}
	if o.Size > 8 {
		return q.doWide(p, o, v, at)
	}
	switch p.Op &^ q.base {
	case bth.MaskedCompareSwap:
		return v.MaskedCompareSwap(at, o, p.Compare(), p.CompareMask(), p.Swap(), p.SwapMask())
	case bth.MaskedFetchAdd:
		return v.MaskedFetchAdd(at, o, p.Swap(), p.SwapMask())
	case bth.RCCompareSwap:
		return v.CompareSwap(at, p.Compare(), p.Swap())
	}
	return v.FetchAdd(at, p.Swap())
}

// hostBig reports whether the host stores the most significant byte first.
var hostBig = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// putOperand writes an operand of n bytes, up to 8, to b, which has room for 8. It returns the n bytes.
func putOperand(b []byte, v uint64, n int, big bool) []byte {
	if big {
		binary.BigEndian.PutUint64(b, v<<(64-8*n))
	} else {
		binary.LittleEndian.PutUint64(b, v)
	}
	return b[:n]
}

// atomicResult returns the old value that an answer carries, in the byte order in which the requester stores it. It
// returns nil if the answer does not fit an operand of n bytes.
func (q *QP) atomicResult(buf *[mr.MaxOperand]byte, p *frame.Packet, n int) []byte {
	big := hostBig || q.bigReply
	switch wide := p.Op == bth.MaskedAtomicAck; {
	case wide != (n > 8), wide && len(p.Payload()) != n-8:
		return nil
	case wide:
		return putWideResult(buf, p, n, big)
	}
	return putOperand(buf[:], p.AtomicValue(), n, big)
}
