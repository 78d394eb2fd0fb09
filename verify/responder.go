package verify

import (
	"slices"

	"github.com/goroce/roce/bth"
)

// handleResponse judges a response to the requests of h.
func (h *half) handleResponse(p *packet) {
	f := &p.Frame
	psn := f.PSN()
	if h.copyOf(p) {
		h.report.Repeated.Copies++
		h.refusals(p, false)
		return
	}
	h.report.Responses++
	h.refusals(p, p.out || ipID(p) != 0)
	h.overtaken(p)
	if h.dead != nil && p.Time.Sub(h.deadAt) > fatalGrace+h.v.cfg.Slack {
		if !h.v.complete && h.find(psn) == nil {
			h.v.cannotTell(responseAfterFatal)
			return
		}
		h.v.find(responseAfterFatal, []Frame{*h.dead}, "The responder answers %v after a NAK that ends the connection.", round(p.Time.Sub(h.deadAt)))
		return
	}
	r := h.find(psn)
	if r == nil && !psn.Less(h.next) {
		switch {
		case h.floored && !h.floor.Less(psn):
			h.v.limit(LimitBeginning, h.flow.String(), p)
		case !h.ackedOnce && h.flow.agreed == nil:
			h.forget() // the connection began before the requests that are known
			h.v.limit(LimitBeginning, h.flow.String(), p)
		case p.out || p.in:
			h.v.suspect(ackUnsent, nil, h.framesOf(h.next.Add(-1)), "%s has PSN %v; the latest request has %v.", f.Info.Name, psn, h.next.Add(-1))
		default:
			h.v.limit(LimitGap, h.flow.String(), p)
		}
		return
	}
	if f.Info.Headers&bth.HasAETH != 0 && !h.acknowledgement(p, r) {
		return
	}
	switch fl := f.Info.Flags; {
	case fl&bth.Read != 0:
		h.readResponse(p, r)
	case fl&bth.Atomic != 0:
		h.atomicResponse(p, r)
	}
}

// refusals counts NAKs for the counters of both hosts. sent is false for a copy that the network made: only the receiver counts it.
func (h *half) refusals(p *packet, sent bool) {
	if len(h.v.tallies) == 0 || p.Frame.Info.Headers&bth.HasAETH == 0 {
		return
	}
	switch s := p.Frame.Syndrome(); {
	case s.Kind() == bth.KindRNR:
		if sent {
			h.v.happened(p.Frame.Src, rnrSent)
		}
		h.v.happened(p.Frame.Dst, rnrReceived)
	case s == bth.NAKSequence:
		if sent {
			h.v.happened(p.Frame.Src, nakSent)
		}
		h.v.happened(p.Frame.Dst, nakReceived)
	}
}

// copyOf reports whether a response is a copy that the network made, and remembers it.
func (h *half) copyOf(p *packet) bool {
	it := response{p.Frame.PSN(), p.Frame.Op, ipID(p)}
	if !p.out && it.id != 0 && slices.Contains(h.recent, it) {
		return true
	}
	if len(h.recent) == maxRecent {
		h.recent = h.recent[1:]
	}
	h.recent = append(h.recent, it)
	return false
}

// overtaken notes whether a later response has overtaken this one. The IPv4 identification shows that, if the responder increments it
// for each packet. Without an identification, a response that was not captured at the responder counts as overtaken.
func (h *half) overtaken(p *packet) {
	o, id := &h.order, ipID(p)
	o.late = !p.out && (id == 0 || o.known && id == o.id) || o.known && id != 0 && int16(id-o.id) < 0
	if id != 0 && !o.late {
		o.id, o.known = id, true
	}
}

// acknowledgement judges an AETH. r is the request with the PSN, nil if it is not known. It returns false if the syndrome is wrong,
// so that the rest of the response is not judged.
func (h *half) acknowledgement(p *packet, r *request) bool {
	f := &p.Frame
	s, ack := f.Syndrome(), f.Info.Flags&(bth.Read|bth.Atomic) == 0
	switch kind := s.Kind(); {
	case kind == bth.KindReserved, kind == bth.KindNAK && s > bth.NAKRemoteOp:
		h.v.find(aethSyndrome, nil, "The syndrome %#02x is reserved.", uint8(s))
		return false
	case kind != bth.KindACK && !ack:
		h.v.find(aethSyndrome, nil, "%s has the syndrome %v; only an ACKNOWLEDGE can have it.", f.Info.Name, s)
		return false
	case kind == bth.KindRNR:
		h.refuse(p, r, &h.rnr)
	case kind == bth.KindNAK && s == bth.NAKSequence:
		h.refuse(p, r, &h.nak)
	case kind == bth.KindNAK:
		h.report.Fatal++
		h.counted(p, f.PSN().Add(-1))
		h.advance(p, f.PSN().Add(-1))
		h.dead, h.deadAt = &p.frame, p.Time
	case ack:
		h.positive(p, r)
	default:
		h.counted(p, f.PSN())
	}
	return true
}

