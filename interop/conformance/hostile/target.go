package hostile

import (
	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/tools/scripted"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/script"
)

// NewTarget returns a target by which scripts control a device context, with the verbs that this stack and rxe have in
// common. Package scripted has the target for a device of this stack, and the common parts of both.
func NewTarget(n verbs.Node) script.Target { return &target{node: n} }

type target struct{ node verbs.Node }

// Dropped returns how many packets a target of this stack has counted as dropped. ok is false for other targets.
func (t *target) Dropped() (uint64, bool) {
	d, ok := t.node.(interface{ Device() *roce.Device })
	if !ok {
		return 0, false
	}
	return scripted.Dropped(d.Device()), true
}

// targetQP is a queue pair of a target.
type targetQP struct {
	c        script.TargetConfig
	node     verbs.Node
	q        verbs.QP
	scq, rcq verbs.CQ
	mr       verbs.MR
	recvs    verbs.MR
	ah       verbs.Handle // of the script, for datagrams
	ids      uint64
	posted   int
}

// Connect makes a queue pair in RTS.
func (t *target) Connect(c script.TargetConfig) (script.TargetQP, error) {
	n := t.node
	q := &targetQP{c: c, node: n}
	pd, err := n.AllocPD()
	if err != nil {
		return nil, err
	}
	if q.scq, err = n.CreateCQ(63, 0, 0); err != nil {
		return nil, err
	}
	if q.rcq, err = n.CreateCQ(63, 0, 0); err != nil {
		return nil, err
	}
	region := func(size int, access mr.Access) (m verbs.MR, err error) {
		at, err := n.Alloc(uint64(size))
		if err != nil {
			return m, err
		}
		return n.RegMR(pd, at, uint64(size), access)
	}
	if q.mr, err = region(c.Memory, c.Access); err != nil {
		return nil, err
	}
	pattern := make([]byte, c.Memory)
	scripted.Pattern(pattern)
	if err = n.WriteMem(q.mr.Addr, pattern); err != nil {
		return nil, err
	}
	if q.recvs, err = region(scripted.Receives*script.RecvSize, mr.LocalWrite); err != nil {
		return nil, err
	}
	if q.q, err = n.CreateQP(verbs.QPInit{PD: pd, Type: c.Type, SendCQ: q.scq.H, RecvCQ: q.rcq.H,
		Caps: qp.Caps{MaxSendWR: 16, MaxRecvWR: scripted.Receives, MaxSendSGE: 2, MaxRecvSGE: 2}}); err != nil {
		return nil, err
	}
	av := verbs.AH{Port: 1, DGID: c.Peer, HopLimit: 64}
	av.SGIDIndex, _ = n.GID()
	if c.Type == qp.UD {
		if q.ah, err = n.CreateAH(pd, av); err != nil {
			return nil, err
		}
	}
	a := &verbs.QPAttr{Port: 1, Access: c.Rights, QKey: c.QKey, AV: av, PathMTU: bth.MTU1024, DestQPN: c.PeerQPN, RQPSN: c.RQPSN, SQPSN: c.SQPSN,
		Timeout: c.Timeout, RetryCnt: c.Retry, RNRRetry: c.RNR, MinRNRTimer: c.Timer, MaxRdAtomic: c.Depth, MaxDestRdAtomic: c.Reads}
	for _, to := range scripted.PathOf(c.Type) {
		a.State = to.State
		if err = n.ModifyQP(q.q.H, a, to.Mask); err != nil {
			return nil, err
		}
	}
	return q, q.Recv(c.Recv)
}

func (q *targetQP) QPN() bth.QPN { return q.q.QPN }

func (q *targetQP) Memory() (uint64, bth.RKey, error) { return q.mr.Addr, q.mr.RKey, nil }

func (q *targetQP) Recv(n int) error {
	for range n {
		at := uint64(q.posted % scripted.Receives * script.RecvSize)
		if err := q.node.PostRecv(q.q.H, verbs.RecvWR{ID: uint64(q.posted), SG: []mr.SGE{q.recvs.SGE(at, script.RecvSize)}}); err != nil {
			return err
		}
		q.posted++
	}
	return nil
}

func (q *targetQP) Post(op qp.Opcode, n int) error {
	q.ids++
	return q.node.PostSend(q.q.H, verbs.SendWR{ID: q.ids, Op: op, Flags: qp.Signaled, SG: []mr.SGE{q.mr.SGE(0, uint64(n))},
		RemoteAddr: script.PostVA, RKey: script.PostKey, Imm: script.PostImm, AH: q.ah, QPN: q.c.PeerQPN, QKey: q.c.QKey})
}

func (q *targetQP) Completions() (recv, send []cq.WC, err error) {
	if recv, err = q.node.Poll(q.rcq.H, 32, 0); err == nil {
		send, err = q.node.Poll(q.scq.H, 32, 0)
	}
	return recv, send, err
}

func (q *targetQP) ReadMemory() ([]byte, error) { return q.node.ReadMem(q.mr.Addr, uint64(q.c.Memory)) }

func (q *targetQP) State() (qp.State, error) {
	a, _, err := q.node.QueryQP(q.q.H, qp.AttrState)
	return a.State, err
}

func (q *targetQP) Fail() error {
	return q.node.ModifyQP(q.q.H, &verbs.QPAttr{State: qp.Err}, qp.AttrState)
}
