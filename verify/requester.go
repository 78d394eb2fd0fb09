package verify

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/dissect"
)

// These are the times that an end may take before it acts on a packet that has arrived.
const (
	fatalGrace    = 100 * time.Millisecond // packets may be on their way when a NAK, REJ or DREP ends the connection
	needlessGrace = time.Millisecond       // the requester may not handle an acknowledgement at once
	heldGrace     = time.Millisecond       // the requester may have handed requests to the adapter before it handled the RNR NAK
)

// handleRequest judges a request by the earlier packets of the connection.
func (h *half) handleRequest(p *packet) {
	f := &p.Frame
	psn := f.PSN()
	h.latest = p.Time
	if h.dead != nil && p.Time.Sub(h.deadAt) > fatalGrace+h.v.cfg.Slack {
		switch goesOn := h.goesOn(p); {
		case h.flow.agreed == nil && psn != h.next:
			h.restart(p) // another connection with the same numbers
		case !goesOn && !h.v.complete: // the handshake of another connection may be missing
			h.v.cannotTell(requestAfterFatal)
			h.restart(p)
		default:
			h.v.find(requestAfterFatal, []Frame{*h.dead}, "The requester goes on %v after a NAK that ends the connection.", round(p.Time.Sub(h.deadAt)))
		}
	}
	if h.flow.over && (p.out || p.Time.Sub(h.flow.overAt) > fatalGrace) { // elsewhere the DREP may have overtaken it
		if h.v.complete || h.goesOn(p) {
			h.v.find(cmOver, nil, "The end that sends this has answered a DREQ.")
		} else {
			h.v.cannotTell(cmOver)
		}
	}
	if d := psn.Sub(h.next); h.started && (d >= farJump || d <= -farJump || h.reused(p)) {
		h.restart(p)
	}
	if !h.started {
		h.begin(p)
	}
	if f.Op.Transport() == bth.UC {
		h.unreliable(p)
		return
	}
	h.arrival(p)
	switch d := psn.Sub(h.expect(psn)); {
	case d == 0:
		h.skipped(p)
		h.fresh(p)
	case d > 0:
		h.skipped(p)
		h.jumped(p)
		h.fresh(p)
	case h.find(psn) != nil && !h.inGuess(p, h.find(psn)):
		h.repeated(p, h.find(psn))
	case h.gaps.Fill(psn):
		h.filled(p)
	default:
		h.v.limit(LimitBeginning, h.flow.String(), p) // it repeats a request that is not kept any more
	}
}

// goesOn reports whether a request repeats an earlier one or has the next PSN. Otherwise it may belong to another connection with the
// same numbers.
func (h *half) goesOn(p *packet) bool {
	psn := p.Frame.PSN()
	if !h.started || psn == h.next {
		return h.started
	}
	r := h.find(psn)
	return r != nil && (r.contents == contents(p) || r.flags&p.Frame.Info.Flags&bth.Read != 0 && r.key == p.Frame.RKey())
}

// reused reports whether a request belongs to another connection, which has the same numbers as one that a NAK has ended. It does if
// a request with its PSN had other contents. This is only for connections whose handshake is not known.
func (h *half) reused(p *packet) bool {
	if h.dead == nil || h.flow.agreed != nil {
		return false
	}
	r := h.find(p.Frame.PSN())
	return r != nil && r.contents != contents(p)
}

// begin starts with the first request.
func (h *half) begin(p *packet) {
	psn := p.Frame.PSN()
	h.started, h.next = true, psn
	h.report.Transport = p.Frame.Op.Transport().String()
	a := h.flow.agreed
	if a == nil || !a.startKnown || h.flow.begun {
		h.v.limit(LimitBeginning, h.flow.String(), p)
		h.message.known = p.Frame.Info.Flags&bth.First != 0
		return
	}
	h.message.known = true
	h.msn.known, h.msn.certain, h.msn.handshake = true, true, true
	h.arrived = arrivals{known: p.in, sure: true, first: a.start, next: a.start}
	switch d := psn.Sub(a.start); {
	case d == 0:
	case d > 0 && d < farJump && (!p.out || !h.v.complete):
		h.next = a.start // the requests from there to this one were lost
	default:
		h.message.known = h.v.complete
		h.v.suspect(psnStart, nil, []Frame{a.frame}, "The first request has PSN %v, but the connection begins at %v.", psn, a.start)
		h.msn.certain, h.msn.handshake = false, false
	}
	if a.passive && !h.flow.ready {
		h.v.suspect(cmReady, nil, []Frame{a.frame}, "The passive end sends a request; it has received neither the RTU nor a request.")
	}
	if h.flow.peer != nil {
		h.flow.peer.ready = true // a first request stands for the RTU
	}
}

