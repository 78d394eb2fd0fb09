// Package scripted has what is needed to play scripts of package script. It opens the wire to a peer, or creates a peer in this process:
// a software NIC that the script controls, or that runs the program that the script needs.
package scripted

import (
	"bytes"
	"context"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/tools/objects"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/script"
)

// target is a device of this stack that scripts control.
type target struct{ dev *roce.Device }

// NewTarget returns a device as the target of scripts. Its queue pairs have a method Close, for programs that outlive a script.
func NewTarget(d *roce.Device) script.Target { return &target{d} }

// Path has the three transitions of a queue pair to INIT, RTR and RTS, each with the attributes to set.
type Path [3]struct {
	State qp.State
	Mask  qp.AttrMask
}

// Receives is how many receives of a target have their own buffers.
const Receives = 16

// PathOf returns the transitions for a queue pair that a script controls. They are the same for every verbs library.
func PathOf(t qp.Type) Path {
	const (
		toInit = qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort
		toRTR  = qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN
		toRTS  = qp.AttrState | qp.AttrSQPSN
	)
	switch t {
	case qp.UD:
		return Path{{qp.Init, toInit | qp.AttrQKey}, {qp.RTR, qp.AttrState}, {qp.RTS, toRTS}}
	case qp.UC:
		return Path{{qp.Init, toInit | qp.AttrAccess}, {qp.RTR, toRTR}, {qp.RTS, toRTS}}
	}
	return Path{{qp.Init, toInit | qp.AttrAccess}, {qp.RTR, toRTR | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer},
		{qp.RTS, toRTS | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic}}
}

// Pattern fills the memory of a target before a script: byte i is i modulo 256.
func Pattern(b []byte) {
	for i := range b {
		b[i] = byte(i)
	}
}

// Dropped returns how many packets a device has dropped.
func Dropped(d *roce.Device) uint64 {
	c := d.Counters()
	return c.Drops.Malformed + c.Drops.NotForUs + c.Drops.NoQP + c.Drops.PKey + c.Drops.NoMAD + c.Drops.MADFlood + c.Drops.Overrun +
		c.ICRCErr + c.WrongPeer + c.WrongState + c.WrongTransport + c.QKeyViolation + c.CNPsIgnored
}

// Connect creates a queue pair and moves it to RTS.
func (t *target) Connect(c script.TargetConfig) (script.TargetQP, error) {
	q := &targetQP{Set: objects.New(t.dev), c: c}
	if err := q.connect(); err != nil {
		q.Close()
		return nil, err
	}
	return q, nil
}

// connect creates the objects of a queue pair, and moves it to RTS.
func (q *targetQP) connect() error {
	c := &q.c
	q.mr, q.recvs, q.scq, q.rcq = q.MR(c.Memory, c.Access), q.MR(script.RecvSize*Receives, roce.LocalWrite), q.CQ(63), q.CQ(63)
	q.q = q.QP(roce.QPConfig{Type: c.Type, SendCQ: q.scq, RecvCQ: q.rcq, Caps: roce.Caps{MaxSendWR: 16, MaxRecvWR: Receives, MaxSendSGE: 2, MaxRecvSGE: 2}})
	if err := q.Err(); err != nil {
		return err
	}
	Pattern(q.mr.Bytes())
	index, err := oob.ChooseGID(q.Dev, -1, c.Peer.Addr())
	if err != nil {
		return err
	}
	if q.ah, err = q.Dev.CreateAH(context.Background(), roce.AHAttr{DGID: c.Peer, SGIDIndex: index}); err != nil {
		return err
	}
	attr := &roce.Attr{Port: 1, Access: c.Rights, QKey: c.QKey, AV: q.ah, PathMTU: bth.MTU1024, DestQPN: c.PeerQPN, RQPSN: c.RQPSN, SQPSN: c.SQPSN,
		Timeout: c.Timeout, RetryCnt: c.Retry, RNRRetry: c.RNR, MinRNRTimer: c.Timer, MaxRdAtomic: c.Depth, MaxDestRdAtomic: c.Reads}
	for _, to := range PathOf(c.Type) {
		attr.State = to.State
		if err = q.q.Modify(attr, to.Mask); err != nil {
			return err
		}
	}
	return q.Recv(c.Recv)
}

// Dropped implements [script.Counting].
func (t *target) Dropped() (uint64, bool) { return Dropped(t.dev), true }

// targetQP is a queue pair of a target. Its Close destroys the queue pair and what belongs to it.
type targetQP struct {
	*objects.Set
	c         script.TargetConfig
	q         *roce.QP
	scq, rcq  *roce.CQ
	mr, recvs *roce.MR
	ah        *roce.AH
	posted    int
}

func (q *targetQP) QPN() bth.QPN { return q.q.Num() }

func (q *targetQP) Memory() (uint64, bth.RKey, error) { return q.mr.Addr(), q.mr.RKey(), nil }

func (q *targetQP) Recv(n int) error {
	for range n {
		at := q.posted % Receives * script.RecvSize
		if err := q.q.PostRecv(&roce.RecvWR{ID: uint64(q.posted), SG: []roce.SGE{q.recvs.SGE(at, script.RecvSize)}}); err != nil {
			return err
		}
		q.posted++
	}
	return nil
}

func (q *targetQP) Post(op qp.Opcode, n int) error {
	wr := roce.SendWR{ID: 1, Opcode: op, Flags: roce.Signaled, SG: []roce.SGE{q.mr.SGE(0, n)}, RemoteAddr: script.PostVA, RKey: script.PostKey, Imm: script.PostImm}
	if q.c.Type == qp.UD {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = q.ah, q.c.PeerQPN, q.c.QKey
	}
	return q.q.PostSend(&wr)
}

func (q *targetQP) Completions() (recv, send []cq.WC, err error) {
	var wcs [32]roce.WC
	recv = append(recv, wcs[:q.rcq.Poll(wcs[:])]...)
	send = append(send, wcs[:q.scq.Poll(wcs[:])]...)
	return recv, send, nil
}

// ReadMemory copies the memory. It reads the counters before and after: that synchronises with the background goroutine, which executes
// the requests of the peer.
func (q *targetQP) ReadMemory() ([]byte, error) {
	q.Dev.Counters()
	b := bytes.Clone(q.mr.Bytes())
	q.Dev.Counters()
	return b, nil
}

func (q *targetQP) State() (qp.State, error) { return q.q.State(), nil }

func (q *targetQP) Fail() error {
	if err := q.q.Modify(&roce.Attr{State: qp.Err}, qp.AttrState); err != nil {
		return fmt.Errorf("moving the queue pair to ERR: %w", err)
	}
	return nil
}