// positive judges an ACKNOWLEDGE packet with a positive syndrome.
func (h *half) positive(p *packet, r *request) {
	f := &p.Frame
	psn := f.PSN()
	if r != nil && r.flags&(bth.Read|bth.Atomic|bth.Flush|bth.AtomicWrite) != 0 && psn == r.last && !r.answered {
		h.v.suspect(responseKind, rxeReadACK.when(h.flow.peer.likeRxe() && r.flags&bth.Read != 0), []Frame{r.frame}, "%s is answered by an ACKNOWLEDGE.", r.op.Info().Name)
	}
	if a := &h.latestACK; a.known && psn.Less(a.psn) {
		if h.order.late {
			return
		}
		h.v.find(ackBackwards, []Frame{a.frame}, "The acknowledgement of PSN %v follows that of %v.", psn, a.psn)
	} else {
		a.psn, a.known, a.frame = psn, true, p.frame
	}
	if p.out && h.arrived.sure && h.arrived.known && !psn.Less(h.arrived.next) {
		h.v.suspect(ackUnreceived, nil, h.framesOf(psn), "PSN %v is acknowledged, but %v has not arrived.", psn, h.arrived.next)
	}
	h.claimed(psn)
	h.unanswered(p, psn)
	h.counted(p, psn)
	if r != nil && r.last == psn {
		h.timed(AckLatency, p.Time.Sub(r.resent))
	}
	if n, ok := f.Syndrome().Credits(); ok && h.msn.known {
		h.credits.known, h.credits.limit = true, int(f.MSN().Sub(h.msn.base))+n
	} else if !ok {
		h.credits.known = false
	}
	h.advance(p, psn)
}

// unanswered looks for a READ or atomic before psn without its response, although the responder answers psn. At the responder that
// breaks a rule. Elsewhere the response may be lost, so the requester may repeat that request.
func (h *half) unanswered(p *packet, psn bth.PSN) {
	for i := h.index(psn) - 1; i >= 0; i-- {
		r := h.reqs[i]
		if h.ackedOnce && !h.acked.Less(r.last) {
			return
		}
		if !r.unanswered() {
			continue
		}
		if p.out {
			h.v.suspect(responseOrder, nil, []Frame{r.frame}, "PSN %v is answered before %s with PSN %v is.", psn, r.op.Info().Name, r.psn)
			r.answered = true
		} else {
			h.implied = true
		}
		return
	}
}

// advance notes that everything up to psn is acknowledged.
func (h *half) advance(p *packet, psn bth.PSN) {
	if h.ackedOnce && !h.acked.Less(psn) {
		return
	}
	if h.skipsSeen && p.in && h.gaps.Len() > 0 && !psn.Less(h.gaps.First().From) {
		h.v.incomplete() // the responder has got a request that the requester has not sent
	}
	h.acked, h.ackedOnce, h.ackedAt, h.ackFrame, h.ackIn = psn, true, p.Time, p.frame, p.in
	if h.nak.pending && !psn.Less(h.nak.psn) {
		h.nak.pending = false // the missing request has arrived, but is not in the capture
	}
	if h.rnr.pending && !psn.Less(h.rnr.psn) {
		h.rnr.pending = false
	}
}

// refuse judges a NAK for a sequence error or an RNR NAK, and stores it in n.
func (h *half) refuse(p *packet, r *request, n *refusal) {
	psn := p.Frame.PSN()
	s := p.Frame.Syndrome()
	if n == &h.rnr {
		h.report.RNRs++
		if r != nil && r.flags&takesRNR == 0 {
			h.v.find(rnrKind, []Frame{r.frame}, "%s with PSN %v takes no receive, but gets an RNR NAK.", r.op.Info().Name, r.psn)
		}
	} else {
		h.report.NAKs++
		if h.rnr.pending && h.rnr.psn == psn {
			h.v.suspect(rnrSilence, rxeSilent.when(h.flow.peer.likeRxe()), []Frame{h.rnr.frame}, "A NAK follows an RNR NAK for the same request, which was not repeated.")
			return // the requester still waits for the time of the RNR NAK
		}
		if !h.sequenceNAK(p, psn) {
			return
		}
	}
	h.counted(p, psn.Add(-1))
	h.unanswered(p, psn.Add(-1))
	h.advance(p, psn.Add(-1))
	replaced, at := n.known && !n.met && n.psn != psn, n.psn
	*n = refusal{pending: true, known: true, psn: psn, at: p.Time, frame: p.frame, in: p.in, replaced: replaced, replacedAt: at}
	if n == &h.rnr {
		n.wait = bth.RNRTimer(s.Value()).Duration()
	}
}