// expect returns the PSN of the next new request. After a READ whose last PSN is not known, there are several possible ones (nexts).
// expect then chooses the largest that is not after psn, and takes the READ to end before it.
func (h *half) expect(psn bth.PSN) bth.PSN {
	if len(h.nexts) == 0 || psn.Less(h.nexts[0]) {
		return h.next
	}
	i := len(h.nexts) - 1
	for psn.Less(h.nexts[i]) {
		i--
	}
	h.guessEnd(h.nexts[i])
	return h.next
}

// guessEnd takes the latest READ, whose last PSN is not known, to end before n. If requests are missing in the capture, it may end earlier.
func (h *half) guessEnd(n bth.PSN) {
	if r := h.reqs[len(h.reqs)-1]; len(h.nexts) > 0 {
		r.endAt(n.Add(-1))
		r.guessed = true
		h.nexts, h.next = nil, n
		if !h.v.complete {
			h.uncertain()
		}
	}
}

// uncertain notes that requests may be missing before the next one.
func (h *half) uncertain() {
	h.message.known = false
	h.msn.known, h.msn.certain, h.msn.handshake = false, false, false
	h.credits.known = false
}

// endAt sets the last PSN of a READ that was taken to end elsewhere.
func (r *request) endAt(last bth.PSN) {
	for i := range r.ends {
		if r.ends[i] == r.last || last.Less(r.ends[i]) {
			r.ends[i] = last
		}
	}
	r.last = last
}

// inGuess reports whether the PSN of a request is in the guessed part of the READ r, so that the guess was wrong. inGuess then
// makes r end before that PSN.
func (h *half) inGuess(p *packet, r *request) bool {
	psn := p.Frame.PSN()
	if !r.guessed || psn == r.psn || p.Frame.Info.Flags&bth.Read != 0 && p.Frame.RKey() == r.key {
		return false
	}
	h.gaps.Add(psn, r.last) // the caller then removes psn from the gap
	r.endAt(psn.Add(-1))
	h.uncertain()
	return true
}

// skipped judges whether a requester that was repeating requests has left some out before this one. It ends the run of repetitions.
func (h *half) skipped(p *packet) {
	if !h.run.active {
		return
	}
	h.run.active = false
	from, psn := h.run.next, p.Frame.PSN()
	if old := h.oldest(); from.Less(old) {
		from = old
	}
	if !from.Less(psn) || !from.Less(h.next) || h.find(from) == nil {
		return
	}
	if !p.out {
		h.v.limit(LimitGap, h.flow.String(), p)
		return
	}
	h.v.suspect(goBackSkip, stackSingle.when(h.flow.migrated), h.framesOf(h.run.psn), "The requester went back to PSN %v and repeated up to %v, then sent %v; %v was not acknowledged.",
		h.run.psn, h.run.next.Add(-1), psn, from)
}

// framesOf returns the frames of the request with a PSN.
func (h *half) framesOf(psn bth.PSN) []Frame {
	if r := h.find(psn); r != nil {
		return []Frame{r.frame}
	}
	return nil
}

// jumped notes PSNs that are missing before a new request.
func (h *half) jumped(p *packet) {
	psn := p.Frame.PSN()
	if p.out {
		h.v.suspect(psnGap, nil, nil, "PSN %v follows %v; %d are missing where the requester sends.", psn, h.next.Add(-1), psn.Sub(h.next))
	} else {
		h.v.limit(LimitGap, h.flow.String(), p)
	}
	h.gaps.Skip(h.next, psn.Add(-1))
	h.next, h.nexts = psn, nil
	h.skipsSeen = h.skipsSeen || p.out
	h.uncertain()
}

