package roce

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// The dynamically connected service: an initiator is a queue pair of type [DCI]. Each of its
// work requests names a [DCT] by address handle, number and access key. The service does not
// interoperate with other stacks. See docs/dc.md.

// DCTConfig is struct ibv_exp_dct_init_attr.
type DCTConfig struct {
	CQ  *CQ  // of receives
	SRQ *SRQ // of receives, on the shard of CQ
	Key uint64

	Access       Access   // RemoteRead, RemoteWrite, RemoteAtomic
	MinRNRTimer  RNRTimer // how long initiators wait when SRQ is empty
	MTU          MTU      // the largest path MTU of an initiator; 0: the port's
	Port         uint8    // only port 1 exists; 0 stands for it
	PKeyIndex    uint16   // only index 0 exists
	GIDIndex     int      // packets must have this destination address
	TrafficClass uint8    // of answers
	FlowLabel    uint32
	HopLimit     uint8 // 0: the default

	MaxDestRdAtomic uint8 // outstanding READs and atomics of each initiator; 0: qp.DefaultDCRdAtomic
	MaxInitiators   int   // connected at once; 0: qp.DefaultDCInitiators

	Flags    uint32 // create flags: must be 0
	UserData any    // returned by DCT.UserData
}

// DCTState is the state of a target.
type DCTState = qp.DCTState

// States of a target.
const (
	DCTActive = qp.DCTActive // no event requested
	DCTArmed  = qp.DCTArmed  // the next key violation raises [EventDCTKeyViolation]
	DCTFired  = qp.DCTFired  // the event was raised
)

// DCTAttr is struct ibv_exp_dct_attr.
type DCTAttr struct {
	DCTConfig
	PD            *PD
	State         DCTState
	KeyViolations uint64 // connects with another key
	Initiators    int    // connected now
}

// DCT is a dynamically connected target (struct ibv_exp_dct). It serves many initiators at once.
// Its methods may be called from any goroutine.
type DCT struct {
	qp     *QP
	config DCTConfig
}

// CreateDCT creates a target (ibv_exp_create_dct), which is active at once. It fails with EINVAL if CQ or SRQ
// is missing, belongs to another device, or if both are on different shards; if the SRQ is for XRC; if port,
// P_Key index, MTU, RNR timer or flags do not exist; if MTU is larger than the port's; or if Access has other
// than remote rights. It fails with ENODATA if GIDIndex has no address.
func (p *PD) CreateDCT(c DCTConfig) (*DCT, error) {
	const op = "create dct"
	d := p.dev
	switch {
	case c.CQ == nil || c.CQ.dev != d:
		return nil, fail(op, syscall.EINVAL, "a completion queue of the same device is required")
	case c.SRQ == nil || c.SRQ.dev != d || c.SRQ.shard != c.CQ.shard:
		return nil, fail(op, syscall.EINVAL, "a shared receive queue of the device and shard of the completion queue is required")
	case c.Port > 1:
		return nil, fail(op, syscall.EINVAL, "port %d does not exist, only 1", c.Port)
	case c.PKeyIndex != 0:
		return nil, fail(op, syscall.EINVAL, "P_Key index %d does not exist, only 0", c.PKeyIndex)
	case c.Flags != 0:
		return nil, fail(op, syscall.EINVAL, "create flags %#x are not known", c.Flags)
	case c.FlowLabel >= 1<<20:
		return nil, fail(op, syscall.EINVAL, "flow label %#x has more than 20 bits", c.FlowLabel)
	}
	active := bth.ActiveMTU(d.nic.MTU())
	c.MTU = cmp.Or(c.MTU, active)
	if c.MTU.Valid() && c.MTU > active {
		return nil, fail(op, syscall.EINVAL, "path MTU %v is more than the port has, %v", c.MTU, active)
	}
	t := &DCT{config: c}
	t.qp = &QP{dev: d, pd: p, recvCQ: c.CQ, srq: c.SRQ, userData: c.UserData, dct: t}
	if _, err := d.createQP(t.qp, c.CQ.shard, QPConfig{Type: qp.DCT}); err != nil {
		return nil, err
	}
	return t, nil
}