// takesRNR are the requests that may get an RNR NAK.
const takesRNR = bth.TakesRecv | bth.Read | bth.Atomic | bth.AtomicWrite | bth.Flush

// sequenceNAK judges the PSN of a NAK for a sequence error. It returns false if a requester ignores it.
func (h *half) sequenceNAK(p *packet, psn bth.PSN) bool {
	n := &h.nak
	switch {
	case h.ackedOnce && !h.acked.Less(psn) && h.order.late:
		return false
	case h.ackedOnce && !h.acked.Less(psn):
		h.v.find(nakAcked, []Frame{h.ackFrame}, "The NAK has PSN %v; %v was acknowledged before.", psn, h.acked)
		return false
	case h.find(psn) != nil && !h.find(psn).last.Less(h.next.Add(-1)) && h.gaps.Len() == 0 && !(h.floored && !h.floor.Less(psn)):
		h.v.suspect(nakNoGap, nil, h.framesOf(psn), "The NAK has PSN %v; no later request was sent.", psn)
	case p.out && h.arrived.sure && h.arrived.known && h.arrived.next.Less(psn):
		h.v.suspect(nakPlace, nil, h.framesOf(h.arrived.next), "The NAK has PSN %v, but %v has not arrived.", psn, h.arrived.next)
	case n.pending && n.psn == psn && h.v.copied(nakRepeated, p, n.at):
	case n.pending && n.psn == psn:
		h.v.suspect(nakRepeated, stackNAK.when(!h.flow.peer.likeRxe()), []Frame{n.frame}, "A second NAK has PSN %v, and the request has not been repeated.", psn)
	}
	if n.psn != psn || !n.pending {
		h.v.happened(p.Frame.Dst, nakHeeded)
		if i := h.index(psn) + 1; i < len(h.reqs) { // the first request behind the gap
			h.timed(NAKGeneration, p.Time.Sub(h.reqs[i].resent))
		}
	}
	return true
}

// msnConfirmed is how many ACKs of new requests have to agree on the MSN at the beginning. One ACK is not enough: the ACK of a
// repeated request has the MSN of a later message.
const msnConfirmed = 2

// counted judges the MSN of a response that acknowledges everything up to psn. The MSN is at least the number of messages that end
// at or before psn, and at most the number of all messages that were sent: the response to a repeated request has the latest MSN.
func (h *half) counted(p *packet, psn bth.PSN) {
	m, msn := &h.msn, p.Frame.MSN()
	ack := p.Frame.Info.Flags&(bth.Read|bth.Atomic) == 0
	advances := !h.ackedOnce || h.acked.Less(psn)
	if h.index(psn) < 0 && !m.certain {
		return
	}
	at, all := h.messagesTo(psn), 0
	if n := len(h.reqs); n > 0 {
		all = h.reqs[n-1].ended
	}
	if !m.known {
		m.known, m.base, m.confirmed = true, msn.Add(-at), 0
	} else {
		count := int(msn.Sub(m.base))
		switch {
		case !m.certain && count == at:
			if ack && advances {
				m.confirmed++
				m.certain = m.confirmed >= msnConfirmed
			}
		case !m.certain && (advances || count < at):
			m.base, m.confirmed = msn.Add(-at), 0
		case !m.certain: // it may be the response to a repeated request
		case count < at:
			if !m.handshake && !h.v.complete {
				h.v.cannotTell(msnCount)
				return
			}
			h.v.find(msnCount, h.framesOf(psn), "The MSN is %d, but the responder has completed %d messages or more.", msn, m.base.Add(at))
			return
		case count > all && h.gaps.Len() == 0:
			h.v.suspect(msnCount, nil, h.framesOf(psn), "The MSN is %d, but only %d messages were sent.", msn, m.base.Add(all))
			return
		case ack && m.seen && msn.Sub(m.last) < 0 && !h.order.late:
			h.v.find(msnBackwards, []Frame{m.frame}, "The MSN %d follows %d.", msn, m.last)
		}
	}
	if ack && (!m.seen || msn.Sub(m.last) > 0) {
		m.last, m.seen, m.frame = msn, true, p.frame
	}
}

// messagesTo returns how many messages of the requester end at or before psn. A READ counts as a whole from its first PSN on.
func (h *half) messagesTo(psn bth.PSN) int {
	i := h.index(psn)
	if i < 0 {
		return 0
	}
	return h.reqs[i].ended
}