// fresh judges a new request, after gaps before it were noted, and adds it.
func (h *half) fresh(p *packet) {
	f, r := &p.Frame, h.make(p)
	h.report.Requests++
	if r.flags&bth.Last != 0 {
		h.report.Messages++
	}
	h.placeInMessage(p)
	h.beforeSending(p, r)
	h.add(r)
	if r.flags&(bth.Write|bth.AtomicWrite) != 0 && f.Info.Headers&bth.HasRETH != 0 {
		h.v.words.write(h.flow.key.dst, r.key)
	}
	h.next = r.last.Add(1)
	if p.in {
		h.arrived.add(r.psn, r.last)
	}
	if h.ackedOnce && h.next.Sub(h.acked) <= 0 || h.next.Sub(h.reqs[0].psn) <= 0 {
		h.v.suspect(psnWindow, nil, []Frame{h.reqs[0].frame}, "PSN %v is 2^23 or more after the oldest unacknowledged one.", r.last)
		next := h.next
		h.reset()
		h.next, h.latest = next, p.Time
	}
}

// make returns the request of a packet. Its count of messages continues that of the request before.
func (h *half) make(p *packet) *request {
	f := &p.Frame
	r := &request{psn: f.PSN(), last: f.PSN(), op: f.Op, flags: f.Info.Flags, frame: p.frame, again: p.frame, resent: p.Time,
		id: ipID(p), place: f.PSN(), times: 1, contents: contents(p), va: f.VA(), key: f.RKey(), length: f.DMALen(), operand: f.Swap(), compare: f.Compare()}
	r.doubtful = h.floored && !h.floor.Less(r.psn)
	r.part = r.flags&bth.Read != 0 && h.behindGap(r.psn)
	r.ended = h.messagesTo(r.psn)
	if r.flags&bth.Last != 0 {
		r.ended++
	}
	if r.flags&bth.Read != 0 {
		h.extent(r)
		r.next, r.cursor = r.psn, r.psn
		r.starts, r.ends = []bth.PSN{r.psn}, []bth.PSN{r.last}
	}
	return r
}

// behindGap reports whether the request before psn is not in the capture. If the request with psn is a READ, the missing request may
// be the first part of the same READ.
func (h *half) behindGap(psn bth.PSN) bool {
	if h.gaps.Covers(psn.Add(-1)) {
		return true
	}
	begin := len(h.reqs) == 0 || psn.Less(h.reqs[0].psn)
	return begin && !(h.flow.agreed != nil && h.flow.agreed.startKnown && h.flow.agreed.start == psn)
}

// extent sets the last PSN of a READ. While the path MTU is not known, extent sets it to the largest possible PSN, and sets nexts to
// the PSNs that the next request may have.
func (h *half) extent(r *request) {
	if n := packets(r.length, h.flow.mtu); n > 0 {
		r.last = r.psn.Add(n - 1)
		return
	}
	for m := bth.MTU4096; m >= bth.MTU256; m-- {
		n := r.psn.Add(packets(r.length, m.Bytes()))
		if len(h.nexts) == 0 || h.nexts[len(h.nexts)-1] != n {
			h.nexts = append(h.nexts, n)
		}
	}
	r.last = h.nexts[len(h.nexts)-1].Add(-1)
	if len(h.nexts) == 1 {
		h.nexts = nil
	}
}

// contents returns a hash of everything that must be the same when a request is repeated, or 0 if the packet is cut short.
func contents(p *packet) uint64 {
	if p.Cut {
		return 0
	}
	f := &p.Frame
	return hash(f.Data[bth.BTHLen:len(f.Data)-bth.ICRCLen]) ^ uint64(f.Op)<<56 | 1
}

// placeInMessage judges the order and the lengths of the packets of a message.
func (h *half) placeInMessage(p *packet) {
	f := &p.Frame
	m, fl, n := &h.message, f.Info.Flags, f.PayloadLen()
	kind := fl & (bth.Send | bth.Write)
	switch {
	case fl&bth.First != 0:
		if m.known && m.open {
			h.v.find(orderMessage, []Frame{m.first}, "%s comes before the end of the message that began there.", f.Info.Name)
		}
		m.kind, m.first, m.left = kind, p.frame, -1
		if fl&bth.Write != 0 {
			m.left = int64(f.DMALen())
		}
	case m.known && !m.open:
		h.v.find(orderMessage, nil, "%s comes without the beginning of a message.", f.Info.Name)
		m.left = -1
	case m.known && m.kind != kind:
		h.v.find(orderMessage, []Frame{m.first}, "%s is not of the kind of the message that began there.", f.Info.Name)
		m.kind, m.left = kind, -1
	case !m.known:
		m.kind, m.first, m.left = kind, p.frame, -1
	}
	h.size(p)
	if p.Cut {
		m.left = -1
	}
	if m.left >= 0 {
		m.left -= int64(n)
		if m.left < 0 || fl&bth.Last != 0 && m.left != 0 {
			more := "more"
			if m.left > 0 {
				more = "less"
			}
			h.v.find(lengthWrite, []Frame{m.first}, "The packets of the WRITE carry %d bytes %s than its RETH says.", max(m.left, -m.left), more)
			m.left = -1
		}
	}
	m.known, m.open = true, fl&bth.Last == 0
}

