package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// The state of a requester's packets in flight: the window, the round trip time, and the probe.
//
// The local ACK timeout is made for fabrics that lose almost nothing: with the usual code 14 it is thousands of round
// trips. Some losses cause no NAK: the last packet of a message, a NAK or an acknowledgement, a retransmission. On a
// network that drops packets these losses decide the speed. Three rules keep them from waiting for the timer. No peer
// needs to know of them:
//
//   - A responder that waits for a packet repeats its NAK when the requester goes back
//     and skips the packet again, and a few times while the requester goes on behind the
//     gap.
//   - A requester that receives no answer for some round trips sends its oldest
//     unacknowledged packet once more, with AckReq: a probe. The answer shows which PSN the
//     peer expects. A probe is no retry and counts as none.
//   - A requester that had to go back keeps fewer packets in flight for a while. With
//     go-back-N all packets behind a loss are sent for nothing.
//
// The probe also covers packets that did not request an ACK. A short message that is not
// signaled leaves AckReq out, as long as another message with AckReq is likely to follow
// soon. A ping-pong then costs two packets a round trip instead of four. If no other
// message follows, the probe requests the ACK.

// Bounds of the wait for a probe, and the wait before a round trip was measured. minProbe is well above the time that
// a busy peer may take to get a processor: a needless probe may make the requester go back. lossyProbe is the bound
// instead if packets were lost before and the probe cannot make the requester go back: the peer holds the requests
// behind a missing one, or the probe is a READ or atomic. readProbe is the bound for a READ or atomic if the requester has
// measured how long the answer to a repeated part takes, and no part is missing: the loss of a READ request costs the
// data of that whole request. No wait is longer than half of the ACK timeout.
const (
	minProbe   = 1 * time.Millisecond
	lossyProbe = minProbe / 4
	readProbe  = lossyProbe / 4
	firstProbe = 4 * time.Millisecond
)

// Bounds of packets without AckReq. Such a packet is sent only within ackReqInterval after a packet with AckReq,
// which is well below the wait for a probe. At most maxUnrequested of them are in flight, each a whole message.
const (
	ackReqInterval  = minProbe / 4
	maxUnrequested  = ackEvery / 2
	unrequestedPart = 4 // they fill at most a quarter of the send queue
)

// minWindow is how many packets may be in flight however many are lost: enough for two
// acknowledgements.
const minWindow = 2 * ackEvery

// A window of long messages has room for this many bursts. A driver with segmentation
// offload sends each burst as one super-packet: as many packets, with the shortest
// headers, as one UDP datagram can hold.
const (
	bursts        = 4
	maxSuper      = 65507
	superOverhead = bth.BTHLen + bth.ICRCLen
)

// inFlight is what a requester knows about its packets in flight.
type inFlight struct {
	window int32 // packets that may be unacknowledged now: at most QP.window

	ackReqEnd bth.PSN   // one beyond the newest packet with AckReq
	ackReqAt  mono.Time // when it was sent
	noAckReq  bool      // the packet that is being built need not have AckReq
	full      bool      // the window was full, and has had no room for a burst since

	// One packet at a time is timed. Those sent twice are not (Karn).
	timing   bool
	timed    bth.PSN
	timedAt  mono.Time
	srtt     time.Duration // smoothed round trip, 0: none measured
	rttvar   time.Duration // mean deviation (RFC 6298)
	leastRTT time.Duration // shortest round trip, 0: none measured

	armedAt mono.Time // when the ACK timer and the probe timer were started; Never: they must be started again
	probeAt mono.Time
	probes  uint8 // since the last progress
	probe   bool  // a probe is due
	late    bool  // an expired ACK timer has taken from the window: rarities.before

	stalls

	backAt mono.Time // when the oldest packet was retransmitted last
	backTo bth.PSN   // where the requester went back to last
	ahead  bth.PSN   // PSN of the last answer beyond the missing one
}

// setMTU sets the path MTU and what follows from it. A long READ is requested in pieces,
// as any NIC may: the responses to two pieces fit one window, so they overrun no receiver,
// and a loss costs a piece at most.
func (q *QP) setMTU(m bth.MTU) {
	q.pmtu, q.mtu = m, uint32(m.Bytes())
	q.bulk = q.window
	if q.autoWindow {
		q.bulk = min(q.window, bursts*maxSuper/(int32(q.mtu)+superOverhead))
	}
	q.readPSNs = max(uint32(q.bulk)/2, 1)
}

