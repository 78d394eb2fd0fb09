// Package verbs is the interface of conformance tests to one side: the calls of
// libibverbs, with its numbers. Package ours implements them with roce, package rxe
// with libibverbs and a Linux kernel.
//
// Objects have handles, so that a test can use one that was destroyed. Handle 0
// is the null pointer. A refused call returns an error that unwraps to the errno.
package verbs

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Handle names an object of a [Node].
type Handle uint32

// Feature is a set of features of a side beyond the basics.
type Feature uint32

// The features.
const (
	HasSRQ Feature = 1 << iota
	HasXRC
	HasMW
	HasRereg
	HasLocalInv
	HasResizeCQ
	HasChannels
	HasMulticast
	HasAtomicWrite
	HasFlush     // FLUSH as responder
	HasFlushPost // FLUSH as requester
	HasMaskedAtomics
	HasPathMigration
	HasExtendedPost // the ibv_wr_* calls
	HasFastReg
	HasDC       // dynamically connected initiators and targets
	HasIndirect // regions that consist of parts of other regions (UMR)
	HasCrossChannel
	HasGRHFlag // the side accepts address handles without a GRH in its API; package roce has no such parameter
)

// Errno is the number in an error, 0 for none. An error without one is EIO.
func Errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if n, ok := errors.AsType[syscall.Errno](err); ok {
		return n
	}
	return syscall.EIO
}

// Error is a call that was refused.
type Error struct {
	Side, Call string
	Errno      syscall.Errno
	Posted     int // how many work requests of a list were posted before the refused one
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %v (errno %d)", e.Side, e.Call, e.Errno, int(e.Errno))
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }

// Event is struct ibv_async_event.
type Event struct {
	Type   int    // enum ibv_event_type
	Object Handle // queue pair, completion queue or shared receive queue
	Port   int
}

// MR is a memory region.
type MR struct {
	H      Handle
	LKey   bth.LKey
	RKey   bth.RKey
	Addr   uint64 // the address in work requests, also those of peers
	Len    uint64
	Access mr.Access
}

// SGE names n bytes of the region from offset off.
func (m MR) SGE(off, n uint64) mr.SGE {
	return mr.SGE{Addr: m.Addr + off, Length: uint32(n), LKey: m.LKey}
}

// MW is a memory window. Its key changes whenever it is bound.
type MW struct {
	H    Handle
	RKey bth.RKey
}

// Bind has the parameters of binding a window (struct ibv_mw_bind_info).
type Bind struct {
	MR     Handle
	Addr   uint64
	Len    uint64
	Access mr.Access
}

// CQ is a completion queue.
type CQ struct {
	H   Handle
	Cap int
}

// QPInit is struct ibv_qp_init_attr_ex.
type QPInit struct {
	PD             Handle
	Type           qp.Type
	SendCQ, RecvCQ Handle
	SRQ, XRCD      Handle
	Caps           qp.Caps
	SignalAll      bool
	Extended       bool // for the ibv_wr_* calls
	Masked         bool // masked atomics
	CrossChannel   bool
	ManagedSend    bool
	ManagedRecv    bool
}

// QP is a queue pair.
type QP struct {
	H    Handle
	QPN  bth.QPN
	Caps qp.Caps
}

// AH is struct ibv_ah_attr.
type AH struct {
	NoGRH        bool
	Port         int
	DGID         bth.GID
	SGIDIndex    int
	FlowLabel    uint32
	TrafficClass uint8
	HopLimit     uint8
}

// QPAttr is struct ibv_qp_attr. A mask of package qp selects its fields.
type QPAttr struct {
	State, CurState qp.State
	MigState        uint8
	Access          mr.Access
	PKeyIndex       uint16
	Port            uint8
	QKey            bth.QKey
	DCKey           uint64
	AV, Alt         AH
	AltTimeout      uint8
	PathMTU         bth.MTU
	DestQPN         bth.QPN
	RQPSN, SQPSN    bth.PSN
	SQDNotify       bool
	Draining        bool // query only
	Timeout         uint8
	RetryCnt        uint8
	RNRRetry        uint8
	MinRNRTimer     bth.RNRTimer
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8

	// FlushQuirk says that the peer is an rxe that computes the ICRC of a FLUSH differently, see
	// bth.CRC.UpdateFlushQuirk. It belongs to AttrAV.
	FlushQuirk bool
}

// SendWR is struct ibv_send_wr.
type SendWR struct {
	ID         uint64
	Op         qp.Opcode
	Flags      qp.SendFlags
	SG         []mr.SGE
	Inline     []byte // instead of SG
	RemoteAddr uint64
	RKey       bth.RKey
	Imm        uint32
	InvKey     bth.RKey
	CompareAdd uint64
	Swap       uint64
	AH         Handle
	QPN        bth.QPN
	QKey       bth.QKey
	SRQN       uint32
	DCKey      uint64
	MW         Handle
	NewKey     bth.RKey
	Bind       Bind
	FastMR     Handle // RegMR, with Bind.Access

	FlushType   bth.FlushType
	FlushLevel  bth.FlushSelectivity
	FlushLength uint32

	CompareMask, SwapMask, Boundary uint64 // masked atomics

	WaitCQ Handle // CQEWait
	Enable Handle // SendEnable, RecvEnable
	Count  uint32 // of completions, or of work requests to enable
	Calc   qp.Calc
}

