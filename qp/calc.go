package qp

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goroce/roce/mr"
)

// Calc is a reduction (struct calc of ibv_exp_send_wr). Every element of the scatter/gather list is a vector of
// numbers of 64 bits in network byte order, all of one length. The message is one vector: each of its numbers is the
// reduction of the numbers at the same place in all elements, from the first element to the last one.
//
// The requester computes a reduction when it builds a packet, and again when it repeats the packet. On the wire the
// result looks like any other data.
type Calc struct {
	Op   CalcOp
	Type CalcType
	Size CalcSize
}

// CalcOp is an operation, with the values of enum ibv_exp_calc_op.
type CalcOp uint8

// The operations. Those on bits take integers only.
const (
	CalcAdd  CalcOp = 0 // integers wrap around
	CalcBAnd CalcOp = 2
	CalcBXor CalcOp = 3
	CalcBOr  CalcOp = 4
)

// CalcType is the type of the numbers, with the values of enum ibv_exp_calc_data_type.
type CalcType uint8

// The types.
const (
	CalcInt   CalcType = 0
	CalcUint  CalcType = 1
	CalcFloat CalcType = 2
)

// CalcSize is the size of the numbers, with the values of enum ibv_exp_calc_data_size.
type CalcSize uint8

// Calc64Bit is the only size.
const Calc64Bit CalcSize = 0

// calcOps has the reductions by operation and type; nil is one that does not exist.
var calcOps = [...][3]func(a, b uint64) uint64{
	CalcAdd:  {addInt, addInt, addFloat},
	CalcBAnd: {and, and, nil},
	CalcBXor: {xor, xor, nil},
	CalcBOr:  {or, or, nil},
}

func addInt(a, b uint64) uint64 { return a + b }
func addFloat(a, b uint64) uint64 {
	return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
}
func and(a, b uint64) uint64 { return a & b }
func xor(a, b uint64) uint64 { return a ^ b }
func or(a, b uint64) uint64  { return a | b }

var (
	calcOpNames   = [...]string{CalcAdd: "ADD", CalcBAnd: "BAND", CalcBXor: "BXOR", CalcBOr: "BOR"}
	calcTypeNames = [...]string{CalcInt: "INT", CalcUint: "UINT", CalcFloat: "FLOAT"}
)

// String returns the verbs name of the operation.
func (o CalcOp) String() string {
	if int(o) < len(calcOpNames) && calcOpNames[o] != "" {
		return calcOpNames[o]
	}
	return fmt.Sprintf("CalcOp(%d)", uint8(o))
}

// String returns the verbs name of the type.
func (t CalcType) String() string {
	if int(t) < len(calcTypeNames) {
		return calcTypeNames[t]
	}
	return fmt.Sprintf("CalcType(%d)", uint8(t))
}

// checkCalc returns why a reduction cannot be posted, or "".
func (q *QP) checkCalc(wr *SendWR, info *opInfo) string {
	c := wr.Calc
	switch {
	case q.cross == nil:
		return "a reduction needs a queue pair with CrossChannel"
	case info.kind != kindSend:
		return fmt.Sprintf("a reduction goes with SEND and WRITE, not with %v", wr.Opcode)
	case int(c.Op) >= len(calcOps) || calcOps[c.Op][CalcInt] == nil:
		return fmt.Sprintf("unknown reduction %v", c.Op)
	case int(c.Type) >= len(calcTypeNames):
		return fmt.Sprintf("unknown type of a reduction, %v", c.Type)
	case calcOps[c.Op][c.Type] == nil:
		return fmt.Sprintf("operation %v is not possible for type %v", c.Op, c.Type)
	case c.Size != Calc64Bit:
		return fmt.Sprintf("reduction of numbers of size %d, only 64 bits (0) are offered", c.Size)
	case len(wr.Inline) > 0 || len(wr.SG) == 0:
		return "a reduction needs a scatter/gather list"
	}
	for i, s := range wr.SG {
		switch {
		case s.Length == 0 || s.Length%8 != 0:
			return fmt.Sprintf("element %d of a reduction has %d bytes, must be a multiple of 8", i, s.Length)
		case s.Length != wr.SG[0].Length:
			return fmt.Sprintf("element %d of a reduction has %d bytes, element 0 has %d", i, s.Length, wr.SG[0].Length)
		}
	}
	return ""
}

// calcChunk is how many bytes of an element are reduced at a time.
const calcChunk = 256

// gatherCalc is gather for a reduction. Packets begin and end between numbers: the MTUs are
// multiples of 8.
func (q *QP) gatherCalc(w *sendWQE, dst []byte, off uint32) mr.Fault {
	c := q.sq.rest(w).calc
	op := calcOps[c.Op][c.Type]
	for i, s := range q.sq.list(w) {
		region, at, fault := q.requester.trail.Local(q.mem, q.pd, s, 0)
		if fault != mr.OK {
			return fault
		}
		for done := 0; done < len(dst); done += calcChunk {
			into := dst[done:min(done+calcChunk, len(dst))]
			from := at + uint64(off) + uint64(done)
			if i == 0 {
				if fault = region.ReadAt(into, from); fault != mr.OK {
					return fault
				}
				continue
			}
			operand := q.cross.operand[:len(into)]
			if fault = region.ReadAt(operand, from); fault != mr.OK {
				return fault
			}
			for n := 0; n < len(into); n += 8 {
				r := op(binary.BigEndian.Uint64(into[n:]), binary.BigEndian.Uint64(operand[n:]))
				binary.BigEndian.PutUint64(into[n:], r)
			}
		}
	}
	return mr.OK
}

// CalcOps returns the operations for a type.
func CalcOps(t CalcType) (ops []CalcOp) {
	for op, of := range calcOps {
		if of[t] != nil {
			ops = append(ops, CalcOp(op))
		}
	}
	return ops
}
