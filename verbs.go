package roce

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Types of the packages below this one, under the names that programs use.
type (
	SendWR     = qp.SendWR     // struct ibv_send_wr
	RecvWR     = qp.RecvWR     // struct ibv_recv_wr
	MaskedArgs = qp.MaskedArgs // arguments of ext_op.masked_atomics
	Words      = mr.Words      // one of them
	SGE        = mr.SGE        // struct ibv_sge
	WC         = cq.WC         // struct ibv_wc
	WCOpcode   = cq.Opcode     // enum ibv_wc_opcode
	WCFlags    = cq.Flags      // enum ibv_wc_flags
	Status     = cq.Status     // enum ibv_wc_status
	Opcode     = qp.Opcode     // enum ibv_wr_opcode
	SendFlags  = qp.SendFlags  // enum ibv_send_flags
	Access     = mr.Access     // enum ibv_access_flags
	Attr       = qp.Attr       // struct ibv_qp_attr
	AttrMask   = qp.AttrMask   // enum ibv_qp_attr_mask
	Caps       = qp.Caps       // struct ibv_qp_cap
	QPType     = qp.Type       // enum ibv_qp_type
	QPState    = qp.State      // enum ibv_qp_state
	AH         = qp.AH         // struct ibv_ah: a resolved address
	MigState   = qp.MigState   // enum ibv_mig_state
	GID        = bth.GID       // union ibv_gid
	QPN        = bth.QPN       // number of a queue pair, 24 bits
	SRQN       = bth.SRQN      // number of a shared receive queue, 24 bits
	PSN        = bth.PSN       // packet sequence number, 24 bits
	LKey       = bth.LKey      // key for local work requests
	RKey       = bth.RKey      // key for a peer
	QKey       = bth.QKey      // key of datagrams
	PKey       = bth.PKey      // partition key
	MAC        = frame.MAC     // Ethernet address
	MTU        = bth.MTU       // enum ibv_mtu: payload of a packet
	RNRTimer   = bth.RNRTimer  // code of ibv_qp_attr.min_rnr_timer: see [RNRTimerFor]
	MWType     = mr.MWType     // enum ibv_mw_type

	// StatusError is a status other than StatusSuccess as an error ([WC.Err]).
	StatusError = cq.StatusError

	RecvRing      = nic.RecvRing      // receives that a program posts without a call: see [QPConfig]
	RecvRingState = nic.RecvRingState // the part of it that both sides watch
	RecvSlot      = nic.RecvSlot      // a receive in it

	DCQCN           = qp.DCQCN           // parameters of congestion control
	Recovery        = qp.Recovery        // reaction of queue pairs to losses
	CongestionState = qp.CongestionState // state of congestion control on a queue pair
	Rate            = qp.Rate            // bits per second on the wire

	Offer      = cm.Offer    // proposal of a peer (struct rdma_conn_param of an event)
	PathRecord = cm.Path     // a path in the connection manager (struct ibv_path_record)
	APStatus   = cm.APStatus // answer to a proposed alternate path

	FlushType        = bth.FlushType        // enum ibv_placement_type
	FlushSelectivity = bth.FlushSelectivity // enum ibv_selectivity_level
)

// Answers of DialConfig.OnAlternate to a proposed alternate path. The device loads the path only
// for APLoaded.
const (
	APLoaded      = cm.APLoaded
	APUnsupported = cm.APUnsupported // no alternate paths supported
	APReject      = cm.APReject      // the program refuses
	APInvalidGID  = cm.APInvalidGID  // the address is not the peer's, or not reachable
)

// Services of a queue pair (enum ibv_qp_type).
const (
	GSI     = qp.GSI // QP 1 of the device; a program cannot create it
	RC      = qp.RC
	UC      = qp.UC
	UD      = qp.UD
	XRCSend = qp.XRCSend
	XRCRecv = qp.XRCRecv
	DCI     = qp.DCI // see [DCT]
)

// Reactions of queue pairs to losses: see docs/recovery.md.
const (
	RecoverDefault = qp.RecoverDefault
	RecoverGoBack  = qp.RecoverGoBack
	RecoverReads   = qp.RecoverReads
	RecoverAll     = qp.RecoverAll
)