// engine returns the configuration for the engine. The caller has stopped the
// NIC.
func (t *DCT) engine(n *nic.NIC, random func() uint64) (*qp.DCTConfig, error) {
	c := &t.config
	own, ok := n.Routes().GIDs().At(c.GIDIndex)
	if !ok {
		return nil, errs.New("create dct", errno.ENODATA, "there is no address at GID index %d", c.GIDIndex)
	}
	var seed [32]byte // the numbers are drawn under the lock of one shard
	for i := 0; i < len(seed); i += 8 {
		binary.NativeEndian.PutUint64(seed[i:], random())
	}
	return &qp.DCTConfig{Key: c.Key, Own: own, Access: c.Access &^ mr.LocalWrite, MinRNRTimer: c.MinRNRTimer, MTU: c.MTU, MaxDestRdAtomic: c.MaxDestRdAtomic,
		MaxInitiators: c.MaxInitiators, Rand: rand.NewChaCha8(seed).Uint64, PathBackReleased: n.Routes().Unlearn,
		PathBack: n.WayBack(route.Way{TrafficClass: c.TrafficClass, FlowLabel: c.FlowLabel, HopLimit: c.HopLimit})}, nil
}

// Num returns the number, by which work requests name the target.
func (t *DCT) Num() QPN { return t.qp.Num() }

// UserData returns DCTConfig.UserData.
func (t *DCT) UserData() any { return t.qp.userData }

// Query returns the attributes (ibv_exp_query_dct).
func (t *DCT) Query() DCTAttr {
	a := DCTAttr{DCTConfig: t.config, PD: t.qp.pd}
	a.Port = 1
	t.qp.nic.View(func(e *qp.QP) {
		s := e.DCTStatus()
		a.State, a.KeyViolations, a.Initiators = s.State, s.KeyViolations, s.Initiators
	})
	return a
}

// Arm requests [EventDCTKeyViolation] for the next connect with another key (ibv_exp_arm_dct).
// The state becomes ARMED, and FIRED after the event. It fails with EINVAL if compMask is not
// zero.
func (t *DCT) Arm(compMask uint32) error {
	if compMask != 0 {
		return errs.On("arm dct", t.Num().Object(), syscall.EINVAL, "comp_mask %#x, must be 0", compMask)
	}
	return t.qp.nic.Locked(func(e *qp.QP) error { return e.ArmDCT() })
}

// Close destroys the target (ibv_exp_destroy_dct). It does not wait for connected initiators,
// which get no answers any more.
func (t *DCT) Close() error { return t.qp.Close() }

// Initiator has the attributes of a queue pair of type [DCI].
type Initiator struct {
	Key      uint64 // used by work requests whose DCKey has the top bit set
	AV       *AH    // required by the verbs, but unused: each work request has its own
	MTU      MTU
	Timeout  uint8 // local ACK timeout code; 0: none
	RetryCnt uint8
	RNRRetry uint8
	RdAtomic uint8 // outstanding READs and atomics; a target may grant fewer
}

// ReadyDC moves a queue pair of type [DCI] in RESET through INIT and RTR to RTS.
func (q *QP) ReadyDC(i Initiator) error {
	for _, step := range []struct {
		attr Attr
		mask AttrMask
	}{
		{Attr{State: qp.Init, Port: 1, DCKey: i.Key}, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrDCKey},
		{Attr{State: qp.RTR, AV: i.AV, PathMTU: i.MTU}, qp.AttrAV | qp.AttrPathMTU},
		{Attr{State: qp.RTS, Timeout: i.Timeout, RetryCnt: i.RetryCnt, RNRRetry: i.RNRRetry, MaxRdAtomic: i.RdAtomic}, qp.MaskRTS(qp.DCI)},
	} {
		if err := q.Modify(&step.attr, step.mask|qp.AttrState); err != nil {
			return err
		}
	}
	return nil
}
