package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
)

// GRHLen is the room in front of every received datagram: an IPv6 header, or
// 20 zero bytes and an IPv4 header (annex A17). [frame.ParseGRH] reads it.
const GRHLen = frame.GRHLen

// privilegedQKey is the bit of a Q_Key in a work request that asks for the
// queue pair's own key instead (IBTA 10.2.5).
const privilegedQKey bth.QKey = 1 << 31

// emitDatagram sends one UD work request. It completes as soon as the packet
// is handed to the port.
func (q *QP) emitDatagram(sink frame.Sink) emission {
	w := q.sq.at(q.sq.cur)
	if q.state == SQD && q.requester.drained {
		return idle
	}
	op := opTable[w.op].ud.only
	hdr := int(op.Info().HeaderLen)
	pad := int(-w.length & 3)
	to := q.sq.rest(w)
	body, crc, ok := sink.Begin(to.ah, hdr+int(w.length)+pad+bth.ICRCLen)
	if !ok {
		return blocked
	}
	flags := bth.MigReq
	if w.flags&Solicited != 0 {
		flags |= bth.Solicited
	}
	qkey := to.destQKey
	if qkey&privilegedQKey != 0 {
		qkey = q.qkey
	}
	r := &q.requester
	bth.PutBTH(body, op, flags, pad, bth.DefaultPKey, to.destQPN, r.next)
	bth.PutDETH(body[bth.BTHLen:], qkey, q.num)
	if at := bth.BTHLen + bth.DETHLen; at < hdr {
		bth.PutImm(body[at:], w.extra)
	}
	var c cursor
	if fault := q.gather(w, &c, body[hdr:hdr+int(w.length)], 0); fault != mr.OK {
		q.cnt.SendErr++
		q.failUnreliable(statusOf(fault))
		return idle
	}
	seal(body, hdr+int(w.length), pad, crc)
	sink.Commit()
	q.cnt.SentPkts++
	r.next = r.next.Add(1)
	r.acked, r.max = r.next, r.next
	q.sq.cur++
	q.completeSend(cq.Success)
	q.checkDrained()
	return emitted
}

// receiveDatagram delivers a UD packet: the GRH area, then the payload. It drops a packet silently if the Q_Key is
// wrong, the payload is longer than the port's MTU, or there is no receive that is large enough.
func (q *QP) receiveDatagram(p *frame.Packet) {
	switch q.state {
	case RTR, RTS, SQD, SQE:
	default:
		q.cnt.WrongState++
		return
	}
	if p.QKey() != q.qkey {
		q.cnt.QKeyViolation++
		return
	}
	q.cnt.RcvdPkts++
	data := p.Payload()
	if r, ok := q.nextRecv(); !ok || uint64(len(data))+GRHLen > total(r) || uint32(len(data)) > q.mtu {
		q.cnt.UDNoReceive++
		return
	}
	var grh [GRHLen]byte
	p.PutGRH(&grh)
	q.consumeRecv()
	q.responder.scatter = cursor{}
	fault := q.place(0, grh[:])
	if fault == mr.OK {
		fault = q.place(GRHLen, data)
	}
	if fault != mr.OK {
		q.failRecv(statusOf(fault))
		q.fail(cq.WRFlushErr)
		return
	}
	s := &q.responder
	s.msn, s.taken = s.msn.Add(1), s.taken+uint64(len(data))
	into, wc := q.endRecv()
	wc.Flags, wc.ByteLen, wc.SrcQPN, wc.IPv4 = cq.GRH, uint32(GRHLen+len(data)), p.SrcQPN(), p.Src.Is4()
	if p.Info.Headers&bth.HasImm != 0 {
		wc.Flags |= cq.WithImm
		wc.Imm = p.Imm()
	}
	q.reportRecv(into, wc, p.Solicited())
}