// windowHasRoom reports whether the window has room for the next packet. A window that was
// full must have room for a burst, or for all that is left to send. Otherwise each
// acknowledgement would let a few packets go, and there would be no super-packets any more.
// While responses are lost, any room is enough for a READ: its request is one packet, and
// its responses are a burst.
func (q *QP) windowHasRoom(w *sendWQE) bool {
	r := &q.requester
	limit := q.windowFor(w)
	free := limit - r.next.Sub(r.acked)
	if free <= 0 {
		r.full = true
		return false
	}
	if !r.full || r.missing != nil && r.askDelay == 0 && w.kind == kindRead {
		return true
	}
	left := int32(w.last.Sub(r.next)) + int32(q.sq.tail-q.sq.cur)
	r.full = free < min(limit/bursts, left)
	return !r.full
}

// windowFor returns how many packets may be unacknowledged while w is sent. READ responses that have arrived early are
// unacknowledged, but no longer in flight: in a window of the default size, as many more may be requested. Requests that
// the peer holds count: the requester does not know when they have left the network.
func (q *QP) windowFor(w *sendWQE) int32 {
	r := &q.requester
	limit := r.window
	if w.length > q.mtu {
		limit = min(limit, q.bulk)
	}
	if r.wide != 0 && w.kind != kindRead { // not for READs: a loss costs all responses behind it
		limit <<= r.wide & 31
	}
	// After going back, the requester requests early responses again.
	if e := r.missing; e != nil && w.kind == kindRead && q.autoWindow && !r.single.twiceValid {
		limit = max(limit, min(limit+int32(e.held), repairSpan-int32(q.readPSNs)))
	}
	return limit
}

// mayOmitAckReq reports whether the next packet, of the SEND or WRITE w, may go without
// AckReq.
func (q *QP) mayOmitAckReq(now mono.Time, w *sendWQE) bool {
	r := &q.requester
	return !q.alwaysAckReq && !q.signals(w) && w.length <= q.mtu && r.next == r.max && q.state == RTS &&
		now.Sub(r.ackReqAt) < ackReqInterval && r.unrequested() < maxUnrequested && r.srtt > 0 && r.patience(minProbe) <= r.timeout/2 &&
		int(q.sq.cur-q.sq.head) < q.sq.cap()/unrequestedPart
}

// unrequested returns how many of the newest packets in flight are behind the last one with
// AckReq.
func (r *requester) unrequested() int32 {
	if r.ackReqEnd.Less(r.acked) {
		return r.max.Sub(r.acked)
	}
	return r.max.Sub(r.ackReqEnd)
}

// requestAck has the next Emit send a probe if packets without AckReq are in flight: a work
// request waits for their acknowledgement.
func (q *QP) requestAck() {
	if r := &q.requester; r.unrequested() > 0 {
		r.ackReqEnd, r.probe = r.max, true
	}
}

// requestAckNow is requestAck for a work request that waits for all requests before it; it
// sends the probe at once.
func (q *QP) requestAckNow(sink frame.Sink) emission {
	if q.requestAck(); q.requester.probe {
		return q.emitProbe(sink)
	}
	return idle
}

// sent notes a packet or READ request that was emitted for the first time.
func (f *inFlight) sent(now mono.Time, psn, next bth.PSN) {
	if f.noAckReq {
		return
	}
	f.ackReqEnd, f.ackReqAt = next, now
	if !f.timing {
		f.timing, f.timed, f.timedAt = true, psn, now
	}
}

// acknowledged notes that the n packets before psn are acknowledged.
func (f *inFlight) acknowledged(now mono.Time, psn bth.PSN, n, limit int32) {
	if f.probe = false; f.probes > 0 {
		f.probes = 0 // each probe has doubled the wait
		f.disarmProbe()
	}
	if f.window < limit {
		f.window = min(f.window+n/8+1, limit)
	}
	if !f.timing || !f.timed.Less(psn) {
		return
	}
	if f.timing = false; f.probeAt == mono.Never {
		f.armedAt = mono.Never // the wait may be short enough now
	}
	rtt := max(now.Sub(f.timedAt), 1)
	if f.leastRTT == 0 || rtt < f.leastRTT {
		f.leastRTT = rtt
	}
	if f.srtt == 0 {
		f.srtt, f.rttvar = rtt, rtt/2
		return
	}
	dev := rtt - f.srtt
	f.srtt += dev / 8
	f.rttvar += (max(dev, -dev) - f.rttvar) / 4
}

