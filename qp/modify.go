package qp

import (
	"fmt"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
)

// transition has the attributes that a change of state requires, and those that it accepts as well.
type transition struct{ required, optional AttrMask }

// edge is a change of state.
type edge struct{ from, to State }

// transitions is the table of modify_qp. Modify returns EINVAL for changes that are not in it.
// (IBTA 11.2.5.2, Linux ib_modify_qp_is_ok.) Any state may go to RESET, any
// but RESET to ERR.
var transitions = map[Type]map[edge]transition{
	RC: {
		{Reset, Init}: {required: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, Init}:  {optional: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, RTR}: {required: AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer,
			optional: AttrAltPath | AttrAccess | AttrPKeyIndex},
		{RTR, RTS}: {required: AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrSQPSN | AttrMaxRdAtomic,
			optional: AttrCurState | AttrAltPath | AttrAccess | AttrMinRNRTimer | AttrPathMigState},
		{RTS, RTS}: {optional: AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState | AttrMinRNRTimer},
		{RTS, SQD}: {optional: AttrSQDNotify},
		{SQD, RTS}: {optional: AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState | AttrMinRNRTimer},
		{SQD, SQD}: {optional: AttrPort | AttrAV | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic |
			AttrMaxDestRdAtomic | AttrAltPath | AttrAccess | AttrPKeyIndex | AttrMinRNRTimer | AttrPathMigState},
	},
	UC: {
		{Reset, Init}: {required: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, Init}:  {optional: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, RTR}:   {required: AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN, optional: AttrAltPath | AttrAccess | AttrPKeyIndex},
		{RTR, RTS}:    {required: AttrSQPSN, optional: AttrCurState | AttrAltPath | AttrAccess | AttrPathMigState},
		{RTS, RTS}:    {optional: AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState},
		{RTS, SQD}:    {optional: AttrSQDNotify},
		{SQD, RTS}:    {optional: AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState},
		{SQD, SQD}:    {optional: AttrAV | AttrAltPath | AttrAccess | AttrPKeyIndex | AttrPathMigState},
		{SQE, RTS}:    {optional: AttrCurState | AttrAccess},
	},
	XRCSend: {
		{Reset, Init}: {required: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, Init}:  {optional: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, RTR}:   {required: AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN, optional: AttrAltPath | AttrAccess | AttrPKeyIndex},
		{RTR, RTS}: {required: AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrSQPSN | AttrMaxRdAtomic,
			optional: AttrCurState | AttrAltPath | AttrAccess | AttrPathMigState},
		{RTS, RTS}: {optional: AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState},
		{RTS, SQD}: {optional: AttrSQDNotify},
		{SQD, RTS}: {optional: AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState},
		{SQD, SQD}: {optional: AttrPort | AttrAV | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic |
			AttrAltPath | AttrAccess | AttrPKeyIndex | AttrPathMigState},
	},
	XRCRecv: {
		{Reset, Init}: {required: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, Init}:  {optional: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, RTR}: {required: AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer,
			optional: AttrAltPath | AttrAccess | AttrPKeyIndex},
		{RTR, RTS}: {required: AttrTimeout | AttrSQPSN,
			optional: AttrCurState | AttrAltPath | AttrAccess | AttrMinRNRTimer | AttrPathMigState},
		{RTS, RTS}: {optional: AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState | AttrMinRNRTimer},
		{RTS, SQD}: {optional: AttrSQDNotify},
		{SQD, RTS}: {optional: AttrCurState | AttrAccess | AttrAltPath | AttrPathMigState | AttrMinRNRTimer},
		{SQD, SQD}: {optional: AttrPort | AttrAV | AttrTimeout | AttrMaxDestRdAtomic | AttrAltPath | AttrAccess | AttrPKeyIndex |
			AttrMinRNRTimer | AttrPathMigState},
	},
	DCI: { // as in the experimental verbs
		{Reset, Init}: {required: AttrPKeyIndex | AttrPort | AttrDCKey},
		{Init, Init}:  {optional: AttrPKeyIndex | AttrPort | AttrAccess},
		{Init, RTR}:   {required: AttrAV | AttrPathMTU, optional: AttrPKeyIndex | AttrDCKey},
		{RTR, RTS}: {required: AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic,
			optional: AttrAltPath | AttrMinRNRTimer | AttrPathMigState},
		{RTS, RTS}: {optional: AttrAltPath | AttrPathMigState | AttrMinRNRTimer},
	},
	UD: {
		{Reset, Init}: {required: AttrPKeyIndex | AttrPort | AttrQKey},
		{Init, Init}:  {optional: AttrPKeyIndex | AttrPort | AttrQKey},
		{Init, RTR}:   {optional: AttrPKeyIndex | AttrQKey},
		{RTR, RTS}:    {required: AttrSQPSN, optional: AttrCurState | AttrQKey},
		{RTS, RTS}:    {optional: AttrCurState | AttrQKey},
		{RTS, SQD}:    {optional: AttrSQDNotify},
		{SQD, RTS}:    {optional: AttrCurState | AttrQKey},
		{SQD, SQD}:    {optional: AttrPKeyIndex | AttrQKey},
		{SQE, RTS}:    {optional: AttrCurState | AttrQKey},
	},
}

