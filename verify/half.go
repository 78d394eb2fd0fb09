package verify

import (
	"slices"
	"sort"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/psngap"
)

// request is a request packet.
type request struct {
	psn, last bth.PSN // only a READ has several PSNs: one for each response
	op        bth.Opcode
	flags     bth.OpcodeFlags
	frame     Frame // the first time, and the latest
	again     Frame
	sent      time.Time // the first time, and the latest
	resent    time.Time
	id        uint16  // IPv4 identification, the latest
	place     bth.PSN // of the latest transmission: a READ may be repeated in part
	times     int     // how often it was sent
	timeouts  int     // how often by a timeout
	contents  uint64  // hash of what must not change; 0: not known
	va        uint64
	key       bth.RKey
	length    uint32 // RETH
	size      int    // payload
	operand   uint64 // swap or add
	compare   uint64
	ended     int // messages of the requester that end at or before it

	// Of a READ: the PSNs where parts begin and end that were requested, and how often each response was requested and sent.
	starts, ends []bth.PSN
	next         bth.PSN        // the first response that has not come
	cursor       bth.PSN        // the response after the latest, if open
	open         bool           // in the middle of the responses
	doubtful     bool           // it may be a part of a READ that is not known
	part         bool           // the request before is not known, so it may be the end of a READ
	guessed      bool           // it may end before last
	uncertain    bool           // a response is missing, and may be so in the capture only
	served       []psngap.Range // runs of responses, where they are captured as they are sent
	uncounted    bool           // there were more parts or runs than are kept

	answered bool   // completely
	value    uint64 // that an atomic returned
	valued   bool
}

// covers reports whether one of the PSNs of the request is psn.
func (r *request) covers(psn bth.PSN) bool { return !psn.Less(r.psn) && !r.last.Less(psn) }

// half is one direction of a connection: the requests of one end, which is in flow, and the responses to them,
// which are in flow.peer.
type half struct {
	v      *Verifier
	flow   *flow
	report *Half

	blocks *blockSet // where responses find it; see announce

	started bool
	floor   bth.PSN // the latest PSN that was seen before what was forgotten
	floored bool
	requestState
	responseState
}

// requestState is of the requester.
type requestState struct {
	reqs  []*request // the latest, in the order of their PSNs
	next  bth.PSN    // of the next new request
	nexts []bth.PSN  // more values that next may have, after a READ before the path MTU is known
	gaps  psngap.List
	open  []*request // READs and atomics that may not be answered yet
	// skipsSeen: a gap was seen where the requester sends.
	skipsSeen bool

	latest time.Time

	message struct { // the one that is being sent
		open  bool
		known bool // whether one is open is known
		kind  bth.OpcodeFlags
		left  int64 // bytes of a WRITE that are to come; -1: not known
		first Frame
	}

	run struct { // of repeated requests
		active bool
		next   bth.PSN
		alone  bool // it was one request so far
		psn    bth.PSN
	}
	dead   *Frame // of a NAK that ended the connection
	deadAt time.Time
}

// responseState is of the responder.
type responseState struct {
	acked     bth.PSN // the latest that is acknowledged
	ackedOnce bool
	ackedAt   time.Time
	ackFrame  Frame
	ackIn     bool // it arrived at the requester, as far as is known

	latestACK struct {
		psn   bth.PSN
		known bool
		frame Frame
	}
	msn struct {
		base    bth.MSN // value before the first message of reqs is complete
		known   bool
		certain bool // as far as ACKs agree

		confirmed int // ACKs that agree

		handshake bool // it is that of the beginning of the connection, and no request is missing since
		last      bth.MSN
		seen      bool
		frame     Frame
	}
	nak     refusal // for a sequence error
	rnr     refusal
	arrived arrivals
	recent  []response // the latest, to tell copies
	order   struct {   // of the responses, by their IPv4 identification
		id    uint16
		known bool
		late  bool // the latest was overtaken by another
	}

	implied bool // a response came although an earlier one is missing
	credits struct {
		limit int // messages that may be sent, counted as request.ended is
		known bool
	}
}

// refusal is a NAK that asks to repeat.
type refusal struct {
	pending bool // the request has not come again
	known   bool // there was one
	met     bool // the requester has gone back to its PSN
	psn     bth.PSN
	at      time.Time
	wait    time.Duration
	frame   Frame
	in      bool // it arrived at the requester
	copies  int
	beyond  bool // a request behind the gap was repeated since

	// replaced is the PSN of the refusal before, if this one came before the requester did what that asked for: it may do so yet.
	replaced   bool
	replacedAt bth.PSN
}

// response is what tells a response from a copy of it.
type response struct {
	psn bth.PSN
	op  bth.Opcode
	id  uint16
}

