package verify

import (
	"time"

	"github.com/goroce/roce/bth"
)

// Times that separate what a requester did before it knew from what it did afterwards.
const (
	fatalGrace    = 100 * time.Millisecond // requests on their way when a NAK ends the connection
	needlessGrace = time.Millisecond       // an acknowledgement that arrives is not handled at once
	heldGrace     = time.Millisecond       // requests handed to the adapter before the RNR NAK was
)

// handleRequest judges a request among those before it.
func (h *half) handleRequest(p *packet) {
	f := &p.Frame
	psn := f.PSN()
	h.latest = p.Time
	if h.dead != nil && p.Time.Sub(h.deadAt) > fatalGrace {
		if h.flow.agreed == nil && psn != h.next {
			h.restart(p) // another connection with the same numbers
		} else {
			h.v.find(requestAfterFatal, []Frame{*h.dead}, "The requester goes on %v after a NAK that ends the connection.", round(p.Time.Sub(h.deadAt)))
		}
	}
	if h.flow.over {
		h.v.find(cmOver, nil, "The end that sends this has answered a DREQ.")
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
	switch d := psn.Sub(h.expect(psn)); {
	case d == 0:
		h.skipped(p)
		h.fresh(p)
	case d > 0:
		h.skipped(p)
		h.jumped(p)
		h.fresh(p)
	case h.find(psn) != nil:
		h.repeated(p, h.find(psn))
	case h.fill(psn):
		h.filled(p)
	default:
		h.v.limit(LimitBeginning, h.flow.String(), p) // repeated from before what is kept
	}
}

// reused reports whether another connection without a handshake has the numbers of one that a NAK has ended: a PSN comes again
// with something else.
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
	h.msn.known, h.msn.certain = true, true
	h.arrived = arrivals{known: p.in, sure: true, first: a.start, next: a.start}
	switch d := psn.Sub(a.start); {
	case d == 0:
	case d > 0 && d < farJump && !p.out:
		h.next = a.start // those before were lost
	default:
		h.v.find(psnStart, []Frame{a.frame}, "The first request has PSN %v, but the connection begins at %v.", psn, a.start)
		h.msn.certain = false
	}
	if a.passive && !h.flow.ready {
		h.v.find(cmReady, []Frame{a.frame}, "The passive end sends a request; it has received neither the RTU nor a request.")
	}
	if h.flow.peer != nil {
		h.flow.peer.ready = true // a first request stands for the RTU
	}
}

// expect returns the PSN of the next new request. After a READ of unknown extent it is the one of the possible ones that
// psn is, if it is one; the path MTU is known then.
func (h *half) expect(psn bth.PSN) bth.PSN {
	for _, n := range h.nexts {
		if n == psn {
			h.settle(n)
			return n
		}
	}
	if len(h.nexts) > 0 && h.nexts[len(h.nexts)-1].Less(psn) {
		h.settle(h.nexts[len(h.nexts)-1])
	}
	return h.next
}

// settle ends a READ of unknown extent before n.
func (h *half) settle(n bth.PSN) {
	if r := h.reqs[len(h.reqs)-1]; len(h.nexts) > 0 {
		r.last = n.Add(-1)
		r.ends = []bth.PSN{r.last}
		h.nexts, h.next = nil, n
	}
}

// skipped judges whether the requester, which was repeating requests, has left some out before psn.
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
	var d *Departure
	if h.flow.migrated {
		d = &stackSingle
	}
	h.v.explain(goBackSkip, d, h.framesOf(h.run.psn), "The requester went back to PSN %v and repeated up to %v, then sent %v; %v was not acknowledged.",
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
		h.v.find(psnGap, nil, "PSN %v follows %v; %d are missing where the requester sends.", psn, h.next.Add(-1), psn.Sub(h.next))
	} else {
		h.v.limit(LimitGap, h.flow.String(), p)
	}
	if len(h.gaps) >= maxGaps {
		h.gaps = h.gaps[1:]
	}
	h.gaps = append(h.gaps, gap{h.next, psn.Add(-1)})
	h.next, h.nexts = psn, nil
	h.message.known = false
	h.msn.known, h.msn.certain = false, false
	h.credits.known = false
}

// fresh takes a new request that comes in order.
func (h *half) fresh(p *packet) {
	r := h.make(p)
	h.report.Requests++
	if r.flags&bth.Last != 0 {
		h.report.Messages++
	}
	h.placeInMessage(p)
	h.beforeSending(p, r)
	h.add(r)
	h.next = r.last.Add(1)
	if p.in {
		h.arrived.add(r.psn, r.last)
	}
	if h.ackedOnce && h.next.Sub(h.acked) <= 0 || h.next.Sub(h.reqs[0].psn) <= 0 {
		h.v.find(psnWindow, []Frame{h.reqs[0].frame}, "PSN %v is 2^23 or more after the oldest unacknowledged one.", r.last)
		h.restartAt(p)
	}
}

