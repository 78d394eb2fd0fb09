package qp

import (
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/recent"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// DCTConfig has the parameters that only a target needs (struct ibv_exp_dct_init_attr).
type DCTConfig struct {
	Key              uint64 // the access key that initiators must have
	Own              bth.GID
	Access           mr.Access // RemoteRead, RemoteWrite, RemoteAtomic
	MinRNRTimer      bth.RNRTimer
	MTU              bth.MTU // the largest path MTU of an initiator
	MaxDestRdAtomic  uint8   // READs and atomics of each initiator; 0: DefaultDCRdAtomic
	MaxInitiators    int     // connected at the same time; one that connects anew counts once; 0: DefaultDCInitiators
	Rand             func() uint64
	PathBack         func(p *frame.Packet, keep bool) *frame.Path // the path for answers to the sender of p; keep: for more than one answer; nil: there is no path
	PathBackReleased func(*frame.Path)                            // called when a kept path is no longer used; may be nil
}

// Defaults of a target.
const (
	DefaultDCRdAtomic   = 16
	DefaultDCInitiators = 1 << 15
)

// DCTState is the state of a target (enum ibv_dct_state of the experimental verbs).
type DCTState uint8

// The states. A target is active until [QP.ArmDCT] is called.
const (
	DCTActive DCTState = iota // answers initiators, raises no event
	DCTArmed                  // the next key violation raises an event
	DCTFired                  // it did; key violations are counted only
)

var dctStateNames = map[DCTState]string{DCTActive: "ACTIVE", DCTArmed: "ARMED", DCTFired: "FIRED"}

func (s DCTState) String() string { return name(dctStateNames, s, "DCTState") }

// DCTStatus is the current status of a target.
type DCTStatus struct {
	State         DCTState
	KeyViolations uint64 // CONNECTs with a wrong key
	Initiators    int    // that have a context
	Sources       int    // different addresses of these, with the Ethernet address
}

// maxDCReplies limits the answers to CONNECTs in the queue. When the queue is full, the target drops CONNECTs; their
// initiators repeat them.
const maxDCReplies = 256

// target is the state of a DCT.
type target struct {
	DCTConfig
	state      DCTState
	violations uint64

	contexts   map[uint32]*dcContext      // by number
	initiators map[dcInitiator]*dcContext // the newest of each; see dcContext.sibling
	sources    map[dcOrigin]*dcSource
	order      recent.List[*dcContext]
	ready      []*dcContext // with answers that are due
	replies    []dcReply
	rings      [][]answer           // lent to contexts with answers that are due
	onEvent    func(*QP, EventType) // of the responders
}

// checkDC checks the parameters of an initiator or a target.
func (c *Config) checkDC() error {
	fail := func(format string, args ...any) error {
		return errs.New("create qp", syscall.EINVAL, format, args...)
	}
	t := c.DCT
	switch {
	case (t != nil) != (c.Type == DCT):
		return fail("the parameters of a target are required for DCT and not allowed for other types")
	case c.Type == DCI && c.SRQ != nil:
		return fail("a DCI receives nothing: it has no shared receive queue")
	case c.Type != DCT:
		return nil
	case c.SRQ == nil:
		return errs.New("create dct", syscall.EINVAL, "a shared receive queue is required")
	case t.Rand == nil || t.PathBack == nil:
		return errs.New("create dct", syscall.EINVAL, "no source of random numbers or of paths")
	case !t.MTU.Valid():
		return errs.New("create dct", syscall.EINVAL, "path MTU %d is not one of 1 (256) to 5 (4096)", t.MTU)
	case t.Access&^(mr.RemoteRead|mr.RemoteWrite|mr.RemoteAtomic) != 0:
		return errs.New("create dct", syscall.EINVAL, "access flags %#x are not supported", uint32(t.Access))
	case t.MinRNRTimer > maxRNRTimer:
		return errs.New("create dct", syscall.EINVAL, "RNR timer code %d, the limit is %d", t.MinRNRTimer, maxRNRTimer)
	case t.MaxDestRdAtomic > MaxRdAtomic:
		return errs.New("create dct", syscall.EINVAL, "%d READs of an initiator, the limit is %d", t.MaxDestRdAtomic, MaxRdAtomic)
	case t.MaxInitiators < 0:
		return errs.New("create dct", syscall.EINVAL, "%d initiators, must not be negative", t.MaxInitiators)
	}
	return nil
}

// serve makes the queue pair a target. It is one until it is reset.
func (q *QP) serve(c *DCTConfig) {
	t := &target{DCTConfig: *c, contexts: map[uint32]*dcContext{}, initiators: map[dcInitiator]*dcContext{}, sources: map[dcOrigin]*dcSource{}}
	if t.MaxDestRdAtomic == 0 {
		t.MaxDestRdAtomic = DefaultDCRdAtomic
	}
	if t.MaxInitiators == 0 {
		t.MaxInitiators = DefaultDCInitiators
	}
	t.order.Slack = dcEvictable / 8
	t.onEvent = func(_ *QP, e EventType) {
		switch e {
		case EventReqErr, EventAccessErr, EventFatal: // the others are of one context only
			q.event(e)
		}
	}
	q.dct, q.state, q.ownGID = t, RTR, c.Own
}

// ArmDCT requests an event for the next key violation (ibv_exp_arm_dct). It returns EINVAL if the queue pair is no
// target.
func (q *QP) ArmDCT() error {
	if q.dct == nil {
		return errs.On("arm dct", q.num.Object(), syscall.EINVAL, "a %v queue pair is no target", q.typ)
	}
	q.dct.state = DCTArmed
	return nil
}

// DCTStatus returns the status of a target. It is zero if the queue pair is no target.
func (q *QP) DCTStatus() DCTStatus {
	if q.dct == nil {
		return DCTStatus{}
	}
	return DCTStatus{q.dct.state, q.dct.violations, len(q.dct.contexts), len(q.dct.sources)}
}

// violated notes a wrong key.
func (q *QP) violated() {
	t := q.dct
	t.violations++
	if t.state == DCTArmed {
		t.state = DCTFired
		q.event(EventDCTKeyViolation)
	}
}

// handleInitiator processes a packet of an initiator.
func (q *QP) handleInitiator(now mono.Time, p *frame.Packet) {
	t := q.dct
	switch {
	case t == nil || q.state != RTR:
		q.cnt.WrongState++
		return
	case p.Info.Flags&bth.Request == 0:
		q.cnt.WrongTransport++ // a target sends no requests
		return
	case p.Dst != q.ownGID:
		q.cnt.WrongPeer++
		return
	}
	e := p.DCETH()
	if p.Op == bth.DCConnect {
		q.handleConnect(now, p)
		return
	}
	// A sender that knows the number has received ACCEPT. Its Ethernet address is not compared: the packet may arrive
	// from another router.
	c := t.contexts[e.Context]
	if c == nil || c.source.gid != p.Src || c.qpn != e.QPN {
		q.cnt.WrongPeer++ // late, duplicated or forged
		return
	}
	if p.Op == bth.DCDisconnect {
		q.cnt.RcvdPkts++
		q.dropContext(c)
		return
	}
	if !c.proven && !q.prove(c) {
		q.cnt.WrongPeer++ // of an attempt that the initiator has given up
		return
	}
	q.dct.order.Touch(now, &c.Entry)
	if c.responder == nil {
		c.responder = q.newResponder(c)
	}
	r := c.responder
	t.lendRing(&r.responder.answers)
	if id, unseen := p.UnseenID(); unseen {
		r.handleSolvedID(now, p, id)
	} else {
		r.handleAdmitted(now, p)
	}
	s, all := &r.responder, &q.responder // of this initiator, and of the target
	all.taken, s.taken = all.taken+s.taken, 0
	all.served, s.served = all.served+s.served, 0
	switch {
	case c.queued:
	case r.responder.answers.empty():
		t.takeRing(&r.responder.answers)
	default:
		c.queued = true
		t.ready = append(t.ready, c)
	}
}

// handleConnect processes a CONNECT. It ends no context in which the same initiator has sent requests, because the
// CONNECT may be forged.
func (q *QP) handleConnect(now mono.Time, p *frame.Packet) {
	t := q.dct
	if len(t.replies) >= maxDCReplies {
		q.cnt.DupDropped++
		return
	}
	x := p.DCCETH()
	mtu := bth.MTU(x.MTU)
	switch {
	case x.Key != t.Key:
		q.violated()
		q.rejectInitiator(p, bth.DCKeyViolation)
		return
	case !mtu.Valid() || mtu > t.MTU:
		q.rejectInitiator(p, bth.DCBadParameter)
		return
	}
	q.cnt.RcvdPkts++
	c, known := t.attempt(dcInitiator{originOf(p), p.DCETH().QPN}, x.Connection)
	switch {
	case c != nil: // duplicated, or ACCEPT was lost
		q.cnt.DuplicateRequest++
		q.dct.order.Touch(now, &c.Entry)
		q.acceptInitiator(c)
		return
	case known.used != nil && int32(x.Connection-known.used.connection) < 0: // late
		q.cnt.DuplicateRequest++
		return
	}
	if c = q.newContext(now, p, x, &known); c == nil {
		q.rejectInitiator(p, bth.DCNoResources)
		return
	}
	q.acceptInitiator(c)
}

// acceptInitiator queues an ACCEPT.
func (q *QP) acceptInitiator(c *dcContext) {
	q.dct.replies = append(q.dct.replies, dcReply{op: bth.DCAccept, path: c.source.path, dest: c.qpn, psn: c.psn, context: c.number,
		connect: bth.DCCETHFields{Connection: c.connection, Depth: c.depth, MTU: uint8(c.mtu)}})
}

// rejectInitiator queues a REJECT. It keeps nothing of the sender.
func (q *QP) rejectInitiator(p *frame.Packet, why bth.DCReason) {
	t := q.dct
	var path *frame.Path
	if s := t.sources[originOf(p)]; s != nil {
		path = s.path
	} else {
		path = t.PathBack(p, false)
	}
	if path != nil {
		t.replies = append(t.replies, dcReply{op: bth.DCReject, path: path, dest: p.DCETH().QPN, psn: p.PSN(),
			connect: bth.DCCETHFields{Connection: p.DCCETH().Connection, Reason: why}})
	}
}

// dcTurn is how many responses one context sends before the target continues with the next one.
const dcTurn = 16

// emitTarget is Emit for a target: answers to CONNECTs, then those of the contexts
// in turn.
func (q *QP) emitTarget(now mono.Time, sink frame.Sink) (more bool) {
	t := q.dct
	if t == nil {
		return false
	}
	for i := range t.replies {
		if q.emitDC(sink, &t.replies[i]) == blocked {
			t.replies = append(t.replies[:0], t.replies[i:]...)
			return true
		}
	}
	clear(t.replies)
	t.replies = t.replies[:0]
	for sent := 0; len(t.ready) > 0; sent += dcTurn {
		if sent >= emitBudget {
			return true
		}
		c := t.ready[0]
		res := emitted
		for i := 0; i < dcTurn && res == emitted && c.responder != nil; i++ {
			if res = c.responder.emitResponse(sink); res == emitted {
				q.dct.order.Touch(now, &c.Entry) // the initiator of a long READ is silent while it gets the data
			}
		}
		if res == blocked {
			return true
		}
		t.ready = t.ready[1:]
		if res == emitted && c.responder != nil && !c.responder.responder.answers.empty() {
			t.ready = append(t.ready, c)
			continue
		}
		c.queued = false
		if c.responder != nil {
			t.takeRing(&c.responder.responder.answers)
		}
	}
	t.ready = t.ready[:0:cap(t.ready)]
	return false
}

// maxSpareRings is how many rings a target keeps for contexts that will have answers.
const maxSpareRings = 256

// lendRing gives a queue of answers its first slots. Few initiators have answers due at the same time, so the target
// lends slots only to those.
func (t *target) lendRing(a *answerQueue) {
	if n := len(t.rings); n > 0 && len(a.slots) == 0 {
		a.slots, t.rings = t.rings[n-1], t.rings[:n-1]
	}
}

// takeRing takes the slots of a queue back, if no answer is due. A queue that has grown keeps its own: its
// initiator has many READs at once.
func (t *target) takeRing(a *answerQueue) {
	if a.empty() && len(a.slots) == firstSlots {
		if len(t.rings) < maxSpareRings {
			t.rings = append(t.rings, a.slots)
		}
		a.slots = nil
	}
}

// stopServing forgets all initiators.
func (q *QP) stopServing() {
	t := q.dct
	if t == nil {
		return
	}
	for _, c := range t.contexts {
		if c.responder != nil {
			c.responder.reset()
		}
		t.unlink(c)
	}
	q.dct, q.dcDeadline = nil, mono.Never
}
