package verify

import (
	"slices"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/psngap"
	"github.com/goroce/roce/internal/tools/dissect"
)

// readResponse judges a READ response. r is the request with its PSN, nil if it is not known.
func (h *half) readResponse(p *packet, r *request) {
	f := &p.Frame
	psn := f.PSN()
	switch {
	case r == nil:
		if h.flow.agreed != nil && h.gaps.Len() == 0 {
			h.v.suspect(readRange, nil, nil, "No READ has PSN %v.", psn)
		} else {
			h.v.limit(LimitBeginning, h.flow.String(), p)
		}
		return
	case r.flags&(bth.Flush|bth.AtomicWrite) != 0:
		h.emptyResponse(p, r)
		return
	case r.flags&bth.Atomic != 0:
		h.v.find(responseKind, []Frame{r.frame}, "%s is answered by %s.", r.op.Info().Name, f.Info.Name)
		return
	case r.flags&bth.Read == 0:
		h.v.suspect(readRange, nil, []Frame{r.frame}, "PSN %v is that of %s, no READ has it.", psn, r.op.Info().Name)
		return
	}
	if !r.doubtful {
		h.placeInRead(p, r)
	}
	if !h.readSize(p, r) {
		return
	}
	if !r.doubtful {
		h.again(p, r)
	}
	h.unanswered(p, r.psn)
	if psn == r.psn {
		h.timed(ReadLatency, p.Time.Sub(r.resent))
	}
	fl := f.Info.Flags
	if psn == r.next {
		r.next = psn.Add(1)
	}
	r.cursor, r.open = psn.Add(1), fl&bth.Last == 0
	r.answered = r.last.Less(r.next) || (r.uncertain || r.doubtful) && psn == r.last
	h.advance(p, psn)
}

// emptyResponse judges the answer to a FLUSH or ATOMIC WRITE.
func (h *half) emptyResponse(p *packet, r *request) {
	f := &p.Frame
	if f.Info.Flags&bth.Only != bth.Only {
		h.v.find(responseKind, []Frame{r.frame}, "%s is answered by %s.", r.op.Info().Name, f.Info.Name)
		return
	}
	if n := f.PayloadLen(); n > 0 {
		h.v.find(readLength, []Frame{r.frame}, "The response to %s carries %d bytes.", r.op.Info().Name, n)
	}
	r.answered = true
	h.unanswered(p, r.psn)
	h.advance(p, f.PSN())
}

// placeInRead judges the PSN and the opcode of a READ response.
func (h *half) placeInRead(p *packet, r *request) {
	f := &p.Frame
	psn, fl := f.PSN(), f.Info.Flags
	starts := slices.Contains(r.starts, psn)
	first, last := fl&bth.First != 0, fl&bth.Last != 0
	switch {
	case r.open && psn == r.cursor && !first:
	case starts && first:
	case r.uncounted: // it may belong to a part that was not kept
	case h.order.late: // the response was overtaken, or may have been because it has no identification
		h.implied = h.implied || r.cursor.Less(psn)
	case starts:
		if psn == r.psn && r.part {
			h.v.cannotTell(readOpcode)
			break
		}
		if psn == r.psn { // the whole READ
			h.v.find(readOpcode, []Frame{r.frame}, "The first response to the READ is %s.", f.Info.Name)
			break
		}
		var d *Departure
		switch {
		case h.flow.peer.likeRxe():
			d = &rxeMiddle
		case !p.out: // the first response of this part may have been lost
			h.v.limit(LimitGap, h.flow.peer.String(), p)
			return
		}
		h.v.explain(readOpcode, d, []Frame{r.frame}, "The first response to a READ that was repeated from PSN %v is %s.", psn, f.Info.Name)
	case first:
		h.v.suspect(readOpcode, nil, []Frame{r.frame}, "%s has PSN %v; no READ was requested from there.", f.Info.Name, psn)
	case p.out:
		h.v.suspect(readGap, nil, []Frame{r.frame}, "PSN %v follows where %v is expected.", psn, r.cursor)
	case r.cursor.Less(psn) || !r.open:
		h.implied = true
		r.uncertain = r.uncertain || !p.in
		h.v.limit(LimitGap, h.flow.peer.String(), p)
	}
	if h.flow.mtu == 0 && fl&bth.Last != 0 && len(h.nexts) > 0 && h.reqs[len(h.reqs)-1] == r {
		return // it is not known where the READ ends
	}
	switch ends := slices.Contains(r.ends, psn); {
	case h.flow.mtu == 0 || last == ends || r.uncounted:
	case psn == r.last:
		h.v.find(readOpcode, []Frame{r.frame}, "%s has PSN %v; the READ ends at %v.", f.Info.Name, psn, r.last)
	case last:
		h.v.suspect(readOpcode, nil, []Frame{r.frame}, "%s has PSN %v; the READ ends at %v.", f.Info.Name, psn, r.last)
	}
}

// readSize judges the length of a READ response's payload, and takes the path MTU from it if that was not known. It returns false if
// the known requests do not fit this path MTU, and their state was dropped.
func (h *half) readSize(p *packet, r *request) bool {
	f := &p.Frame
	n := f.PayloadLen()
	psn, last := f.PSN(), f.Info.Flags&bth.Last != 0
	if !last && h.flow.mtu == 0 && dissect.MTUOf(n) != 0 {
		h.flow.setMTU(n)
		if !h.started {
			return false
		}
	}
	mtu := h.flow.mtu
	if mtu == 0 || p.Cut || r.doubtful || dissect.MTUOf(n) == 0 && !last {
		return true
	}
	want := mtu
	if last {
		if psn != r.last {
			return true // it ends a part of the READ; the length of that part is not known here
		}
		want = int(int64(r.length) - int64(psn.Sub(r.psn))*int64(mtu))
	}
	if n != want {
		h.v.find(readLength, []Frame{r.frame}, "%s carries %d bytes where the READ of %d bytes has %d.", f.Info.Name, n, r.length, want)
	}
	return true
}

// measure computes the last PSN of the READ that needed the path MTU for it. It returns false if another READ does not end where
// it was assumed to end, which happens after losses.
func (h *half) measure() bool {
	for i, r := range h.reqs {
		if r.flags&bth.Read == 0 {
			continue
		}
		last := r.psn.Add(packets(r.length, h.flow.mtu) - 1)
		switch {
		case r.last == last:
		case i == len(h.reqs)-1 && len(h.nexts) > 0:
			h.next, h.nexts = last.Add(1), nil
			r.endAt(last)
		default:
			return false
		}
	}
	return true
}

// again judges whether a response was sent more often than it was requested. That is known only if the capture was made at the responder.
func (h *half) again(p *packet, r *request) {
	if !p.out || r.uncounted {
		return
	}
	psn := p.Frame.PSN()
	r.serve(psn)
	asked, served := 0, 0
	for i := range r.starts {
		if (psngap.Range{From: r.starts[i], To: r.ends[i]}).Covers(psn) {
			asked++
		}
	}
	for _, run := range r.served {
		if run.Covers(psn) {
			served++
		}
	}
	if !r.uncounted && served > asked && asked > 0 {
		h.v.suspect(readRedundant, nil, []Frame{r.again}, "The response with PSN %v is sent %d times and was requested %d times.", psn, served, asked)
	}
}

// serve notes that a response was sent.
func (r *request) serve(psn bth.PSN) {
	switch n := len(r.served); {
	case n > 0 && r.served[n-1].To.Add(1) == psn:
		r.served[n-1].To = psn
	case n >= maxParts:
		r.uncounted = true
	default:
		r.served = append(r.served, psngap.Range{From: psn, To: psn})
	}
}