// Operations of a send work request (enum ibv_wr_opcode).
const (
	Write       = qp.Write
	WriteImm    = qp.WriteImm
	Send        = qp.Send
	SendImm     = qp.SendImm
	Read        = qp.Read
	CompareSwap = qp.CompareSwap
	FetchAdd    = qp.FetchAdd
	SendInv     = qp.SendInv
	LocalInv    = qp.LocalInv   // invalidates a local key
	BindMW      = qp.BindMW     // see [MW.WR]
	RegMR       = qp.RegMR      // see [FastMR.RegWR]
	SendEnable  = qp.SendEnable // cross-channel communication
	RecvEnable  = qp.RecvEnable
	CQEWait     = qp.CQEWait
	Flush       = qp.Flush
	AtomicWrite = qp.AtomicWrite

	MaskedCompareSwap = qp.MaskedCompareSwap // needs QPConfig.MaskedAtomics
	MaskedFetchAdd    = qp.MaskedFetchAdd
)

// Flags of a send work request (enum ibv_send_flags).
const (
	Fence      = qp.Fence
	Signaled   = qp.Signaled
	Solicited  = qp.Solicited
	WaitEnLast = qp.WaitEnLast // CQEWait: the last wait of the list for its queue
	WithCalc   = qp.WithCalc   // sends the reduction SendWR.Calc
)

// Rights on a memory region (enum ibv_access_flags).
const (
	LocalWrite   = mr.LocalWrite
	RemoteWrite  = mr.RemoteWrite
	RemoteRead   = mr.RemoteRead
	RemoteAtomic = mr.RemoteAtomic
	ZeroBased    = mr.ZeroBased
	MWBind       = mr.MWBind // windows may be bound to it

	// Watched is for memory that the program reads or writes while peers do:
	// see [MR.Load64].
	Watched = mr.Watched

	FlushGlobal     = mr.FlushGlobal     // FLUSH to global visibility
	FlushPersistent = mr.FlushPersistent // FLUSH to persistence

	RelaxedOrdering = mr.RelaxedOrdering // a hint, accepted
	OnDemand        = mr.OnDemand        // refused (EOPNOTSUPP): memory is not pinned
	HugeTLB         = mr.HugeTLB         // refused (EOPNOTSUPP)

	// AllRemote has all rights for peers.
	AllRemote = mr.AllRemote
)

// Types of memory windows (enum ibv_mw_type).
const (
	MWType1 = mr.MWType1 // for every queue pair of the domain; can be bound again at any time
	MWType2 = mr.MWType2 // type 2B: for one queue pair; bound when free
)

// Placement and range of a FLUSH.
const (
	PlaceGlobal     = bth.FlushGlobal     // IBV_FLUSH_GLOBAL
	PlacePersistent = bth.FlushPersistent // IBV_FLUSH_PERSISTENT
	FlushRange      = bth.FlushRange      // IBV_FLUSH_RANGE: Length bytes at RemoteAddr
	FlushMR         = bth.FlushMR         // IBV_FLUSH_MR: the whole region of RKey
)

// States of a queue pair (enum ibv_qp_state).
const (
	StateReset = qp.Reset // nothing works
	StateInit  = qp.Init  // receives may be posted
	StateRTR   = qp.RTR   // ready to receive: requests are executed and answered
	StateRTS   = qp.RTS   // ready to send
	StateSQD   = qp.SQD   // send queue draining: work requests in progress finish, none starts
	StateSQE   = qp.SQE   // send queue error (UC, UD)
	StateErr   = qp.Err   // all work requests are flushed
)

// Attributes of a queue pair, for [QP.Modify] (enum ibv_qp_attr_mask).
const (
	AttrState           = qp.AttrState
	AttrCurState        = qp.AttrCurState
	AttrSQDNotify       = qp.AttrSQDNotify // IBV_QP_EN_SQD_ASYNC_NOTIFY
	AttrAccess          = qp.AttrAccess
	AttrPKeyIndex       = qp.AttrPKeyIndex
	AttrPort            = qp.AttrPort
	AttrQKey            = qp.AttrQKey
	AttrAV              = qp.AttrAV
	AttrPathMTU         = qp.AttrPathMTU
	AttrTimeout         = qp.AttrTimeout
	AttrRetryCnt        = qp.AttrRetryCnt
	AttrRNRRetry        = qp.AttrRNRRetry
	AttrRQPSN           = qp.AttrRQPSN
	AttrMaxRdAtomic     = qp.AttrMaxRdAtomic
	AttrAltPath         = qp.AttrAltPath
	AttrMinRNRTimer     = qp.AttrMinRNRTimer
	AttrSQPSN           = qp.AttrSQPSN
	AttrMaxDestRdAtomic = qp.AttrMaxDestRdAtomic
	AttrPathMigState    = qp.AttrPathMigState
	AttrCap             = qp.AttrCap // no transition takes it
	AttrDestQPN         = qp.AttrDestQPN
	AttrDCKey           = qp.AttrDCKey          // of the experimental verbs
	AttrFlushICRCQuirk  = qp.AttrFlushICRCQuirk // not of the verbs: see [Attr]
)

