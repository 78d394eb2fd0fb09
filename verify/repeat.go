package verify

import (
	"slices"
	"time"

	"github.com/goroce/roce/bth"
)

// repeated judges a request that was sent before: whether it is the same, and why it is sent again.
func (h *half) repeated(p *packet, r *request) {
	if id := ipID(p); !p.out && id != 0 && id == r.id && p.Frame.PSN() == r.place {
		h.report.Repeated.Copies++
		if r.flags&bth.Read != 0 { // the responder answers a copy of a READ as well, so it counts as another request for the responses
			r.restartAt(p.Frame.PSN(), r.last)
		}
		return
	}
	if !h.sameAgain(p, r) {
		h.report.Repeated.Early++
		return
	}
	if p.in {
		h.arrived.add(p.Frame.PSN(), r.last)
	}
	psn := p.Frame.PSN()
	h.timed(Retransmission, p.Time.Sub(r.resent))
	if h.run.active && h.run.next.Less(psn) && h.find(h.run.next) == nil {
		h.run.next = psn // the requests in between are missing in the capture
	}
	if h.run.active && h.run.next.Less(psn) && !h.nakAt(psn) {
		h.skipped(p)
	}
	h.why(p, r, psn)
	h.run.active, h.run.next = true, r.last.Add(1)
	r.again, r.resent, r.id, r.place = p.frame, p.Time, ipID(p), psn
	r.times++
}

// nakAt reports whether a pending NAK or RNR NAK has this PSN.
func (h *half) nakAt(psn bth.PSN) bool {
	return h.nak.pending && h.nak.psn == psn || h.rnr.pending && h.rnr.psn == psn
}

// why finds and counts the cause of a repetition, and judges whether the cause is permitted.
func (h *half) why(p *packet, r *request, psn bth.PSN) {
	c := &h.report.Repeated
	switch {
	case h.rnr.pending && psn == h.rnr.psn && p.Time.Sub(h.rnr.at) < h.rnr.wait && h.v.copied(rnrEarly, p, r.resent):
		c.Copies++
	case h.rnr.pending && psn == h.rnr.psn:
		c.RNR++
		h.waited(p)
		h.rnr.pending = false
		h.run.psn = psn
	case h.nak.pending && psn == h.nak.psn:
		c.NAK++
		h.timed(NAKReaction, p.Time.Sub(h.nak.at))
		h.nak.pending, h.nak.met = false, true
		h.run.psn = psn
	case h.run.active && (psn == h.run.next || h.run.next.Less(psn) && psn == h.oldest()):
		c.GoBack++
	default:
		h.byItself(p, r, psn)
		h.run.psn = psn
	}
}

// byItself judges a requester that goes back to psn although no NAK has that PSN.
func (h *half) byItself(p *packet, r *request, psn bth.PSN) {
	c := &h.report.Repeated
	done := h.ackedOnce && !h.acked.Less(r.last) && (r.flags&(bth.Read|bth.Atomic) == 0 || r.answered)
	switch {
	case h.nak.pending && h.nak.replaced && psn == h.nak.replacedAt:
		c.NAK++
		h.nak.replaced = false
	case h.nak.pending && h.nak.in && r.resent.Before(h.nak.at) && !(psn.Less(h.nak.psn) && r.unanswered()):
		if p.Time.Sub(h.nak.at) <= h.v.cfg.Slack { // the requester may not have handled the NAK yet
			c.Timeout++
			return
		}
		h.v.suspect(goBackPlace, nil, []Frame{h.nak.frame}, "The NAK asks for PSN %v, the requester goes back to %v.", h.nak.psn, psn)
		c.NAK++
		h.nak.pending = false
	case done:
		c.Needless++
		if h.ackIn && p.Time.Sub(h.ackedAt) > needlessGrace+h.v.cfg.Slack {
			h.v.suspect(repeatNeedless, nil, []Frame{h.ackFrame}, "PSN %v is repeated %v after it was acknowledged.", psn, round(p.Time.Sub(h.ackedAt)))
		}
	case h.implied:
		c.Implied++
		h.implied = false
	case h.nak.known && psn.Less(h.nak.psn) && r.unanswered() && r.resent.Before(h.nak.at): // the later NAK implies its loss
		c.Implied++
	default:
		h.timedOut(p, r, psn)
	}
}

// unanswered reports whether r is a READ, an atomic or the like whose response has not come.
func (r *request) unanswered() bool {
	return r.flags&(bth.Read|bth.Atomic|bth.Flush|bth.AtomicWrite) != 0 && !r.answered
}

// timedOut judges a repetition by the ACK timer.
func (h *half) timedOut(p *packet, r *request, psn bth.PSN) {
	c := &h.report.Repeated
	if old := h.oldest(); p.out && h.report.Responses > 0 && old.Less(psn) && h.find(old) != nil && r.flags&bth.Read == 0 {
		h.v.suspect(goBackUnacked, nil, h.framesOf(old), "The requester goes back to PSN %v, but %v is not acknowledged.", psn, old)
	}
	a := h.flow.agreed
	if a == nil {
		c.Timeout++
		return
	}
	t := bth.AckTimeout(a.timeout)
	early := t * 95 / 100
	if after := p.Time.Sub(r.resent); after < early {
		c.Early++
		if p.in {
			return // the previous transmission may have arrived late
		}
		if h.v.copied(repeatEarly, p, r.resent) {
			return
		}
		var d *Departure
		switch {
		case h.flow.migrated:
			d = &stackProbe
		case after >= t-rxeEarliest:
			d = &rxeJiffies
		case !p.out && after >= early-copyTime: // the previous transmission may have arrived late
			h.v.cannotTell(repeatEarly)
			return
		}
		h.v.suspect(repeatEarly, d, []Frame{r.again}, "PSN %v is repeated after %v without a NAK; the ACK timeout is %v.", psn, round(after), t)
		return
	}
	c.Timeout++
	if r.timeouts++; r.timeouts > a.retries {
		h.v.suspect(repeatCount, rxeForever.when(a.retries == 7 && h.flow.likeRxe()), []Frame{r.frame}, "PSN %v is repeated by a timeout for the %dth time; the retry count is %d.", psn, r.timeouts, a.retries)
	}
}