// Bounds of memory for each half.
const (
	maxRequests = 8192
	maxGaps     = 1024
	maxRecent   = 64
	maxParts    = 64 // of a READ that are told apart
)

// farJump is a distance of PSNs that no window of a connection has: another one has begun.
const farJump = 1 << 20

func (v *Verifier) newHalf(f *flow) *half {
	h := &half{v: v, flow: f, report: &Half{Requester: f.key.src.Addr().String(), Responder: f.key.dst.Addr().String() + " qp " + f.key.qpn.String()}}
	h.reset()
	v.order = append(v.order, h)
	v.report.Halves = append(v.report.Halves, h.report)
	return h
}

// restart forgets what was before: the connection begins anew.
func (h *half) restart(p *packet) {
	h.v.limit(LimitReuse, h.flow.String(), p)
	h.forget()
}

// forget forgets what was before.
func (h *half) forget() {
	if floor := h.next.Add(-1); h.started && (!h.floored || h.floor.Less(floor)) {
		h.floor, h.floored = floor, true
	}
	h.reset()
	h.started = false
	h.flow.begun = true
}

// reset empties the state of both ends.
func (h *half) reset() {
	h.requestState, h.responseState = requestState{}, responseState{}
	h.gaps.Limit = maxGaps
}

// find returns the request that psn belongs to, nil if it is not known.
func (h *half) find(psn bth.PSN) *request {
	i := h.index(psn)
	if i < 0 || !h.reqs[i].covers(psn) {
		return nil
	}
	return h.reqs[i]
}

// index returns the place of the latest request whose PSN is not after psn, -1 if there is none.
func (h *half) index(psn bth.PSN) int {
	return sort.Search(len(h.reqs), func(i int) bool { return psn.Less(h.reqs[i].psn) }) - 1
}

// covers reports whether psn is among those of the requests.
func (h *half) covers(psn bth.PSN) bool {
	return h.started && len(h.reqs) > 0 && !psn.Less(h.reqs[0].psn) && psn.Less(h.next)
}

// add keeps a request in its place.
func (h *half) add(r *request) {
	if len(h.reqs) >= maxRequests {
		h.reqs = slices.Delete(h.reqs, 0, maxRequests/2)
	}
	h.reqs = slices.Insert(h.reqs, h.index(r.psn)+1, r)
	h.v.announce(h, r.psn, r.last)
	h.v.keep(h)
}

// maxKept bounds the requests of all connections together.
const maxKept = 1 << 20

// keep counts a request that was added to h. If there are too many, the half that got the oldest one forgets one.
func (v *Verifier) keep(h *half) {
	*v.kept.Push() = h
	if v.kept.Len() > maxKept {
		if old, _ := v.kept.Pop(); len(old.reqs) > 1 {
			old.reqs[0] = nil
			old.reqs = old.reqs[1:]
		}
	}
}

// oldest returns the PSN of the oldest request that is not acknowledged as far as the capture shows.
func (h *half) oldest() bth.PSN {
	if h.ackedOnce {
		return h.acked.Add(1)
	}
	if len(h.reqs) > 0 {
		return h.reqs[0].psn
	}
	return h.next
}

// packets returns how many responses a READ has, at least; 0 if the path MTU is not known and it matters.
func packets(length uint32, mtu int) int {
	switch {
	case length <= 256:
		return 1
	case mtu == 0:
		return 0
	}
	return int((int64(length) + int64(mtu) - 1) / int64(mtu))
}

// arrivals follows what has arrived at the responder, where the capture was made there.
type arrivals struct {
	known bool
	sure  bool        // nothing arrived before
	first bth.PSN     // that is known
	next  bth.PSN     // first PSN that has not arrived
	ahead psngap.List // what has arrived beyond
}

// add notes the arrival of PSNs.
func (a *arrivals) add(from, to bth.PSN) {
	if !a.known {
		a.known, a.first, a.next = true, from, to.Add(1)
		a.ahead.Limit = maxGaps
		return
	}
	if to.Less(a.next) {
		return
	}
	if a.next.Less(from) {
		if a.ahead.Limit = maxGaps; !a.ahead.Add(from, to) {
			a.known = false
			a.ahead.Clear()
		}
		return
	}
	a.next = to.Add(1)
	for a.ahead.Len() > 0 && !a.next.Less(a.ahead.First().From) {
		if end := a.ahead.First().To.Add(1); a.next.Less(end) {
			a.next = end
		}
		a.ahead.Drop()
	}
}

// claimed makes the arrivals sure once the responder has acknowledged all that may have arrived before they were followed.
func (h *half) claimed(psn bth.PSN) {
	a := &h.arrived
	if a.sure || !a.known || psn.Less(a.first) || h.floored && psn.Less(h.floor) {
		return
	}
	a.sure = true
	a.add(a.next, psn)
}
