package qp_test

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// allAttrs has a legal value for every attribute.
func allAttrs(n *node) qp.Attr {
	return qp.Attr{Port: 1, AV: qp.NewAH(n.path), PathMTU: bth.MTU1024, DestQPN: 5, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12,
		MaxRdAtomic: 1, MaxDestRdAtomic: 1, QKey: 0x11111111}
}

// required are the masks of the legal transitions of a queue pair, as the verbs
// table lists them.
var required = map[qp.Type]map[[2]qp.State]qp.AttrMask{
	qp.RC: {
		{qp.Reset, qp.Init}: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess,
		{qp.Init, qp.Init}:  0,
		{qp.Init, qp.RTR}:   qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer,
		{qp.RTR, qp.RTS}:    qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrSQPSN | qp.AttrMaxRdAtomic,
		{qp.RTS, qp.RTS}:    0, {qp.RTS, qp.SQD}: 0, {qp.SQD, qp.RTS}: 0, {qp.SQD, qp.SQD}: 0,
	},
	qp.UC: {
		{qp.Reset, qp.Init}: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess,
		{qp.Init, qp.Init}:  0,
		{qp.Init, qp.RTR}:   qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN,
		{qp.RTR, qp.RTS}:    qp.AttrSQPSN,
		{qp.RTS, qp.RTS}:    0, {qp.RTS, qp.SQD}: 0, {qp.SQD, qp.RTS}: 0, {qp.SQD, qp.SQD}: 0,
	},
	qp.XRCSend: {
		{qp.Reset, qp.Init}: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess,
		{qp.Init, qp.Init}:  0,
		{qp.Init, qp.RTR}:   qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN,
		{qp.RTR, qp.RTS}:    qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrSQPSN | qp.AttrMaxRdAtomic,
		{qp.RTS, qp.RTS}:    0, {qp.RTS, qp.SQD}: 0, {qp.SQD, qp.RTS}: 0, {qp.SQD, qp.SQD}: 0,
	},
	qp.XRCRecv: {
		{qp.Reset, qp.Init}: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess,
		{qp.Init, qp.Init}:  0,
		{qp.Init, qp.RTR}:   qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer,
		{qp.RTR, qp.RTS}:    qp.AttrTimeout | qp.AttrSQPSN,
		{qp.RTS, qp.RTS}:    0, {qp.RTS, qp.SQD}: 0, {qp.SQD, qp.RTS}: 0, {qp.SQD, qp.SQD}: 0,
	},
	qp.UD: {
		{qp.Reset, qp.Init}: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey,
		{qp.Init, qp.Init}:  0, {qp.Init, qp.RTR}: 0, {qp.RTR, qp.RTS}: qp.AttrSQPSN,
		{qp.RTS, qp.RTS}: 0, {qp.RTS, qp.SQD}: 0, {qp.SQD, qp.RTS}: 0, {qp.SQD, qp.SQD}: 0,
	},
}

var states = []qp.State{qp.Reset, qp.Init, qp.RTR, qp.RTS, qp.SQD, qp.Err}

// walk takes a fresh queue pair to a state along the legal path.
func walk(t *testing.T, n *node, to qp.State) {
	t.Helper()
	paths := map[qp.State][]qp.State{qp.Init: {qp.Init}, qp.RTR: {qp.Init, qp.RTR}, qp.RTS: {qp.Init, qp.RTR, qp.RTS},
		qp.SQD: {qp.Init, qp.RTR, qp.RTS, qp.SQD}, qp.Err: {qp.Init, qp.Err}}
	for _, s := range paths[to] {
		a := allAttrs(n)
		a.State = s
		if err := n.Modify(&a, qp.AttrState|required[n.Type()][[2]qp.State{n.State(), s}]); err != nil {
			t.Fatal(err)
		}
	}
}

func fresh(t *testing.T, typ qp.Type) *node {
	t.Helper()
	c := pairConfig{stopAt: inReset, typ: typ}
	if typ == qp.XRCRecv {
		c.typB, c.hostA = qp.XRCSend, newHost(rand.New(rand.NewPCG(1, 1))).openXRC(1, qp.SRQConfig{MaxWR: 1})
	}
	if typ == qp.XRCSend {
		c.typB, c.hostB = qp.XRCRecv, newHost(rand.New(rand.NewPCG(1, 1))).openXRC(1, qp.SRQConfig{MaxWR: 1})
	}
	a, _, _ := newPair(t, 1, impairment{}, c)
	return a
}

// TestModify walks every pair of states: the legal ones work with exactly the
// required attributes, fail without any one of them and with a foreign one;
// all others are EINVAL and change nothing.
func TestModify(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC, qp.UD, qp.XRCSend, qp.XRCRecv} {
		for _, from := range states {
			for _, to := range states {
				mask, legal := required[typ][[2]qp.State{from, to}]
				if to == qp.Reset || to == qp.Err && from != qp.Reset {
					mask, legal = 0, true
				}
				try := func(mask qp.AttrMask) error {
					n := fresh(t, typ)
					walk(t, n, from)
					a := allAttrs(n)
					a.State = to
					err := n.Modify(&a, qp.AttrState|mask)
					want := to
					if err != nil {
						want = from
					}
					if n.State() != want {
						t.Errorf("%v %v→%v %v: state is %v", typ, from, to, mask, n.State())
					}
					return err
				}
				if !legal {
					if err := try(0); !errors.Is(err, syscall.EINVAL) {
						t.Errorf("%v %v→%v: %v, want EINVAL", typ, from, to, err)
					}
					continue
				}
				if err := try(mask); err != nil {
					t.Errorf("%v %v→%v: %v", typ, from, to, err)
				}
				for bit := qp.AttrMask(1); bit <= qp.AttrDestQPN; bit <<= 1 {
					if mask&bit != 0 && !errors.Is(try(mask&^bit), syscall.EINVAL) {
						t.Errorf("%v %v→%v without %v: no error", typ, from, to, bit)
					}
				}
				if err := try(mask | qp.AttrCap); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("%v %v→%v with a foreign attribute: %v", typ, from, to, err)
				}
			}
		}
	}
}