// rxeEarliest is how much too early rxe's ACK timer may fire. Rounding its time down to jiffies takes away less than one jiffy, and
// the jiffy that has already begun counts as a whole one. Debian's kernels have 250 jiffies in a second.
const rxeEarliest = 8 * time.Millisecond

// waited judges whether the requester has waited after an RNR NAK.
func (h *half) waited(p *packet) {
	n := &h.rnr
	waited := p.Time.Sub(n.at)
	h.timed(RNRWait, waited)
	if p.in || waited >= n.wait*98/100-20*time.Microsecond {
		return
	}
	if waited < h.v.cfg.Slack { // the requester may not have handled the NAK yet
		h.v.cannotTell(rnrEarly)
		return
	}
	h.v.explain(rnrEarly, rxeEarly.when(h.flow.likeRxe()), []Frame{n.frame}, "The request is repeated %v after an RNR NAK that asks to wait %v.", round(waited), n.wait)
}

// sameAgain judges whether a repeated request is the same as the first time. It returns false for the WRITE with which this stack
// probes before it repeats a FLUSH: that is a new request with an old PSN.
func (h *half) sameAgain(p *packet, r *request) bool {
	f := &p.Frame
	if r.flags&bth.Read != 0 && f.Info.Flags&bth.Read != 0 {
		h.partAgain(p, r)
		return true
	}
	now := contents(p)
	if now == r.contents || now == 0 || r.contents == 0 {
		return true
	}
	if next := h.find(f.PSN().Add(1)); f.Info.Flags&bth.Write != 0 && f.PayloadLen() == 0 && next != nil && next.flags&bth.Flush != 0 {
		h.v.explain(repeatDiffers, &stackFlush, []Frame{r.frame}, "A WRITE of nothing has the PSN before a FLUSH.")
		return false
	}
	h.v.find(repeatDiffers, []Frame{r.frame}, "PSN %v was %s; it is %s with other contents now.", f.PSN(), r.op.Info().Name, f.Info.Name)
	return true
}

// partAgain judges a READ that is repeated in whole or in part.
func (h *half) partAgain(p *packet, r *request) {
	f := &p.Frame
	psn := f.PSN()
	if psn == r.psn && f.DMALen() == r.length && f.VA() == r.va && f.RKey() == r.key {
		r.restartAt(psn, r.last)
		return
	}
	mtu := h.flow.mtu
	if mtu == 0 || r.doubtful {
		r.doubtful = true
		return
	}
	off := uint64(psn.Sub(r.psn)) * uint64(mtu)
	rest := uint64(r.length) - off
	end := psn.Add(packets(f.DMALen(), mtu) - 1)
	switch length := uint64(f.DMALen()); {
	case f.RKey() != r.key || f.VA() != r.va+off:
		h.v.find(readAgain, []Frame{r.frame}, "The part of the READ from PSN %v has address %#x and key %v; %#x and %v belong to it.", psn, f.VA(), f.RKey(), r.va+off, r.key)
	case length > rest:
		h.v.find(readAgain, []Frame{r.frame}, "The part of the READ from PSN %v asks for %d bytes; %d are left.", psn, length, rest)
	case length < rest || r.next.Less(psn) && !r.uncertain:
		judge := h.v.suspect // responses may be missing in the capture
		if length < rest {
			judge = h.v.explain
		}
		judge(readAgain, stackPart.when(h.flow.migrated), []Frame{r.frame}, "The READ is repeated from PSN %v to %v; %v to %v is missing.", psn, end, r.next, r.last)
	}
	if r.last.Less(end) {
		end = r.last
	}
	r.restartAt(psn, end)
}

// restartAt notes that the responses with the PSNs [from, to] were requested again.
func (r *request) restartAt(from, to bth.PSN) {
	if len(r.starts) >= maxParts {
		r.uncounted = true
		return
	}
	r.starts, r.ends = append(r.starts, from), append(r.ends, to)
}

// maxDepth bounds open. A responder can grant at most 255 READs and atomics.
const maxDepth = 256

// depth judges how many READs and atomics are outstanding.
func (h *half) depth(r *request) {
	a := h.flow.agreed
	if a == nil || a.depth < 0 {
		return
	}
	h.open = slices.DeleteFunc(h.open, func(o *request) bool { return o.answered || h.ackedOnce && !h.acked.Less(o.last) })
	if len(h.open) > maxDepth {
		h.open = slices.Delete(h.open, 0, len(h.open)-maxDepth)
	}
	h.open = append(h.open, r)
	n := len(h.open)
	if n <= a.depth {
		return
	}
	powerOfTwo := 1 // the least that is not below the depth
	for powerOfTwo < a.depth {
		powerOfTwo *= 2
	}
	h.v.suspect(readDepth, rxeDepth.when(h.flow.likeRxe() && n <= powerOfTwo), []Frame{a.frame}, "%d READs and atomics are outstanding, %d are granted.", n, a.depth)
}

// round rounds a duration, so that it has few digits.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(time.Millisecond)
	case d > time.Millisecond:
		return d.Round(time.Microsecond)
	}
	return d
}