// size compares the payload of a SEND or WRITE packet with the path MTU. If the path MTU is not known, size takes it from a FIRST or
// MIDDLE packet.
func (h *half) size(p *packet) {
	f := &p.Frame
	fl, n, mtu := f.Info.Flags, f.PayloadLen(), h.flow.mtu
	switch {
	case fl&(bth.Send|bth.Write) == 0 || dissect.MTUOf(n) == 0 && fl&bth.Last == 0:
	case fl&bth.Last == 0 && mtu == 0:
		h.flow.setMTU(n)
	case fl&bth.Last == 0 && mtu != n:
		h.v.find(lengthMTU, nil, "%s carries %d bytes, the path MTU is %d.", f.Info.Name, n, mtu)
	case fl&bth.Last != 0 && mtu != 0 && n > mtu && n <= bth.MTU4096.Bytes():
		h.v.find(lengthLast, nil, "%s carries %d bytes, more than the path MTU of %d.", f.Info.Name, n, mtu)
	}
}

// beforeSending judges whether a new request may be sent now.
func (h *half) beforeSending(p *packet, r *request) {
	if n := &h.rnr; n.pending && n.in && p.Time.Sub(n.at) > heldGrace+h.v.cfg.Slack && p.Time.Sub(n.at) < n.wait {
		h.v.explain(rnrHeld, rxeHeld.when(h.flow.likeRxe()), []Frame{n.frame}, "A new request is sent %v after an RNR NAK that asks to wait %v.", round(p.Time.Sub(n.at)), n.wait)
	}
	if r.flags&(bth.Read|bth.Atomic|bth.AtomicWrite) != 0 {
		h.depth(r)
	}
	if r.flags&bth.Send != 0 && h.credits.known {
		number := r.ended
		if r.flags&bth.Last == 0 {
			number++
		}
		if r.flags&bth.First != 0 && number > h.credits.limit+1 {
			h.v.suspect(creditsExceeded, nil, []Frame{h.ackFrame}, "The SEND is message %d, the credits end at %d.", number, h.credits.limit)
		}
	}
}

// unreliable judges a request of an unreliable connection.
func (h *half) unreliable(p *packet) {
	psn := p.Frame.PSN()
	switch d := psn.Sub(h.next); {
	case d == 0:
	case p.out:
		h.v.suspect(psnUC, nil, nil, "PSN %v follows %v.", psn, h.next.Add(-1))
		h.message.known = false
	case d < 0:
		if n := len(h.reqs); n > 0 && h.reqs[n-1].psn == psn {
			h.report.Repeated.Copies++
		}
		return // the network reordered or duplicated it
	default:
		h.v.limit(LimitGap, h.flow.String(), p)
		h.report.Missing += int(d)
		h.message.known = false
	}
	h.report.Requests++
	if p.Frame.Info.Flags&bth.Last != 0 {
		h.report.Messages++
	}
	h.placeInMessage(p)
	h.reqs = append(h.reqs[:0], h.make(p))
	h.next = psn.Add(1)
}

// filled adds a request that was missing until now. Either the network reordered it, or the requester sent it again because it had
// been lost before the place of the capture.
func (h *half) filled(p *packet) {
	r := h.make(p)
	r.doubtful = true
	h.report.Requests++
	if r.flags&bth.Last != 0 {
		h.report.Messages++
		for _, later := range h.reqs[h.index(r.psn)+1:] {
			later.ended++
		}
		h.msn.known, h.msn.certain, h.msn.handshake = false, false, false
	}
	if r.flags&bth.Read != 0 {
		h.nexts = nil
	}
	h.add(r)
	if p.in {
		h.arrived.add(r.psn, r.last)
	}
	if h.nak.pending && h.nak.psn == r.psn {
		h.timed(NAKReaction, p.Time.Sub(h.nak.at))
		h.nak.pending, h.nak.met = false, true
	}
	if h.rnr.pending && h.rnr.psn == r.psn {
		h.rnr.pending = false
	}
	h.run.active, h.run.psn, h.run.next = true, r.psn, r.last.Add(1)
}