// Path migration states of a queue pair (enum ibv_mig_state).
const (
	MigMigrated = qp.Migrated // no migration is prepared
	MigRearm    = qp.Rearm    // an alternate path is loaded; the peer has not re-armed yet
	MigArmed    = qp.Armed    // both ends are ready to migrate
)

// Statuses of a completion (enum ibv_wc_status): StatusRetryExcErr is IBV_WC_RETRY_EXC_ERR.
const (
	StatusSuccess          = cq.Success
	StatusLocLenErr        = cq.LocLenErr
	StatusLocQPOpErr       = cq.LocQPOpErr
	StatusLocEECOpErr      = cq.LocEECOpErr
	StatusLocProtErr       = cq.LocProtErr
	StatusWRFlushErr       = cq.WRFlushErr
	StatusMWBindErr        = cq.MWBindErr
	StatusBadRespErr       = cq.BadRespErr
	StatusLocAccessErr     = cq.LocAccessErr
	StatusRemInvReqErr     = cq.RemInvReqErr   // NAK invalid request
	StatusRemAccessErr     = cq.RemAccessErr   // NAK remote access error
	StatusRemOpErr         = cq.RemOpErr       // NAK remote operational error
	StatusRetryExcErr      = cq.RetryExcErr    // the peer did not answer
	StatusRNRRetryExcErr   = cq.RNRRetryExcErr // the peer never posted a receive
	StatusLocRDDViolErr    = cq.LocRDDViolErr
	StatusRemInvRDReqErr   = cq.RemInvRDReqErr
	StatusRemAbortErr      = cq.RemAbortErr
	StatusInvEECNErr       = cq.InvEECNErr
	StatusInvEECStateErr   = cq.InvEECStateErr
	StatusFatalErr         = cq.FatalErr
	StatusRespTimeoutErr   = cq.RespTimeoutErr
	StatusGeneralErr       = cq.GeneralErr
	StatusTMErr            = cq.TMErr
	StatusTMRndvIncomplete = cq.TMRndvIncomplete
)

// Statuses as errors, for programs that branch on them: errors.Is(wc.Err(),
// roce.ErrRetryExceeded).
const (
	ErrLocalLength        = cq.LocalLength        // [StatusLocLenErr]
	ErrLocalOperation     = cq.LocalOperation     // [StatusLocQPOpErr]
	ErrLocalProtection    = cq.LocalProtection    // [StatusLocProtErr]
	ErrFlushed            = cq.Flushed            // [StatusWRFlushErr]
	ErrBindFailed         = cq.BindFailed         // [StatusMWBindErr]
	ErrBadResponse        = cq.BadResponse        // [StatusBadRespErr]
	ErrRemoteInvalid      = cq.RemoteInvalid      // [StatusRemInvReqErr]
	ErrRemoteAccess       = cq.RemoteAccess       // [StatusRemAccessErr]
	ErrRemoteOperation    = cq.RemoteOperation    // [StatusRemOpErr]
	ErrRetryExceeded      = cq.RetryExceeded      // [StatusRetryExcErr]
	ErrRNRRetryExceeded   = cq.RNRRetryExceeded   // [StatusRNRRetryExcErr]
	ErrResponderTimedOut  = cq.ResponderTimedOut  // [StatusRespTimeoutErr]
	ErrUnspecifiedFailure = cq.UnspecifiedFailure // [StatusGeneralErr]
)

