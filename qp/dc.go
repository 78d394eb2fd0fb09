package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// The dynamically connected service, an extension of this stack. An initiator
// ([DCI]) connects itself to the target that its next work request names, sends
// until a work request names another, and leaves. A target ([DCT]) answers many
// initiators at once, with receives of a shared receive queue. Between CONNECT
// and DISCONNECT the rules are those of RC, with the opcodes of bth.DC. docs/dc.md describes the packets, and when
// each end may send them.

// dcBase is the difference between an opcode of the service and that of RC.
const dcBase = bth.Opcode(bth.DC) << 5

// Timeouts of connections that are not used.
const (
	DCLinger      = time.Second      // an initiator keeps its connection without work requests
	dcEvictable   = 3 * time.Second  // after so long without a packet, a target may drop a context to make room
	DCContextIdle = 60 * time.Second // after so long without a packet a target forgets the initiator
	dcBusyWait    = 10 * time.Millisecond
)

// dcOwnKey is a bit of the key in a work request. If it is set, the initiator uses its own key, as the top bit of a
// Q_Key selects the Q_Key of the queue pair.
const dcOwnKey = 1 << 63

// dcReply has the fields of a CONNECT, ACCEPT, REJECT or DISCONNECT that is to be sent.
type dcReply struct {
	op      bth.Opcode
	path    *frame.Path
	dest    bth.QPN
	psn     bth.PSN
	context uint32
	connect bth.DCCETHFields
}

// emitDC builds a packet that opens or closes a connection.
func (q *QP) emitDC(sink frame.Sink, r *dcReply) emission {
	info := r.op.Info()
	hdr := int(info.HeaderLen)
	body, crc, ok := sink.Begin(r.path, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	at := bth.PutBTH(body, r.op, 0, 0, bth.DefaultPKey, r.dest, r.psn)
	at += bth.PutDCETH(body[at:], bth.DCETHFields{QPN: q.num, Context: r.context})
	if at < hdr {
		bth.PutDCCETH(body[at:], &r.connect)
	}
	seal(body, hdr, 0, crc)
	sink.Commit()
	q.cnt.SentPkts++
	return emitted
}

// handleDC processes a packet of the service.
func (q *QP) handleDC(now mono.Time, p *frame.Packet) {
	switch {
	case q.typ == DCT:
		q.handleInitiator(now, p)
	case p.Src != q.peerGID || p.Dst != q.ownGID:
		q.cnt.WrongPeer++
	default:
		if id, unseen := p.UnseenID(); unseen {
			q.handleSolvedID(now, p, id)
		} else {
			q.handleAdmitted(now, p)
		}
	}
}

// dcTimeout handles the deadline of an initiator or a target.
func (q *QP) dcTimeout(now mono.Time) {
	if now.Before(q.dcDeadline) {
		return
	}
	q.dcDeadline = mono.Never
	if q.typ == DCI {
		q.initiatorTimeout(now)
	} else {
		q.forgetIdle(now)
	}
}

// resetDC forgets the connection of an initiator, and the initiators of a target.
func (q *QP) resetDC() {
	q.dcDeadline = mono.Never
	if q.dci != nil {
		q.dci.reset()
	}
	q.stopServing()
}

// setMaxRdAtomic sets how many READs and atomics may be outstanding. The target of an initiator may grant fewer.
func (q *QP) setMaxRdAtomic(n uint8) {
	q.maxRdAtomic = n
	if q.dci != nil {
		q.dci.depth = n
	}
}
