package qp

import (
	"fmt"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
)

// Opcode is the operation of a send work request, with the values of enum
// ibv_wr_opcode.
type Opcode uint8

const (
	Write       Opcode = 0 // RDMA WRITE
	WriteImm    Opcode = 1 // RDMA WRITE that consumes a receive and delivers Imm
	Send        Opcode = 2 // SEND
	SendImm     Opcode = 3 // SEND that delivers Imm
	Read        Opcode = 4 // RDMA READ into the scatter list
	CompareSwap Opcode = 5 // 8-byte atomic; the old value goes into the scatter list
	FetchAdd    Opcode = 6 // 8-byte atomic; the old value goes into the scatter list
	LocalInv    Opcode = 7 // invalidates InvKey on this side
	BindMW      Opcode = 8 // binds MW to a part of MR
	SendInv     Opcode = 9 // SEND that invalidates InvKey at the peer

	// The masked atomics have the values of the kernel's enum ib_wr_opcode. An operand has as many bytes as the
	// scatter list: 1, 2, 4 or 8, and with Args 16 or 32. They need Config.MaskedAtomics.
	MaskedCompareSwap Opcode = 12 // compares CompareMask's bits, stores SwapMask's
	MaskedFetchAdd    Opcode = 13 // adds field by field, each ended by a bit of Boundary

	Flush       Opcode = 14 // completes when earlier WRITEs are placed as FlushType says
	AtomicWrite Opcode = 15 // WRITE of 8 bytes that are stored atomically
	RegMR       Opcode = 32 // registers what MR was mapped to (the kernel's IB_WR_REG_MR)

	// Cross-channel communication, with values of this stack's own; see crosschannel.go.
	// They need Config.CrossChannel.
	SendEnable Opcode = 33 // lets the next Count sends of Enable begin
	RecvEnable Opcode = 34 // lets messages use the next Count receives of Enable
	CQEWait    Opcode = 35 // waits for Count completions in WaitCQ
)

// SendFlags modify a send work request, with the bits of enum ibv_send_flags.
// Inline data is given by [SendWR.Inline], not by a flag.
type SendFlags uint8

const (
	Fence     SendFlags = 1 // wait for the READs and atomics before this one
	Signaled  SendFlags = 2 // deliver a completion on success
	Solicited SendFlags = 4 // the receive it consumes is a solicited event

	// WaitEnLast marks the last CQE_WAIT for a completion queue in a list of work requests
	// (IBV_EXP_SEND_WAIT_EN_LAST): those without it wait for the same completions.
	WaitEnLast SendFlags = 1 << 6

	// With WithCalc the message is the reduction Calc of the elements of SG, not one element after the other
	// (IBV_EXP_SEND_WITH_CALC).
	WithCalc SendFlags = 1 << 5

	held SendFlags = 1 << 7 // not enabled yet
)

// MaskedArgs are the operands of a masked atomic of more than 8 bytes.
type MaskedArgs struct {
	CompareAdd, CompareMask mr.Words
	Swap, SwapMask          mr.Words
	Boundary                mr.Words // the uppermost bit of each word of 8 bytes always ends a field
}

// SendWR is struct ibv_send_wr. PostSend copies it; only the memory named by
// SG stays in use until the completion.
type SendWR struct {
	ID     uint64
	Opcode Opcode
	Flags  SendFlags

	SG     []mr.SGE // gathered (SEND, WRITE, ATOMIC_WRITE) or filled (READ, atomics)
	Inline []byte   // instead of SG: data copied while posting, no memory region needed

	RemoteAddr uint64   // all but SEND
	RKey       bth.RKey // all but SEND; BindMW, RegMR: the new key, which may differ from the old one in its low byte
	Imm        uint32   // SendImm, WriteImm
	InvKey     bth.RKey // SendInv, LocalInv
	CompareAdd uint64   // CompareSwap: value compared; FetchAdd: addend
	Swap       uint64   // CompareSwap: value stored when equal

	CompareMask uint64 // MaskedCompareSwap
	SwapMask    uint64 // MaskedCompareSwap
	Boundary    uint64 // MaskedFetchAdd: the uppermost bit of every field

	// Args replaces the five fields above for a masked atomic of 16 or 32 bytes.
	Args *MaskedArgs

	FlushType   bth.FlushType        // Flush: how far the data must have been placed (enum ibv_placement_type)
	Selectivity bth.FlushSelectivity // Flush: the range, or the whole region of RKey (enum ibv_selectivity_level)
	Length      uint32               // Flush: bytes of the range

	// BindMW and RegMR; see [mr.Table.Bind] and [mr.Table.RegisterFast].
	MW         *mr.MW    // BindMW
	MR         *mr.MR    // RegMR; BindMW: may be nil if BindLength is 0
	BindAddr   uint64    // BindMW: where the window begins, as an address of MR
	BindLength uint64    // BindMW: bytes; 0 unbinds a type 1 window
	Access     mr.Access // what peers may do (BindMW), what the region allows (RegMR)

	// Parts are the parts of the indirect region that RegMR registers; nil: RegMR registers the memory that MR was
	// mapped to.
	Parts *mr.PartList

	WaitCQ *cq.CQ // CQEWait; the owner of the queue pair must be its producer
	Enable *QP    // SendEnable, RecvEnable; of the same owner
	Count  uint32 // how many completions or work requests; SendEnable, RecvEnable: 0 is all that are posted

	Calc Calc // WithCalc; see calc.go

	// UD and DCI: the address handle and the destination: a queue pair, or a target.
	AH         *AH
	RemoteQPN  bth.QPN
	RemoteQKey bth.QKey // with the top bit set the queue pair's own key is used

	// DCI: the access key of the target, which AH and RemoteQPN name. With the top bit
	// set the queue pair's own key is used.
	DCKey uint64

	// XRC only: the shared receive queue at the peer, for every operation.
	RemoteSRQN bth.SRQN
}