// TestModifyXRC: each end of XRC takes the optional attributes of its half.
func TestModifyXRC(t *testing.T) {
	for _, c := range []struct {
		attr  qp.AttrMask
		state qp.State // from and to
		takes qp.Type
	}{
		{qp.AttrMinRNRTimer, qp.RTS, qp.XRCRecv},
		{qp.AttrMinRNRTimer, qp.SQD, qp.XRCRecv},
		{qp.AttrMaxDestRdAtomic, qp.SQD, qp.XRCRecv},
		{qp.AttrMaxRdAtomic, qp.SQD, qp.XRCSend},
		{qp.AttrRetryCnt | qp.AttrRNRRetry, qp.SQD, qp.XRCSend},
	} {
		for _, typ := range []qp.Type{qp.XRCSend, qp.XRCRecv} {
			n := fresh(t, typ)
			walk(t, n, c.state)
			a := allAttrs(n)
			if err := n.Modify(&a, c.attr); (err == nil) != (typ == c.takes) {
				t.Errorf("%v in %v: %v: %v", typ, c.state, c.attr, err)
			}
		}
	}
}

// TestModifyValues: a bad value is EINVAL and names what is wrong.
func TestModifyValues(t *testing.T) {
	for _, c := range []struct {
		name string
		from qp.State
		to   qp.State
		bad  func(*qp.Attr)
	}{
		{"port 2", qp.Reset, qp.Init, func(a *qp.Attr) { a.Port = 2 }},
		{"P_Key index 5", qp.Reset, qp.Init, func(a *qp.Attr) { a.PKeyIndex = 5 }},
		{"unknown access flag", qp.Reset, qp.Init, func(a *qp.Attr) { a.Access = mr.ZeroBased }},
		{"no address vector", qp.Init, qp.RTR, func(a *qp.Attr) { a.AV = nil }},
		{"MTU 0", qp.Init, qp.RTR, func(a *qp.Attr) { a.PathMTU = 0 }},
		{"MTU 6", qp.Init, qp.RTR, func(a *qp.Attr) { a.PathMTU = 6 }},
		{"QPN beyond 24 bits", qp.Init, qp.RTR, func(a *qp.Attr) { a.DestQPN = 1 << 24 }},
		{"PSN beyond 24 bits", qp.Init, qp.RTR, func(a *qp.Attr) { a.RQPSN = 1 << 24 }},
		{"253 READs of the peer", qp.Init, qp.RTR, func(a *qp.Attr) { a.MaxDestRdAtomic = 253 }},
		{"RNR timer 32", qp.Init, qp.RTR, func(a *qp.Attr) { a.MinRNRTimer = 32 }},
		{"timeout 32", qp.RTR, qp.RTS, func(a *qp.Attr) { a.Timeout = 32 }},
		{"retry count 8", qp.RTR, qp.RTS, func(a *qp.Attr) { a.RetryCnt = 8 }},
		{"RNR retry 8", qp.RTR, qp.RTS, func(a *qp.Attr) { a.RNRRetry = 8 }},
		{"253 READs", qp.RTR, qp.RTS, func(a *qp.Attr) { a.MaxRdAtomic = 253 }},
	} {
		n := fresh(t, qp.RC)
		walk(t, n, c.from)
		a := allAttrs(n)
		a.State = c.to
		c.bad(&a)
		err := n.Modify(&a, qp.AttrState|required[qp.RC][[2]qp.State{c.from, c.to}])
		var e *errs.Error
		if !errors.As(err, &e) || e.Err != syscall.EINVAL || e.Object != n.Num().Object() || n.State() != c.from {
			t.Errorf("%s: %v, state %v", c.name, err, n.State())
		}
	}
}

// TestFullQueuesDoNotAllocate: programs post until a queue is full, so that refusal costs no
// memory. It names the queue pair all the same.
func TestFullQueuesDoNotAllocate(t *testing.T) {
	n := fresh(t, qp.RC)
	walk(t, n, qp.RTS)
	send, recv := qp.SendWR{Opcode: qp.Send}, qp.RecvWR{}
	for what, post := range map[string]func() error{
		"send":    func() error { return n.PostSend(&send) },
		"receive": func() error { return n.PostRecv(&recv) },
	} {
		var err error
		for err == nil {
			err = post()
		}
		var e *errs.Error
		if !errors.Is(err, syscall.ENOMEM) || !errors.As(err, &e) || e.Op != "post "+what || e.Object != n.Num().Object() {
			t.Errorf("%s: %v, want ENOMEM", what, err)
		}
		if a := testing.AllocsPerRun(100, func() { post() }); a != 0 {
			t.Errorf("%s: %v allocations for a full queue", what, a)
		}
	}
}