// Operations of a completion (enum ibv_wc_opcode).
const (
	WCSend              = cq.OpSend
	WCWrite             = cq.OpRDMAWrite
	WCRead              = cq.OpRDMARead
	WCCompareSwap       = cq.OpCompSwap
	WCFetchAdd          = cq.OpFetchAdd
	WCBindMW            = cq.OpBindMW
	WCLocalInv          = cq.OpLocalInv
	WCTSO               = cq.OpTSO // never here
	WCFlush             = cq.OpFlush
	WCAtomicWrite       = cq.OpAtomicWrite
	WCRegMR             = cq.OpRegMR          // the kernel's IB_WC_REG_MR
	WCMaskedCompareSwap = cq.OpMaskedCompSwap // the kernel's
	WCMaskedFetchAdd    = cq.OpMaskedFetchAdd // the kernel's
	WCSendEnable        = cq.OpSendEnable
	WCRecvEnable        = cq.OpRecvEnable
	WCCQEWait           = cq.OpCQEWait
	WCRecv              = cq.OpRecv            // a SEND arrived
	WCRecvWriteImm      = cq.OpRecvRDMAWithImm // IBV_WC_RECV_RDMA_WITH_IMM: a WRITE with immediate data arrived
)

// Flags of a completion (enum ibv_wc_flags).
const (
	WCGRH      = cq.GRH      // the first [GRHLen] bytes of the buffer hold the GRH area (UD)
	WCWithImm  = cq.WithImm  // WC.Imm is valid
	WCIPCsumOK = cq.IPCsumOK // never set here
	WCWithInv  = cq.WithInv  // WC.InvKey is valid
)

// Payload sizes of a packet (enum ibv_mtu).
const (
	MTU256  = bth.MTU256
	MTU512  = bth.MTU512
	MTU1024 = bth.MTU1024
	MTU2048 = bth.MTU2048
	MTU4096 = bth.MTU4096
)

// Units of a [Rate].
const (
	Mbps = qp.Mbps
	Gbps = qp.Gbps
)

// Limits, as [Device.Query] reports them.
const (
	MaxWR       = qp.MaxWR       // work requests of a send or receive queue
	MaxSGE      = qp.MaxSGE      // scatter/gather elements of a work request
	MaxInline   = qp.MaxInline   // bytes of inline data
	MaxMessage  = qp.MaxMessage  // bytes of a message
	MaxRdAtomic = qp.MaxRdAtomic // READs and atomics outstanding, for each queue pair and direction
	MaxCQE      = cq.MaxEntries  // completions of a completion queue
	MaxSRQWR    = qp.MaxSRQWR    // receives of a shared receive queue

	// RNRRetryForever is the RNRRetry without a limit.
	RNRRetryForever = 7
)

// RNRTimerFor returns the code of [Attr].MinRNRTimer for the shortest time that is at least d.
// If d is longer than the longest, 655.36 ms, it returns the code of that.
func RNRTimerFor(d time.Duration) RNRTimer { return bth.RNRTimerFor(d) }

// AckTimeout returns the time of a code of [Attr].Timeout, 4.096 µs·2^code; 0 for code 0,
// which means no timeout.
func AckTimeout(code uint8) time.Duration { return bth.AckTimeout(code) }

// AckTimeoutFor returns the code of [Attr].Timeout for the shortest time that is at least d. If
// d is longer than the longest, it returns code 31 (2.4 hours); for 0 it returns 0.
func AckTimeoutFor(d time.Duration) uint8 {
	if d <= 0 {
		return 0
	}
	code := uint8(1)
	for code < 31 && bth.AckTimeout(code) < d {
		code++
	}
	return code
}

// MaskRTR returns the attributes that [QP.Modify] requires to move a connected queue pair of
// type t from INIT to RTR.
func MaskRTR(t QPType) AttrMask { return qp.MaskRTR(t) }

// MaskRTS returns the attributes that [QP.Modify] requires to move a connected queue pair of
// type t from RTR to RTS.
func MaskRTS(t QPType) AttrMask { return qp.MaskRTS(t) }

// Reductions; see [SendWR] and docs/cross-channel.md.
type (
	Calc     = qp.Calc
	CalcOp   = qp.CalcOp
	CalcType = qp.CalcType
	CalcSize = qp.CalcSize
)

// The operations, types and sizes of reductions.
const (
	CalcAdd   = qp.CalcAdd
	CalcBAnd  = qp.CalcBAnd
	CalcBXor  = qp.CalcBXor
	CalcBOr   = qp.CalcBOr
	CalcInt   = qp.CalcInt
	CalcUint  = qp.CalcUint
	CalcFloat = qp.CalcFloat
	Calc64Bit = qp.Calc64Bit
)
