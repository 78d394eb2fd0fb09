package qp

import (
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
)

// The extended reliable connected service (annex A14). An initiator ([XRCSend]) sends to a target ([XRCRecv]), which
// has no receives, completion queues or protection domain of its own. Every request names a shared receive queue in
// its XRCETH. The target looks keys up in that queue's domain, takes receives from that queue, and completes them
// into that queue's completion queue. So one connection from a node serves everything that has a queue in the
// target's XRC domain. Otherwise the rules are those of RC; responses carry no XRCETH.
//
// A request that names no queue of the target's domain, or another than the
// packet that began the message, is an invalid request: NAK 0x61, QP_REQ_ERR.

// XRCD is an XRC domain (struct ibv_xrcd): target queue pairs and the shared
// receive queues they serve. Like these it has one owner.
type XRCD struct {
	srqs   map[bth.SRQN]*SRQ
	users  int
	closed bool
}

// NewXRCD creates an XRC domain (ibv_open_xrcd).
func NewXRCD() *XRCD { return &XRCD{srqs: map[bth.SRQN]*SRQ{}} }

func refuseXRCD(op string, errno syscall.Errno, detail string) error {
	return errs.On(op+" xrcd", "xrcd", errno, "%s", detail)
}

// Retain notes one more queue pair that is in the domain and keeps it from
// being closed. Shared receive queues do so themselves. It fails with EINVAL
// once closed.
func (x *XRCD) Retain() error {
	if x.closed {
		return refuseXRCD("use", syscall.EINVAL, "the domain is closed")
	}
	x.users++
	return nil
}

// Release takes one user away.
func (x *XRCD) Release() { x.users-- }

// Close ends the domain (ibv_close_xrcd). It fails with EBUSY while queues or
// queue pairs are in it.
func (x *XRCD) Close() error {
	switch {
	case x.closed:
		return refuseXRCD("close", syscall.EINVAL, "closed already")
	case x.users > 0 || len(x.srqs) > 0:
		return refuseXRCD("close", syscall.EBUSY, "queue pairs or shared receive queues are in it; close them first")
	}
	x.closed = true
	return nil
}

// add puts a shared receive queue into the domain.
func (x *XRCD) add(s *SRQ) error {
	switch {
	case x.closed:
		return errs.New(createSRQ, syscall.EINVAL, "the XRC domain is closed")
	case x.srqs[s.num] != nil:
		return errs.New(createSRQ, syscall.EINVAL, "the number is taken")
	case s.num > bth.PSNMask:
		return errs.New(createSRQ, syscall.EINVAL, "the number is beyond 24 bits")
	}
	x.srqs[s.num] = s
	return nil
}

// xrcBase is the difference between an opcode of XRC and that of RC.
const xrcBase = bth.Opcode(bth.XRC) << 5

// findTarget finds the shared receive queue that an XRC request names, in the
// domain of the queue pair. All packets of a message name the same.
func (q *QP) findTarget(p *frame.Packet) bool {
	s := &q.responder
	srq := q.xrcd.srqs[p.SRQN()]
	if srq == nil || s.in != noMessage && srq != s.srq {
		return false
	}
	s.srq, s.pd = srq, srq.pd
	return true
}

// sameTarget reports whether a repeated READ names the domain that it was
// executed in.
func (q *QP) sameTarget(p *frame.Packet, r *saved) bool {
	if q.typ != XRCRecv {
		return true
	}
	srq := q.xrcd.srqs[p.SRQN()]
	return srq != nil && srq.pd == r.pd
}