// inFlightAttrs are the attributes that determine how requests in flight are sent and repeated. In SQD they change
// only when the send queue has drained (IBTA 10.3.1.5).
const inFlightAttrs = AttrAV | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic

// init adds the GSI queue pair, a UD one whose port is fixed.
func init() {
	gsi := map[edge]transition{}
	for e, t := range transitions[UD] {
		t.required &^= AttrPort
		t.optional &^= AttrPort
		gsi[e] = t
	}
	transitions[GSI] = gsi
}

// lookup returns the row for a change of state.
func lookup(t Type, from, to State) (transition, bool) {
	switch {
	case to == Reset, to == Err && from != Reset:
		return transition{}, true
	}
	row, ok := transitions[t][edge{from, to}]
	return row, ok
}

// MaskRTR returns the attributes with which a connected queue pair of a type goes from INIT to RTR.
func MaskRTR(t Type) AttrMask {
	if t == RC {
		return maskOf(t, Init, RTR) | AttrFlushICRCQuirk
	}
	return maskOf(t, Init, RTR)
}

// MaskRTS returns the attributes with which a connected queue pair of a type goes from RTR to RTS.
func MaskRTS(t Type) AttrMask { return maskOf(t, RTR, RTS) }

func maskOf(t Type, from, to State) AttrMask {
	return AttrState | transitions[t][edge{from, to}].required
}

// Modify changes state and attributes (ibv_modify_qp). It changes everything
// or nothing; a refusal is an *[errs.Error] wrapping EINVAL that names the
// attribute.
func (q *QP) Modify(a *Attr, mask AttrMask) error {
	fail := func(format string, args ...any) error {
		return errs.On("modify qp", q.num.Object(), syscall.EINVAL, format, args...)
	}
	if mask&AttrCurState != 0 && a.CurState != q.state {
		return fail("CUR_STATE is %v, the state is %v", a.CurState, q.state)
	}
	to := q.state
	if mask&AttrState != 0 {
		to = a.State
	}
	row, ok := lookup(q.typ, q.state, to)
	if !ok {
		return fail("no transition from %v to %v for a %v queue pair", q.state, to, q.typ)
	}
	if q.state == SQD && !q.requester.drained && to != Reset && to != Err {
		if mask&AttrState != 0 { // as rxe
			return fail("the send queue is still draining; wait for SQ_DRAINED")
		}
		if early := mask & inFlightAttrs; early != 0 {
			return fail("%v concern requests in flight, and the send queue is still draining; wait for SQ_DRAINED", early)
		}
	}
	if missing := row.required &^ mask; missing != 0 {
		return fail("%v to %v needs %v", q.state, to, missing)
	}
	if q.typ == RC {
		row.optional |= AttrFlushICRCQuirk
	}
	if extra := mask &^ (row.required | row.optional | AttrState); extra != 0 {
		return fail("%v to %v does not take %v", q.state, to, extra)
	}
	if detail := checkAttr(a, mask); detail != "" {
		return fail("%s", detail)
	}
	if moves := mask & (AttrAltPath | AttrPathMigState); q.typ == DCI && moves != 0 {
		return errs.On("modify qp", q.num.Object(), syscall.EOPNOTSUPP, "%v: each work request of a DCI has its own path, so there is none to change over to", moves)
	}
	if detail := q.checkMigration(a, mask, to); detail != "" {
		return fail("%s", detail)
	}
	if q.state == RTS && to == SQD {
		q.sqdNotify = false // the program must set it each time
	}
	q.apply(a, mask)
	q.enter(to)
	return nil
}

