package qp

import (
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
)

// Local operations are work requests that change the memory that a key gives access to. They send nothing: BIND_MW,
// LOCAL_INV and REG_MR (IBTA 10.6.5, 10.6.7; the kernel's IB_WR_REG_MR). They own no PSN: their first PSN is that of
// the work request behind them, and their last one is the PSN before it.
//
// Each is executed once and in order: when transmission reaches it, before any packet of the
// work requests behind it is sent. So a SEND that follows may tell the peer a key. After
// going back, the requester skips those that are done. They complete in order like all
// others: a bind behind a SEND completes when the SEND is acknowledged, though its key works
// before.
//
//   - BIND_MW and REG_MR wait for nothing; with Fence they wait for the READs
//     and atomics before them, as every work request does.
//   - LOCAL_INV waits until everything before it is complete: the local
//     invalidate fence of IBTA 10.6.5.1, which is mandatory in rxe, too. A
//     retransmission may need the key.
//
// One that fails completes with MW_BIND_ERR, the Memory Management Operation
// Error of IBTA 11.6.2, after those before it are complete, and stops the
// queue pair like any local error. One that was executed but could not
// complete when another work request failed is flushed like those behind it.

// checkBind returns why a BIND_MW cannot be posted, or "".
func checkBind(wr *SendWR) string {
	switch {
	case wr.MW == nil:
		return "BIND_MW without a memory window"
	case wr.MR == nil && (wr.BindLength != 0 || wr.MW.Type() == mr.MWType2):
		return "BIND_MW without a memory region"
	case otherKey(wr.RKey, wr.MW.RKey()):
		return fmt.Sprintf("key %v is not one of the window's, which has %v: only the low byte is free", wr.RKey, wr.MW.RKey())
	}
	return checkLocal(wr)
}

// checkFastReg returns why a REG_MR cannot be posted, or "".
func checkFastReg(wr *SendWR) string {
	switch {
	case wr.MR == nil:
		return "REG_MR without a memory region"
	case !wr.MR.Mappable():
		return "REG_MR of a region that is registered already"
	case otherKey(wr.RKey, wr.MR.RKey()):
		return fmt.Sprintf("key %v is not one of the region's, which has %v: only the low byte is free", wr.RKey, wr.MR.RKey())
	case wr.Parts != nil && !wr.Parts.Of(wr.MR):
		return "the list of parts is of another region"
	}
	return checkLocal(wr)
}

// otherKey reports whether two keys are of different objects.
func otherKey(a, b bth.RKey) bool { return (a^b)>>8 != 0 }

// checkLocal returns why a local operation cannot be posted, or "".
func checkLocal(wr *SendWR) string {
	if len(wr.SG) > 0 {
		return "a local operation has no scatter/gather list"
	}
	return ""
}

// localWQE has the fields that only local operations need.
type localWQE struct {
	mw     *mr.MW
	region *mr.MR
	lkey   bth.LKey // of the region, as of posting
	length uint64
	access mr.Access
	parts  *mr.PartList
	cross  crossWQE
}

// postLocal stores the fields of a local operation. From now on the objects report the keys
// that the bind or registration will give them, even if it fails later (as with ibv_bind_mw).
func (q *QP) postLocal(w *sendWQE, wr *SendWR) {
	w.addr = wr.BindAddr
	local := &q.sq.rest(w).local
	*local = localWQE{mw: wr.MW, region: wr.MR, length: wr.BindLength, access: wr.Access, parts: wr.Parts}
	switch wr.Opcode {
	case SendEnable, RecvEnable, CQEWait:
		local.cross.post(wr)
	case LocalInv:
		w.rkey = wr.InvKey
	case BindMW:
		if wr.MR != nil {
			local.lkey = wr.MR.LKey()
		}
		wr.MW.Posted(wr.RKey)
	case RegMR:
		wr.MR.Posted(wr.RKey, wr.Access, wr.Parts)
	}
}

// emitLocal executes the local operation that transmission has reached, if that is allowed
// now, or skips one that was executed before going back.
func (q *QP) emitLocal(w *sendWQE) emission {
	if w.done {
		q.sq.cur++
		return emitted
	}
	switch {
	case q.state == SQD, w.flags&held != 0:
		return idle
	case w.flags&Fence != 0 && q.requester.reads > 0:
		return idle
	case w.op == LocalInv && q.sq.cur != q.sq.head:
		return idle
	case w.op == CQEWait && !q.waited(w):
		return idle
	}
	if opTable[w.op].local(q, w) != mr.OK {
		q.failLocally(w)
		return idle
	}
	w.done = true
	q.sq.cur++
	q.completeLocals()
	return emitted
}

// completeLocals completes the local operations that are done and have become
// the oldest.
func (q *QP) completeLocals() {
	for q.sq.head != q.sq.tail && q.sq.at(q.sq.head).done {
		if q.sq.cur == q.sq.head {
			q.sq.cur++ // the requester went back to this operation
		}
		q.reportSend(cq.Success)
	}
}

func (q *QP) executeBind(w *sendWQE) mr.Fault {
	local := &q.sq.rest(w).local
	return q.mem.Bind(q.pd, q.num, &q.windows, local.mw, &mr.Binding{Key: w.rkey, MR: local.region,
		LKey: local.lkey, Addr: w.addr, Length: local.length, Access: local.access})
}

func (q *QP) executeLocalInv(w *sendWQE) mr.Fault { return q.mem.Invalidate(q.pd, q.num, w.rkey) }

func (q *QP) executeFastReg(w *sendWQE) mr.Fault {
	local := &q.sq.rest(w).local
	if local.parts != nil {
		return q.mem.RegisterParts(q.pd, local.region, local.parts, w.rkey, local.access)
	}
	return q.mem.RegisterFast(q.pd, local.region, w.rkey, local.access)
}