// RecvWR is struct ibv_recv_wr.
type RecvWR struct {
	ID uint64
	SG []mr.SGE
}

// Part is a part of an indirect region: a range of another region.
type Part struct {
	MR             Handle
	Offset, Length uint64
	Stride         uint64 // distance of repetitions, if the part is repeated
}

// SRQAttr is struct ibv_srq_attr.
type SRQAttr struct {
	MaxWR, MaxSGE, Limit int
}

// The bits of enum ibv_srq_attr_mask and enum ibv_rereg_mr_flags.
const (
	SRQMaxWR = 1
	SRQLimit = 2

	ReregTranslation = 1
	ReregPD          = 2
	ReregAccess      = 4
)

// Sink is a shared receive queue.
type Sink struct {
	H      Handle
	Num    uint32 // XRC
	MaxWR  int
	MaxSGE int
}

// Node is one side: a device context with its objects.
type Node interface {
	Label() string  // "roce", "rxe"
	Kernel() string // the series of the kernel under test, "" for roce
	Offers() Feature
	GID() (index int, gid bth.GID) // the address to use
	// Alternate is a second address for path migration; -1 if there is none.
	Alternate() (index int, gid bth.GID)
	Close() error // destroys everything

	CapFlags() (uint64, error)                   // device_cap_flags_ex
	NextEvent(wait time.Duration) (Event, error) // EAGAIN if none comes in this time
	Counter(name string) (uint64, error)         // of hw_counters, by rxe's names

	AllocPD() (Handle, error)
	DeallocPD(Handle) error
	CreateAH(pd Handle, a AH) (Handle, error)
	DestroyAH(Handle) error

	// Alloc allocates n bytes of zeros, aligned to a page, until Close.
	Alloc(n uint64) (addr uint64, err error)
	ReadMem(addr, n uint64) ([]byte, error)
	WriteMem(addr uint64, b []byte) error
	RegMR(pd Handle, addr, n uint64, access mr.Access) (MR, error)
	RegMRIova(pd Handle, addr, n, iova uint64, access mr.Access) (MR, error)
	ReregMR(m MR, flags int, pd Handle, addr, n uint64, access mr.Access) (MR, error)
	DeregMR(Handle) error
	// AllocFastMR, MapFastMR and the operation RegMR exist in kernels (ib_alloc_mr, ib_map_mr_sg)
	// and in package roce, not in libibverbs.
	AllocFastMR(pd Handle, pieces int) (MR, error)
	MapFastMR(m MR, addr, n uint64) (MR, error)
	RegIndirect(pd Handle, parts []Part, repeat, iova uint64, access mr.Access) (MR, error)
	AllocMW(pd Handle, typ int) (MW, error)
	DeallocMW(Handle) error
	BindMW(q, mw Handle, b Bind, id uint64, flags qp.SendFlags) (bth.RKey, error)

	CreateChannel() (Handle, error)
	DestroyChannel(Handle) error
	CreateCQ(n int, channel Handle, vector int) (CQ, error)
	ResizeCQ(cq Handle, n int) (int, error)
	DestroyCQ(Handle) error
	ReqNotify(cq Handle, solicited bool) error
	CQEvent(channel Handle, wait time.Duration) (Handle, error) // EAGAIN if none comes in this time
	// Poll waits until it has n completions, but no longer than wait, and returns them.
	Poll(cq Handle, n int, wait time.Duration) ([]cq.WC, error)

	OpenXRCD() (Handle, error)
	CreateSRQ(pd Handle, a SRQAttr) (Sink, error)
	CreateXRCSRQ(pd, xrcd, cq Handle, a SRQAttr) (Sink, error)
	ModifySRQ(srq Handle, a SRQAttr, mask int) error
	QuerySRQ(srq Handle) (SRQAttr, error)
	DestroySRQ(Handle) error
	PostSRQRecv(srq Handle, wrs ...RecvWR) error

	CreateQP(QPInit) (QP, error)
	ModifyQP(q Handle, a *QPAttr, mask qp.AttrMask) error
	QueryQP(q Handle, mask qp.AttrMask) (QPAttr, qp.Caps, error)
	DestroyQP(Handle) error
	AttachMcast(q Handle, g bth.GID) error
	DetachMcast(q Handle, g bth.GID) error
	PostSend(q Handle, wrs ...SendWR) error
	PostSendEx(q Handle, wrs ...SendWR) error // by the ibv_wr_* calls
	PostRecv(q Handle, wrs ...RecvWR) error
}

// Tasker is a side that posts to several queue pairs at once (ibv_exp_post_task).
type Tasker interface {
	PostTask(tasks ...Task) (bad int, err error)
}

// Task is a list of sends for a queue pair.
type Task struct {
	QP    Handle
	Sends []SendWR
}

// Doorbell is a side that can process a send queue without a post.
type Doorbell interface {
	Doorbell(q Handle) error
}