// checkAttr validates the values named by mask and describes a bad one.
func checkAttr(a *Attr, mask AttrMask) string {
	switch {
	case mask&AttrAV != 0 && a.AV == nil:
		return "no address vector"
	case mask&AttrAltPath != 0 && a.AltAV == nil:
		return "no alternate address vector"
	}
	for _, c := range [...]struct {
		attr  AttrMask
		bad   bool
		value uint32
		why   string
	}{
		{AttrPort, a.Port != 1, uint32(a.Port), "port %d does not exist, only 1"},
		{AttrPKeyIndex, a.PKeyIndex != 0, uint32(a.PKeyIndex), "P_Key index %d does not exist, only 0"},
		{AttrAccess, a.Access&^supportedAcc != 0, uint32(a.Access &^ supportedAcc), "access flags %#x are not supported"},
		{AttrAltPath, a.AltPort != 1, uint32(a.AltPort), "alternate port %d does not exist, only 1"},
		{AttrAltPath, a.AltPKeyIndex != 0, uint32(a.AltPKeyIndex), "alternate P_Key index %d does not exist, only 0"},
		{AttrPathMTU, !a.PathMTU.Valid(), uint32(a.PathMTU), "path MTU %d is not one of 1 (256) to 5 (4096)"},
		{AttrDestQPN, a.DestQPN > bth.QPNMulticast, uint32(a.DestQPN), "destination QPN %#x is beyond 24 bits"},
		{AttrRQPSN, a.RQPSN > bth.PSNMask, uint32(a.RQPSN), "RQ_PSN %#x is beyond 24 bits"},
		{AttrSQPSN, a.SQPSN > bth.PSNMask, uint32(a.SQPSN), "SQ_PSN %#x is beyond 24 bits"},
	} {
		if mask&c.attr != 0 && c.bad {
			return fmt.Sprintf(c.why, c.value)
		}
	}
	for _, c := range [...]struct {
		attr         AttrMask
		value, limit uint8
		what         string
	}{
		{AttrAltPath, a.AltTimeout, maxTimeout, "alternate timeout code"},
		{AttrTimeout, a.Timeout, maxTimeout, "timeout code"},
		{AttrRetryCnt, a.RetryCnt, maxRetry, "retry count"},
		{AttrRNRRetry, a.RNRRetry, maxRetry, "RNR retry count"},
		{AttrMinRNRTimer, uint8(a.MinRNRTimer), maxRNRTimer, "RNR timer code"},
		{AttrMaxRdAtomic, a.MaxRdAtomic, MaxRdAtomic, "number of outstanding READs"},
		{AttrMaxDestRdAtomic, a.MaxDestRdAtomic, MaxRdAtomic, "number of READs of the peer"},
	} {
		if mask&c.attr != 0 && c.value > c.limit {
			return fmt.Sprintf("%s %d, the limit is %d", c.what, c.value, c.limit)
		}
	}
	return ""
}

// apply sets the attributes named by mask.
func (q *QP) apply(a *Attr, mask AttrMask) {
	r, s := &q.requester, &q.responder
	for _, set := range [...]struct {
		attr AttrMask
		do   func()
	}{
		{AttrSQDNotify, func() { q.sqdNotify = a.SQDNotify }},
		{AttrAccess, func() { q.access = a.Access; s.setAnswers(a.Access) }},
		{AttrQKey, func() { q.qkey = a.QKey }},
		{AttrPathMTU, func() { q.setMTU(a.PathMTU) }},
		{AttrDestQPN, func() { q.destQPN = a.DestQPN }},
		{AttrRQPSN, func() { s.start(a.RQPSN) }},
		{AttrSQPSN, func() { r.start(a.SQPSN) }},
		{AttrTimeout, func() { r.setTimeout(a.Timeout) }},
		{AttrRetryCnt, func() { r.setRetries(a.RetryCnt) }},
		{AttrRNRRetry, func() { r.rnrRetry, r.rnrLeft = a.RNRRetry, a.RNRRetry }},
		{AttrMinRNRTimer, func() { s.minRNR = a.MinRNRTimer }},
		{AttrFlushICRCQuirk, func() { q.flushQuirk = a.FlushICRCQuirk }},
		{AttrMaxRdAtomic, func() { q.setMaxRdAtomic(a.MaxRdAtomic) }},
		{AttrDCKey, func() { q.dci.key = a.DCKey }},
		{AttrMaxDestRdAtomic, func() { s.setResources(int(a.MaxDestRdAtomic), q.access) }},
		{AttrAV, func() { q.setPath(a.AV.path()); q.mig.forget() }},
		{AttrAltPath, func() { q.loadAlternate(a.AltAV.path(), a.AltTimeout) }},
		{AttrPathMigState, func() { q.setMigState(a.PathMigState) }},
	} {
		if mask&set.attr != 0 {
			set.do()
		}
	}
}

