package verify

import (
	"encoding/binary"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

// end returns which end of an exchange has an address: 0 the active, 1 the passive one.
func (x *exchange) end(at bth.GID) int {
	if at == x.ends[0] {
		return 0
	}
	return 1
}

// between reports whether a message goes from one end of an exchange to the other.
func (x *exchange) between(p *packet) bool {
	return x.ends == [2]bth.GID{p.Frame.Src, p.Frame.Dst} || x.ends == [2]bth.GID{p.Frame.Dst, p.Frame.Src}
}

// ready judges an RTU.
func (v *Verifier) ready(p *packet, m *cm.RTU) {
	x := v.ofBoth(p, m.LocalID, m.RemoteID)
	if x == nil {
		v.tooSoon(p, m.LocalID)
		return
	}
	if p.Frame.Src != x.ends[0] {
		v.find(cmSide, x.framesOf(), "The passive end sends an RTU.")
		return
	}
	if m.TID == x.req.TID {
		v.goesOn(p, x)
	}
	if !v.once(p, x, m.TID) {
		return
	}
	v.answered(p, x, cm.AttrREP, x.req.TID)
	v.transaction(x, m.TID, x.req.TID)
	if f := v.flowOf(x, 1); f != nil {
		f.ready = true
	}
}

// tooSoon judges an RTU, DREQ or LAP of unknown exchange: it is a finding if the sender's connection has no REP yet.
func (v *Verifier) tooSoon(p *packet, local cm.CommID) {
	if x := v.exchangeOf(p.Frame.Src, local); x != nil && x.rep == nil && x.between(p) && x.end(p.Frame.Src) == 0 {
		v.suspect(cmUnasked, nil, x.framesOf(), "The %v comes before there is a REP.", p.CM.Attribute())
	}
}

// goesOn judges a message of the handshake whose sender may have sent a REJ before.
func (v *Verifier) goesOn(p *packet, x *exchange) {
	from := x.end(p.Frame.Src)
	r := x.rejected[from]
	if r == nil || !p.out || r.tid != x.req.TID || p.Time.Sub(r.at) <= fatalGrace {
		return
	}
	for k, s := range x.sent {
		if k.from == x.ends[1-from] && s.seen.After(r.at) && (k.kind == cm.AttrREQ || k.kind == cm.AttrREP) {
			x.rejected[from] = nil // the peer began again: the REJ was lost
			return
		}
	}
	v.suspect(cmRejected, nil, []Frame{r.frame}, "The end that has sent a REJ sends a %v %v later.", p.CM.Attribute(), round(p.Time.Sub(r.at)))
}

// lateGrace is the factor by which an answer may exceed its time: the clocks of the two ends need not agree exactly.
const lateGrace = 1.1

// answered judges how long an answer took. It needs a capture at the answering end, and does nothing otherwise.
func (v *Verifier) answered(p *packet, x *exchange, kind cm.Attribute, tid uint64) {
	s := x.sent[sentKey{kind, p.Frame.Dst, tid}]
	if s == nil || !p.out || !s.in {
		return
	}
	took, wait := p.Time.Sub(s.at), s.wait
	if s.delayed.out && s.at.Add(wait).Before(s.delayed.until) {
		wait = s.delayed.until.Sub(s.at)
	}
	if took > time.Duration(float64(wait)*lateGrace) {
		v.suspect(cmLate, nil, []Frame{s.frame}, "The %v is answered after %v; there are %v for that.", kind, round(took), round(wait))
	}
}

// moreTime judges an MRA.
func (v *Verifier) moreTime(p *packet, m *cm.MRA) {
	x := v.ofEither(p, m.LocalID, m.RemoteID)
	if x == nil || !x.between(p) {
		return
	}
	from := x.end(p.Frame.Src)
	if !v.mayBeAbout(x, from, m.Of, "an MRA") {
		return
	}
	var of *sentMAD
	switch m.Of {
	case cm.OfREQ, cm.OfREP:
		v.transaction(x, m.TID, x.req.TID)
		of = x.sent[sentKey{subject(m.Of), x.ends[1-from], x.req.TID}]
	case cm.OfOther:
		if of = x.lap[1-from]; of == nil {
			v.suspect(cmUnasked, nil, x.framesOf(), "The MRA is about a LAP, and there is none.")
			return
		}
		if of.tid != m.TID {
			v.suspect(cmTID, nil, []Frame{of.frame}, "The MRA has transaction ID %#x; %#x is that of the LAP.", m.TID, of.tid)
			return
		}
	}
	if of == nil {
		return
	}
	if of.delayed.times == 0 {
		v.answered(p, x, subject(m.Of), of.tid)
	}
	of.delayed.times++
	of.delayed.until, of.delayed.frame = p.Time.Add(cm.ResponseTimeout(m.ServiceTimeout)), p.frame
	of.delayed.in, of.delayed.out = p.in, p.out
}

// mayBeAbout judges whether an end may send a message about a REQ or REP. It returns false if not. what is "an MRA" or "a REJ".
func (v *Verifier) mayBeAbout(x *exchange, from int, of cm.Subject, what string) bool {
	switch {
	case of == cm.OfREQ && from != 1:
		v.suspect(cmSide, nil, x.framesOf(), "The active end sends %s of a REQ.", what)
	case of == cm.OfREP && from != 0:
		v.suspect(cmSide, nil, x.framesOf(), "The passive end sends %s of a REP.", what)
	case of == cm.OfREP && x.rep == nil:
		v.suspect(cmUnasked, nil, x.framesOf(), "The %s is about a REP, and there is none.", what[len(what)-3:])
	default:
		return true
	}
	return false
}

// subject returns the message that an MRA or a REJ is about.
func subject(s cm.Subject) cm.Attribute {
	switch s {
	case cm.OfREQ:
		return cm.AttrREQ
	case cm.OfREP:
		return cm.AttrREP
	}
	return cm.AttrLAP
}

// refusedMAD judges a REJ. It may name only one end: a listener has no ID, and an end whose wait for an answer timed out does not
// know the ID of its peer.
func (v *Verifier) refusedMAD(p *packet, m *cm.REJ) {
	x := v.ofEither(p, m.LocalID, m.RemoteID)
	if x == nil || !x.between(p) {
		return
	}
	from := x.end(p.Frame.Src)
	if !v.mayBeAbout(x, from, m.Of, "a REJ") {
		return
	}
	x.ended = x.ended || x.rep != nil
	if m.Reason == cm.RejectTimeout {
		v.timeoutREJ(x, from, m)
	}
	if !v.once(p, x, m.TID) {
		return
	}
	if m.Of == cm.OfREQ || m.Of == cm.OfREP {
		v.answered(p, x, subject(m.Of), m.TID)
	}
	if m.Of != cm.OfOther {
		v.transaction(x, m.TID, x.req.TID)
	}
	if x.rejected[from] == nil {
		x.rejected[from] = &sentMAD{tid: m.TID, at: p.Time, frame: p.frame}
	}
}

// timeoutREJ judges the additional information of a REJ with reason timeout.
func (v *Verifier) timeoutREJ(x *exchange, from int, m *cm.REJ) {
	guid := x.req.LocalGUID
	if from == 1 {
		if x.rep == nil {
			return
		}
		guid = x.rep.LocalGUID
	}
	if got := cm.GUID(binary.BigEndian.Uint64(m.Info[:])); m.InfoLen < 8 || got != guid {
		v.find(cmReject, x.framesOf(), "The REJ says %v in %d bytes of information; the GUID of its sender is %v.", got, m.InfoLen, guid)
	}
}

// disconnected judges a DREP. Linux also answers a DREQ for a connection that it does not know.
func (v *Verifier) disconnected(p *packet, m *cm.DREP) {
	x := v.ofBoth(p, m.LocalID, m.RemoteID)
	if x == nil {
		return
	}
	x.ended = true
	if !v.once(p, x, m.TID) {
		return
	}
	v.answered(p, x, cm.AttrDREQ, m.TID)
	asked, other := false, false
	for k := range x.sent {
		if k.kind == cm.AttrDREQ && k.from == p.Frame.Dst {
			asked, other = asked || k.tid == m.TID, other || k.tid != m.TID
		}
	}
	switch {
	case asked:
	case other:
		v.suspect(cmTID, nil, nil, "The DREP has transaction ID %#x, which is not that of the DREQ.", m.TID)
	default:
		v.suspect(cmUnasked, nil, x.framesOf(), "The DREP comes without a DREQ.")
		return
	}
	if f := v.flowOf(x, x.end(p.Frame.Src)); f != nil {
		f.over, f.overAt = true, p.Time
	}
}

// alternate judges a LAP.
func (v *Verifier) alternate(p *packet, m *cm.LAP) {
	x := v.ofBoth(p, m.LocalID, m.RemoteID)
	if x == nil {
		v.tooSoon(p, m.LocalID)
		return
	}
	if !v.once(p, x, m.TID) {
		return
	}
	if m.RemoteQPN != x.number(p.Frame.Dst) {
		v.find(cmIDs, nil, "The LAP names queue pair %v; the end that receives it has %v.", m.RemoteQPN, x.number(p.Frame.Dst))
	}
	x.lap[x.end(p.Frame.Src)] = x.sent[sentKey{cm.AttrLAP, p.Frame.Src, m.TID}]
}

// alternateAnswer judges an APR. An APR with the status that the connection is unknown need not name it.
func (v *Verifier) alternateAnswer(p *packet, m *cm.APR) {
	x := v.ofBoth(p, m.LocalID, m.RemoteID)
	if x == nil {
		return
	}
	lap := x.lap[1-x.end(p.Frame.Src)]
	switch {
	case lap == nil:
		v.suspect(cmUnasked, nil, x.framesOf(), "The APR comes without a LAP.")
	case x.sent[sentKey{cm.AttrLAP, p.Frame.Dst, m.TID}] == nil:
		v.suspect(cmTID, nil, []Frame{lap.frame}, "The APR has transaction ID %#x; %#x is that of the LAP.", m.TID, lap.tid)
	default:
		if v.once(p, x, m.TID) {
			v.answered(p, x, cm.AttrLAP, m.TID)
		}
	}
}

// datagramRequest judges a SIDR_REQ.
func (v *Verifier) datagramRequest(p *packet, m *cm.SIDRREQ) {
	k := sidrKey{p.Frame.Src, m.RequestID, m.TID}
	now := hash(p.Frame.Payload())
	q := v.cm.sidr[k]
	switch {
	case q == nil:
		v.cm.ask(k, &query{m, now, p.frame})
	case q.contents != now:
		v.find(cmRepeat, []Frame{q.frame}, "The SIDR_REQ comes again with other contents.")
	}
}

// datagramReply judges a SIDR_REP.
func (v *Verifier) datagramReply(p *packet, m *cm.SIDRREP) {
	if q := v.cm.sidr[sidrKey{p.Frame.Dst, m.RequestID, m.TID}]; q != nil {
		if m.ServiceID != q.req.ServiceID {
			v.find(cmSIDR, []Frame{q.frame}, "The SIDR_REP is about service %v; %v was asked for.", m.ServiceID, q.req.ServiceID)
		}
		return
	}
	k := sidrKey{from: p.Frame.Dst, id: m.RequestID}
	if tid, ok := v.cm.last[k]; ok {
		k.tid = tid
		v.suspect(cmTID, nil, []Frame{v.cm.sidr[k].frame}, "The SIDR_REP has transaction ID %#x; %#x belongs to it.", m.TID, tid)
	}
}

// ask stores a SIDR_REQ, and removes the oldest one if there are too many.
func (m *managers) ask(k sidrKey, q *query) {
	if m.asked.Len() >= maxExchanges {
		old, _ := m.asked.Pop()
		delete(m.sidr, old)
		if id := (sidrKey{from: old.from, id: old.id}); m.last[id] == old.tid {
			delete(m.last, id)
		}
	}
	m.sidr[k] = q
	*m.asked.Push() = k
	m.last[sidrKey{from: k.from, id: k.id}] = k.tid
}