// restartAt begins anew behind a request.
func (h *half) restartAt(p *packet) {
	next := h.next
	h.requestState, h.responseState = requestState{}, responseState{}
	h.next, h.latest = next, p.Time
}

// make makes a request of a packet, with the counts of messages that follow from the request before.
func (h *half) make(p *packet) *request {
	f := &p.Frame
	r := &request{psn: f.PSN(), last: f.PSN(), op: f.Op, flags: f.Info.Flags, frame: p.frame, again: p.frame, sent: p.Time, resent: p.Time,
		id: ipID(p), place: f.PSN(), times: 1, contents: contents(p), va: f.VA(), key: f.RKey(), length: f.DMALen(), size: f.PayloadLen(), operand: f.Swap(), compare: f.Compare()}
	r.doubtful = h.floored && !h.floor.Less(r.psn)
	if i := h.index(r.psn); i >= 0 {
		r.ended = h.reqs[i].ended
	}
	if r.flags&bth.Last != 0 {
		r.ended++
	}
	if r.flags&bth.Read != 0 {
		h.extent(r)
		r.next, r.cursor = r.psn, r.psn
		r.starts, r.ends = []bth.PSN{r.psn}, []bth.PSN{r.last}
		r.served, r.asked = map[bth.PSN]int{}, map[bth.PSN]int{}
		r.ask(r.psn, r.last)
	}
	return r
}

// extent sets the last PSN of a READ. While the path MTU is not known it is the largest possible one, and
// nexts are the PSNs that the next request may have.
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

// ask counts that responses were requested.
func (r *request) ask(from, to bth.PSN) {
	if to.Sub(from) > maxServed {
		return
	}
	for psn := from; !to.Less(psn); psn = psn.Add(1) {
		r.asked[psn]++
	}
}

// contents is a hash of what must be the same when a request is repeated; 0: it was not captured.
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
	if m.left >= 0 && !p.Cut {
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

// size judges the payload of a SEND or WRITE packet by the path MTU, which it may show.
func (h *half) size(p *packet) {
	f := &p.Frame
	fl, n, mtu := f.Info.Flags, f.PayloadLen(), h.flow.mtu
	switch {
	case fl&(bth.Send|bth.Write) == 0 || !isMTU(n) && fl&bth.Last == 0:
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
	if n := &h.rnr; n.pending && n.in && p.Time.Sub(n.at) > heldGrace && p.Time.Sub(n.at) < n.wait {
		var d *Departure
		if h.flow.likeRxe() {
			d = &rxeHeld
		}
		h.v.explain(rnrHeld, d, []Frame{n.frame}, "A new request is sent %v after an RNR NAK that asks to wait %v.", round(p.Time.Sub(n.at)), n.wait)
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
			h.v.find(creditsExceeded, []Frame{h.ackFrame}, "The SEND is message %d, the credits end at %d.", number, h.credits.limit)
		}
	}
}

// unreliable judges a request of an unreliable connection.
func (h *half) unreliable(p *packet) {
	psn := p.Frame.PSN()
	switch d := psn.Sub(h.next); {
	case d == 0:
	case p.out:
		h.v.find(psnUC, nil, "PSN %v follows %v.", psn, h.next.Add(-1))
		h.message.known = false
	case d < 0:
		if n := len(h.reqs); n > 0 && h.reqs[n-1].psn == psn {
			h.report.Repeated.Copies++
		}
		return // reordered or doubled on its way
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

// filled takes a request that was missing: it was reordered, or sent again after its loss before the capture.
func (h *half) filled(p *packet) {
	r := h.make(p)
	r.doubtful = true
	h.report.Requests++
	if r.flags&bth.Last != 0 {
		h.report.Messages++
		for _, later := range h.reqs[h.index(r.psn)+1:] {
			later.ended++
		}
		h.msn.known, h.msn.certain = false, false
	}
	if r.flags&bth.Read != 0 {
		h.nexts = nil
	}
	h.add(r)
	if p.in {
		h.arrived.add(r.psn, r.last)
	}
	if h.nak.pending && h.nak.psn == r.psn {
		h.v.times.add(nakReaction, p.Time.Sub(h.nak.at))
		h.nak.pending = false
	}
	if h.rnr.pending && h.rnr.psn == r.psn {
		h.rnr.pending = false
	}
	h.run.active, h.run.psn, h.run.next = true, r.psn, r.last.Add(1)
}
