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
	frame     Frame     // of the first transmission
	again     Frame     // of the latest transmission
	resent    time.Time // of the latest transmission
	id        uint16    // IPv4 identification of the latest transmission
	place     bth.PSN   // PSN of the latest transmission: a READ may be repeated in part
	times     int       // how often it was sent
	timeouts  int       // how often a timeout repeated it
	contents  uint64    // hash of what must not change; 0: not known
	va        uint64
	key       bth.RKey
	length    uint32 // RETH
	operand   uint64 // swap or add
	compare   uint64
	ended     int // messages of the requester that end at or before it

	// These fields are of a READ. Each time that it was sent requested the responses from an element of starts to that of ends.
	starts, ends []bth.PSN
	next         bth.PSN        // the first response that has not come
	cursor       bth.PSN        // the response after the latest one
	open         bool           // the latest response was not a LAST or ONLY packet
	doubtful     bool           // it may be a repeated part of a READ that is not in the capture
	part         bool           // the request before is not in the capture, so this may be the second part of a READ
	guessed      bool           // last is a guess: the READ may end earlier
	uncertain    bool           // a response is missing, perhaps in the capture only
	served       []psngap.Range // runs of responses, if they are captured as they are sent
	uncounted    bool           // there were more than maxParts parts or runs

	answered bool   // the response is complete
	value    uint64 // that an atomic returned
	valued   bool   // value is known
}

// covers reports whether one of the PSNs of the request is psn.
func (r *request) covers(psn bth.PSN) bool { return !psn.Less(r.psn) && !r.last.Less(psn) }

// half is one direction of a connection: the requests of one end, which is in flow, and the responses to them,
// which are in flow.peer.
type half struct {
	v      *Verifier
	flow   *flow
	report *Half

	blocks *blockSet // see announce

	started bool
	floor   bth.PSN // the latest PSN when forget last dropped the state
	floored bool    // floor is valid
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

	skipsSeen bool // a gap was captured at the requester

	latest time.Time

	message struct { // the latest message
		open  bool
		known bool // whether one is open is known
		kind  bth.OpcodeFlags
		left  int64 // bytes of a WRITE that are still to be sent; -1: not known
		first Frame
	}

	run struct { // of repeated requests
		active bool
		next   bth.PSN
		alone  bool // the run has only one request so far
		psn    bth.PSN
	}
	dead   *Frame // of the NAK that ended the connection; nil: none did
	deadAt time.Time
}

// responseState is of the responder.
type responseState struct {
	acked     bth.PSN   // the latest PSN that is acknowledged
	ackedOnce bool      // acked is valid
	ackedAt   time.Time // when acked last advanced
	ackFrame  Frame     // the response that advanced it
	ackIn     bool      // that response was captured at the requester

	latestACK struct {
		psn   bth.PSN
		known bool
		frame Frame
	}
	msn struct {
		base    bth.MSN // the MSN before the first message of reqs is complete
		known   bool    // base is at least a guess
		certain bool    // enough ACKs agree with base

		confirmed int // how many ACKs agree with base

		handshake bool // base is the MSN at the beginning of the connection, and no request has been missing since
		last      bth.MSN
		seen      bool
		frame     Frame
	}
	nak     refusal // the latest NAK for a sequence error
	rnr     refusal // the latest RNR NAK
	arrived arrivals
	recent  []response // the latest responses, to recognise copies
	order   struct {   // order of the responses according to their IPv4 identification
		id    uint16
		known bool
		late  bool // the latest response may have been overtaken by a later one
	}

	implied bool // a response came although an earlier one is missing
	credits struct {
		limit int // number of the last message that the credits allow, counted as request.ended is
		known bool
	}
}

// refusal is a NAK after which the requester repeats requests: one for a sequence error, or an RNR NAK.
type refusal struct {
	pending bool // the requester has not repeated the request yet
	known   bool // there was such a NAK
	met     bool // the requester has gone back to its PSN
	psn     bth.PSN
	at      time.Time
	wait    time.Duration
	frame   Frame
	in      bool // it arrived at the requester

	// replaced says that the requester had not gone back to the PSN of the previous refusal, replacedAt, when this one came. It may
	// still do so.
	replaced   bool
	replacedAt bth.PSN
}

// response identifies a response: a copy that the network made of it has the same values.
type response struct {
	psn bth.PSN
	op  bth.Opcode
	id  uint16
}

// These constants bound the memory of each half.
const (
	maxRequests = 8192
	maxGaps     = 1024
	maxRecent   = 64
	maxParts    = 64 // parts of a READ that were requested, and runs of its responses
)

// farJump is a distance of PSNs that is larger than any window of a connection: beyond it another connection has begun.
const farJump = 1 << 20

func (v *Verifier) newHalf(f *flow) *half {
	h := &half{v: v, flow: f, report: &Half{Requester: f.key.src.Addr().String(), Responder: f.key.dst.Addr().String() + " qp " + f.key.qpn.String()}}
	h.reset()
	v.order = append(v.order, h)
	v.report.Halves = append(v.report.Halves, h.report)
	return h
}

// restart drops the state, because another connection with the same numbers has begun, and records that as a limit.
func (h *half) restart(p *packet) {
	h.v.limit(LimitReuse, h.flow.String(), p)
	h.forget()
}

// forget drops the state of both ends, except for floor.
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

// index returns the index of the latest request whose PSN is not after psn, -1 if there is none.
func (h *half) index(psn bth.PSN) int {
	return sort.Search(len(h.reqs), func(i int) bool { return psn.Less(h.reqs[i].psn) }) - 1
}

// covers reports whether psn is in the range from the first request to the latest one.
func (h *half) covers(psn bth.PSN) bool {
	return h.started && len(h.reqs) > 0 && !psn.Less(h.reqs[0].psn) && psn.Less(h.next)
}

// add inserts a request into reqs, which is in the order of PSNs.
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

// keep counts a request that was added to h. If there are more than maxKept, the half of the oldest one drops its first request.
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

// packets returns how many responses a READ has. It returns 0 if that depends on the path MTU and the path MTU is not known.
func packets(length uint32, mtu int) int {
	switch {
	case length <= 256:
		return 1
	case mtu == 0:
		return 0
	}
	return int((int64(length) + int64(mtu) - 1) / int64(mtu))
}

// arrivals records which requests have arrived at the responder, if the capture was made there.
type arrivals struct {
	known bool
	sure  bool        // all PSNs before next have arrived
	first bth.PSN     // the first PSN that was captured
	next  bth.PSN     // the first PSN that has not arrived
	ahead psngap.List // the PSNs behind next that have arrived
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

// claimed makes the arrivals sure when the responder acknowledges psn, if that includes all PSNs that may have arrived before the
// first one that was captured.
func (h *half) claimed(psn bth.PSN) {
	a := &h.arrived
	if a.sure || !a.known || psn.Less(a.first) || h.floored && psn.Less(h.floor) {
		return
	}
	a.sure = true
	a.add(a.next, psn)
}