// wentBack notes that all unacknowledged packets will be sent again: because one was lost,
// or because the peer had no receive.
func (f *inFlight) wentBack(now mono.Time, lost bool) {
	f.timing, f.probe, f.full = false, false, false
	if lost {
		f.late = false // if a timeout came first, it was justified
		f.window = max(f.window/2, min(minWindow, f.window))
		f.lost(now)
	}
}

// armProbe starts the probe timer. Each probe without an answer doubles the wait.
func (q *QP) armProbe(now mono.Time) {
	r := &q.requester
	wait := q.wait() << r.probes
	if r.timeout == 0 || wait > r.timeout/2 {
		r.probeAt = mono.Never
		return
	}
	r.probeAt = now.Add(wait)
}

// disarmProbe stops the probe timer until the next progress.
func (f *inFlight) disarmProbe() { f.armedAt, f.probeAt = mono.Never, mono.Never }

// wait returns how long the first probe waits.
func (q *QP) wait() time.Duration {
	r := &q.requester
	if r.learnt != nil && r.askRTT > 0 && r.missing == nil && q.awaitsData() {
		return max(r.askWait(), readProbe)
	}
	if r.srtt == 0 {
		return firstProbe
	}
	least := minProbe
	if r.learnt != nil && (r.single.peer == holds || r.askRTT > 0 && q.awaitsData()) {
		least = lossyProbe
	}
	return r.patience(least)
}

// patience returns how long an answer may take, by the round trips that were measured, but no less than least.
func (f *inFlight) patience(least time.Duration) time.Duration { return max(f.srtt+4*f.rttvar, least) }

// awaitsData reports whether the oldest request is a READ or atomic.
func (q *QP) awaitsData() bool {
	return q.sq.head != q.sq.tail && q.sq.at(q.sq.head).kind.returnsData()
}

// stale reports whether an answer which says that a packet is missing comes too early to be
// about the retransmission of that packet.
func (f *inFlight) stale(now mono.Time) bool { return f.srtt == 0 || now.Sub(f.backAt) <= f.srtt/2 }

// probeTimeout handles the probe timer: the next Emit sends a probe.
func (q *QP) probeTimeout(now mono.Time) {
	r := &q.requester
	r.disarmProbe()
	if (q.state != RTS && q.state != SQD) || !r.acked.Less(r.max) || r.rnrDeadline != mono.Never {
		return
	}
	r.probe, r.full = true, false
	r.probes++
	q.armProbe(now)
}

// emitProbe sends the oldest unacknowledged packet once more, with AckReq, no faster than congestion
// control allows. Transmission then goes on where it was.
func (q *QP) emitProbe(sink frame.Sink) emission {
	r := &q.requester
	next, cur, reads := r.next, q.sq.cur, r.reads
	w := q.sq.at(q.sq.head)
	emit := probes[w.kind]
	if emit == nil || w.fail || r.acked == next || r.acked.Less(w.first) {
		r.probe = false
		return idle
	}
	if q.cc != nil && q.cc.hold() {
		return idle
	}
	r.next, q.sq.cur, r.reads = r.acked, q.sq.head, 0
	res := emit(q, sink, w, &opTable[w.op])
	if q.state == Err {
		return res
	}
	if res == emitted && w.kind == kindRead {
		r.single.repeatsRead(r.next)
	}
	r.next, q.sq.cur, r.reads = next, cur, reads
	if res != blocked {
		r.probe = false
	}
	if res == emitted {
		q.cnt.SentPkts++
		q.cnt.Probes++
		if q.cc != nil {
			q.cc.spend()
		}
	}
	return res
}

// probes are the functions that build a probe, by kind of the oldest request. Kinds that
// need handling of their own for some peers are nil: they are never used as probes.
var probes = [...]func(*QP, frame.Sink, *sendWQE, *opInfo) emission{
	kindSend: (*QP).emitSend,
	kindRead: func(q *QP, sink frame.Sink, w *sendWQE, _ *opInfo) emission {
		off, n := q.readPart(w)
		return q.emitRead(sink, w, off, n)
	},
	kindAtomic:      (*QP).emitAtomic,
	kindFlush:       nil,
	kindAtomicWrite: nil,
	kindLocal:       nil,
}