// RecvWR is struct ibv_recv_wr. PostRecv copies it; the memory named by SG
// stays in use until the completion.
type RecvWR struct {
	ID uint64
	SG []mr.SGE
}

// opKind groups the operations by what the engine does with them.
type opKind uint8

const (
	kindInvalid     opKind = iota
	kindSend               // SEND and WRITE families: segmented, acknowledged
	kindRead               // answered by data
	kindAtomic             // answered by the old value
	kindFlush              // answered by a READ response without data
	kindAtomicWrite        // the same
	kindLocal              // sends nothing
)

// returnsData reports whether the answer to an operation carries data, so that no other answer can replace it.
func (k opKind) returnsData() bool { return k == kindRead || k == kindAtomic }

// takesCredit reports whether an operation is one of the MaxRdAtomic that may be
// outstanding.
func (k opKind) takesCredit() bool { return k.returnsData() || k == kindFlush || k == kindAtomicWrite }

// inline reports whether an operation may have inline data.
func (k opKind) inline() bool { return k == kindSend || k == kindAtomicWrite }

// wireOps are the four wire opcodes of a segmented message.
type wireOps struct{ first, middle, last, only bth.Opcode }

// opInfo is everything the requester has to know of an operation.
type opInfo struct {
	name string
	kind opKind
	wc   cq.Opcode
	rc   wireOps
	uc   wireOps
	ud   wireOps
	reth bool // carries RemoteAddr and RKey
	recv bool // consumes a receive at the peer
	dc   bool // a DCI offers it
	own  bool // its work requests have fields or rules that no other has: see setOwn and checkOwnRules

	// local executes an operation that sends nothing.
	local func(q *QP, w *sendWQE) mr.Fault
}