// enter moves to a state and does the work of entering it.
func (q *QP) enter(to State) {
	from := q.state
	switch {
	case to == Reset:
		q.reset()
	case to == Err:
		q.fail(cq.WRFlushErr)
	default:
		q.ForgetLast()
		q.state = to
		if from == Reset {
			q.openRecvRing(true)
		}
		if from == RTS && to == SQD {
			q.requester.drained = false
			q.requestAck()
			q.checkDrained()
		}
	}
}

// reset forgets everything: queues are emptied without completions.
func (q *QP) reset() {
	q.oweAck()
	q.reused = q.reused || q.path != nil
	q.state = Reset
	q.mem.UnbindAll(&q.windows)
	if q.cross != nil {
		q.resetCross()
	}
	for i := q.sq.head; i != q.sq.tail; i++ {
		q.uncount(q.sq.at(i))
	}
	q.sq.head, q.sq.cur, q.sq.tail = 0, 0, 0
	q.openRecvRing(false)
	q.dropRecvs()
	q.path, q.peerGID, q.ownGID, q.idents = nil, bth.GID{}, bth.GID{}, idents{}
	q.pass.Revoke()
	q.destQPN, q.qkey, q.access, q.sqdNotify = 0, 0, 0, false
	q.setMTU(q.portMTU)
	q.maxRdAtomic, q.flushQuirk = 0, false
	q.mig.reset()
	q.resetDC()
	if q.cc != nil {
		q.cc.reset()
	}
	q.endRepair()
	q.endHold()
	psn := q.requester.postPSN
	q.requester.reset()
	if q.dci != nil {
		q.requester.start(psn) // PSNs continue, so that a late answer does not match
	}
	q.requester.window = q.window
	q.responder.reset()
	q.responder.pd, q.responder.srq = q.pd, q.srq
}

// Query returns the attributes and the granted capacities (ibv_query_qp).
// RQPSN and SQPSN are the current ones: next expected, next to be sent. After a
// migration AV is what was the alternate path, and AltAV is nil.
func (q *QP) Query() (Attr, Caps) {
	a := Attr{
		State: q.state, CurState: q.state, SQDNotify: q.sqdNotify,
		SQDraining: q.state == SQD && !q.requester.drained, Access: q.access, Port: 1, QKey: q.qkey,
		AV: NewAH(q.path), PathMTU: q.pmtu, DestQPN: q.destQPN, RQPSN: q.responder.expect, SQPSN: q.requester.next,
		Timeout: q.requester.timeoutCode, RetryCnt: q.requester.retryCnt, RNRRetry: q.requester.rnrRetry,
		MinRNRTimer: q.responder.minRNR, MaxRdAtomic: q.maxRdAtomic, MaxDestRdAtomic: uint8(q.responder.granted),
		PathMigState: q.mig.state, FlushICRCQuirk: q.flushQuirk,
	}
	if q.dci != nil {
		a.DCKey, a.MaxRdAtomic = q.dci.key, q.dci.depth
	}
	if alt := q.mig.alternate(); alt != nil {
		a.AltAV, a.AltPort, a.AltTimeout = NewAH(alt), 1, q.mig.timeout
	}
	return a, q.caps()
}

// caps returns the sizes that were granted.
func (q *QP) caps() Caps {
	return Caps{MaxSendWR: q.sq.cap(), MaxRecvWR: q.rq.cap(), MaxSendSGE: int(q.sq.maxSGE), MaxRecvSGE: int(q.rq.maxSGE), MaxInlineData: int(q.sq.maxData)}
}
