package qp

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// Atomics with operands of 1, 2, 4 or 8 bytes that compare and store under
// masks, or add field by field (the extended atomics of Mellanox). On the wire
// they are this stack's own: see docs/masked-atomics.md.

// checkAtomic refuses an atomic while posting.
func checkAtomic(wr *SendWR, n uint64) string {
	switch {
	case n != 8:
		return fmt.Sprintf("an atomic returns 8 bytes, the scatter list has %d", n)
	case wr.RemoteAddr&7 != 0:
		return fmt.Sprintf("remote address %#x of an atomic is not 8-byte aligned", wr.RemoteAddr)
	}
	return ""
}

// checkMasked refuses a masked atomic while posting.
func (q *QP) checkMasked(wr *SendWR, n uint64) string {
	switch {
	case !q.masked:
		return fmt.Sprintf("%v needs Config.MaskedAtomics, here and at the peer", wr.Opcode)
	case !operandSize(n):
		return fmt.Sprintf("an operand has 1, 2, 4 or 8 bytes, the scatter list has %d", n)
	case wr.RemoteAddr&(n-1) != 0:
		return fmt.Sprintf("remote address %#x is not a multiple of the operand's %d bytes", wr.RemoteAddr, n)
	}
	return ""
}

// operandSize reports whether a masked atomic may operate on n bytes.
func operandSize(n uint64) bool { return n == 1 || n == 2 || n == 4 || n == 8 }

// operand is what an atomic operates on.
func operand(p *frame.Packet) mr.Operand {
	if p.Info.Flags&bth.Masked != 0 {
		return mr.Operand{VA: p.VA(), Size: int(p.OperandSize())}
	}
	return mr.Operand{VA: p.VA(), Size: 8}
}

// aligned is the check of length of an atomic: the address is a multiple of the size.
func aligned(o mr.Operand) bool {
	return operandSize(uint64(o.Size)) && o.VA&uint64(o.Size-1) == 0
}

// setAtomic notes the operands of an atomic.
func (r *sendRest) setAtomic(wr *SendWR) {
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

// doAtomic carries an atomic out and returns what was there.
func (q *QP) doAtomic(p *frame.Packet) (old uint64, fault mr.Fault) {
	o := operand(p)
	v, at, fault := q.mem.Remote(q.responder.pd, q.num, p.RKey(), o.VA, uint64(o.Size), mr.RemoteAtomic)
	if fault != mr.OK {
		return 0, fault
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

// putOperand writes an operand of n bytes as the host stores it.
func putOperand(b *[8]byte, v uint64, n int) []byte {
	switch n {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b[:], uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b[:], uint32(v))
	default:
		binary.NativeEndian.PutUint64(b[:], v)
	}
	return b[:n]
}