// opTable drives posting, segmentation and completion. A zero row is an
// operation this stack does not know.
var opTable = [...]opInfo{
	Write: {name: "RDMA_WRITE", kind: kindSend, dc: true, wc: cq.OpRDMAWrite, reth: true,
		rc: wireOps{bth.RCWriteFirst, bth.RCWriteMiddle, bth.RCWriteLast, bth.RCWriteOnly},
		uc: wireOps{bth.UCWriteFirst, bth.UCWriteMiddle, bth.UCWriteLast, bth.UCWriteOnly}},
	WriteImm: {name: "RDMA_WRITE_WITH_IMM", kind: kindSend, dc: true, wc: cq.OpRDMAWrite, reth: true, recv: true,
		rc: wireOps{bth.RCWriteFirst, bth.RCWriteMiddle, bth.RCWriteLastImm, bth.RCWriteOnlyImm},
		uc: wireOps{bth.UCWriteFirst, bth.UCWriteMiddle, bth.UCWriteLastImm, bth.UCWriteOnlyImm}},
	Send: {name: "SEND", kind: kindSend, dc: true, wc: cq.OpSend, ud: wireOps{only: bth.UDSendOnly}, recv: true,
		rc: wireOps{bth.RCSendFirst, bth.RCSendMiddle, bth.RCSendLast, bth.RCSendOnly},
		uc: wireOps{bth.UCSendFirst, bth.UCSendMiddle, bth.UCSendLast, bth.UCSendOnly}},
	SendImm: {name: "SEND_WITH_IMM", kind: kindSend, dc: true, wc: cq.OpSend, ud: wireOps{only: bth.UDSendOnlyImm}, recv: true,
		rc: wireOps{bth.RCSendFirst, bth.RCSendMiddle, bth.RCSendLastImm, bth.RCSendOnlyImm},
		uc: wireOps{bth.UCSendFirst, bth.UCSendMiddle, bth.UCSendLastImm, bth.UCSendOnlyImm}},
	SendInv: {name: "SEND_WITH_INV", kind: kindSend, own: true, wc: cq.OpSend, recv: true,
		rc: wireOps{bth.RCSendFirst, bth.RCSendMiddle, bth.RCSendLastInv, bth.RCSendOnlyInv}},
	Read:        {name: "RDMA_READ", kind: kindRead, dc: true, wc: cq.OpRDMARead, reth: true, rc: wireOps{only: bth.RCReadRequest}},
	CompareSwap: {name: "ATOMIC_CMP_AND_SWP", kind: kindAtomic, own: true, dc: true, wc: cq.OpCompSwap, rc: wireOps{only: bth.RCCompareSwap}},
	FetchAdd:    {name: "ATOMIC_FETCH_AND_ADD", kind: kindAtomic, own: true, dc: true, wc: cq.OpFetchAdd, rc: wireOps{only: bth.RCFetchAdd}},
	Flush:       {name: "FLUSH", kind: kindFlush, own: true, wc: cq.OpFlush, reth: true, rc: wireOps{only: bth.RCFlush}},
	AtomicWrite: {name: "ATOMIC_WRITE", kind: kindAtomicWrite, own: true, wc: cq.OpAtomicWrite, reth: true, rc: wireOps{only: bth.RCAtomicWrite}},
	MaskedCompareSwap: {name: "MASKED_ATOMIC_CMP_AND_SWP", kind: kindAtomic, own: true, wc: cq.OpMaskedCompSwap,
		rc: wireOps{only: bth.MaskedCompareSwap}},
	MaskedFetchAdd: {name: "MASKED_ATOMIC_FETCH_AND_ADD", kind: kindAtomic, own: true, wc: cq.OpMaskedFetchAdd,
		rc: wireOps{only: bth.MaskedFetchAdd}},
	BindMW:     {name: "BIND_MW", kind: kindLocal, own: true, wc: cq.OpBindMW, local: (*QP).executeBind},
	SendEnable: {name: "SEND_ENABLE", kind: kindLocal, own: true, wc: cq.OpSendEnable, local: (*QP).executeSendEnable},
	RecvEnable: {name: "RECV_ENABLE", kind: kindLocal, own: true, wc: cq.OpRecvEnable, local: (*QP).executeRecvEnable},
	CQEWait:    {name: "CQE_WAIT", kind: kindLocal, own: true, wc: cq.OpCQEWait, local: (*QP).executeWait},
	LocalInv:   {name: "LOCAL_INV", kind: kindLocal, own: true, wc: cq.OpLocalInv, local: (*QP).executeLocalInv},
	RegMR:      {name: "REG_MR", kind: kindLocal, own: true, wc: cq.OpRegMR, local: (*QP).executeFastReg},
}

// String returns the verbs name of the operation.
func (o Opcode) String() string {
	if int(o) < len(opTable) && opTable[o].name != "" {
		return opTable[o].name
	}
	return fmt.Sprintf("Opcode(%d)", uint8(o))
}

// wire returns the wire opcodes of the operation on a service type, and whether the
// service offers it.
func (i *opInfo) wire(t Type) (ops *wireOps, ok bool) {
	switch t {
	case RC, XRCSend: // of XRC without its base
		return &i.rc, i.kind != kindInvalid
	case DCI: // without its base
		return &i.rc, i.dc
	case XRCRecv, DCT:
		return nil, false
	case UC:
		return &i.uc, i.uc.only != 0 || i.kind == kindLocal
	default:
		return &i.ud, i.ud.only != 0
	}
}

// checkOwnRules says what is wrong with a work request of n bytes by the rules of its operation alone. It uses no
// function values: a work request that is passed to one escapes, and every post of a literal would then allocate.
func (q *QP) checkOwnRules(wr *SendWR, n uint64) string {
	switch wr.Opcode {
	case CompareSwap, FetchAdd:
		return checkAtomic(wr, n)
	case MaskedCompareSwap, MaskedFetchAdd:
		return q.checkMasked(wr, n)
	case Flush:
		return checkFlush(wr)
	case AtomicWrite:
		return checkAtomicWrite(wr, n)
	case BindMW:
		return checkBind(wr)
	case RegMR:
		return checkFastReg(wr)
	case LocalInv:
		return checkLocal(wr)
	case SendEnable, RecvEnable, CQEWait:
		return q.checkCross(wr)
	}
	return ""
}

// sendQueueFull returns the error of a post to a full send queue. It allocates the first time.
func (q *QP) sendQueueFull() error {
	r := q.rarities()
	if r.sendFull == nil {
		r.sendFull = errs.On("post send", q.num.Object(), syscall.ENOMEM, "send queue is full (%d work requests); poll completions first", q.sq.cap())
	}
	return r.sendFull
}

// checkSend refuses what the verbs refuse while posting: everything that can be seen without touching memory. The
// errno values are those of ibv_post_send. For an accepted work request it returns the operation and the length in
// bytes.
func (q *QP) checkSend(wr *SendWR) (info *opInfo, length uint32, err error) {
	switch q.state {
	case RTS, SQD, SQE, Err:
	default:
		return q.refuseSend("state is %v, sends need RTS", q.state)
	}
	if int(wr.Opcode) >= len(opTable) {
		return q.refuseSend("unknown opcode %v", wr.Opcode)
	}
	info = &opTable[wr.Opcode]
	if _, ok := info.wire(q.typ); !ok {
		return q.refuseSend("%v is not an operation of a %v queue pair", wr.Opcode, q.typ)
	}
	if q.sq.full() {
		return nil, 0, q.sendQueueFull()
	}
	if len(wr.SG) > int(q.sq.maxSGE) {
		return q.refuseSend("%d scatter/gather elements, the queue pair has %d", len(wr.SG), int(q.sq.maxSGE))
	}
	if len(wr.Inline) > 0 {
		switch {
		case len(wr.SG) > 0:
			return q.refuseSend("both Inline and SG given; use one")
		case !info.kind.inline():
			return q.refuseSend("%v cannot be inline", wr.Opcode)
		case len(wr.Inline) > int(q.sq.maxData):
			return q.refuseSend("%d bytes inline, the queue pair allows %d", len(wr.Inline), int(q.sq.maxData))
		}
	}
	n := uint64(len(wr.Inline))
	for i := range wr.SG {
		n += uint64(wr.SG[i].Length)
	}
	if wr.Flags&WithCalc != 0 {
		detail := q.checkCalc(wr, info)
		if detail != "" {
			return q.refuseSend("%s", detail)
		}
		n = uint64(wr.SG[0].Length)
	}
	if info.own {
		if detail := q.checkOwnRules(wr, n); detail != "" {
			return q.refuseSend("%s", detail)
		}
	}
	switch {
	case n > MaxMessage:
		return q.refuseSend("message of %d bytes, the limit is 2^31", n)
	case info.kind.takesCredit() && q.maxRdAtomic == 0 && q.state != Err:
		return q.refuseSend("%v needs MaxRdAtomic > 0, it is 0", wr.Opcode)
	}
	if q.typ != RC {
		if detail := q.checkDestination(wr, n); detail != "" {
			return q.refuseSend("%s", detail)
		}
	}
	return info, uint32(n), nil
}

// refuseSend is the refusal of a work request.
func (q *QP) refuseSend(format string, args ...any) (*opInfo, uint32, error) {
	return nil, 0, errs.On("post send", q.num.Object(), syscall.EINVAL, format, args...)
}

// checkDestination says what is wrong with the destination of a message of n bytes, on the service
// types where each work request has one.
func (q *QP) checkDestination(wr *SendWR, n uint64) string {
	switch q.typ {
	case XRCSend:
		if wr.RemoteSRQN > bth.PSNMask {
			return fmt.Sprintf("remote SRQN %#x is beyond 24 bits", uint32(wr.RemoteSRQN))
		}
	case DCI:
		switch {
		case wr.AH == nil:
			return "no address handle"
		case wr.RemoteQPN > bth.QPNMulticast:
			return fmt.Sprintf("target number %#x is beyond 24 bits", uint32(wr.RemoteQPN))
		}
	case UD, GSI:
		switch {
		case wr.AH == nil:
			return "no address handle"
		case wr.RemoteQPN > bth.QPNMulticast:
			return fmt.Sprintf("remote QPN %#x is beyond 24 bits", uint32(wr.RemoteQPN))
		case n > uint64(q.pmtu.Bytes()):
			return fmt.Sprintf("datagram of %d bytes, the port's MTU is %d", n, q.pmtu.Bytes())
		}
	}
	return ""
}
