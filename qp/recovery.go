package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// The local ACK timeout is made for fabrics that lose next to nothing: 67 ms
// with the usual code 14, when a round trip takes some 20 µs. On a network that
// drops, what no NAK tells of decides the speed: a lost tail, a lost NAK or
// acknowledgement, a repetition that got lost again. Three things keep those
// from waiting for the timer, none of which a peer needs to know of:
//
//   - A responder that waits for a packet repeats its NAK when it sees the
//     requester go back once more without it, and a few times while the requester
//     goes on behind it.
//   - A requester that hears nothing for some round trips sends its oldest
//     unacknowledged packet once more, asking for an acknowledgement: a probe. The
//     answer says where the peer stands. It is no retry and counts as none.
//   - A requester that had to go back keeps less in flight for a while. With
//     go-back-N everything behind a loss is sent for nothing.
//
// The second covers, too, what nobody was asked to acknowledge: a short message
// that is not signaled need not, as long as another that asks is likely to follow
// soon. A ping-pong then costs two packets a round trip instead of four. If none
// follows, the probe asks.

// Bounds of the probe timer, and what it starts with before a round trip was
// measured. The first is well above the time a busy peer may take to get its
// turn; the last is never more than half of the ACK timeout.
const (
	minProbe   = 1 * time.Millisecond
	firstProbe = 4 * time.Millisecond
)

// Bounds of what may go unasked: for how long after a packet that asked, which is
// well below the wait for a probe, and how many packets of a message each.
const (
	unaskedFor  = minProbe / 4
	maxUnasked  = ackEvery / 2
	unaskedPart = 4 // at most this part of the send queue waits with them
)

// minWindow is how many packets may be in flight whatever is lost: two rounds of
// acknowledgements.
const minWindow = 2 * ackEvery

// A window of long messages is made up of bursts that a driver with segmentation
// offload sends as one super-packet each: what a UDP datagram can hold of packets
// with headers of the shortest kind.
const (
	bursts        = 4
	maxSuper      = 65507
	superOverhead = bth.BTHLen + bth.ICRCLen
)

// flight is what a requester knows about its packets on the way.
type flight struct {
	window int32 // packets that may be unacknowledged now: at most QP.window

	asked   bth.PSN // one beyond the newest packet that asked for an acknowledgement
	askedAt mono.Time
	silent  bool // the packet at hand need not ask
	full    bool // the window was, and has no room for a burst since

	// One packet at a time is timed. Those sent twice are not (Karn).
	timing  bool
	timed   bth.PSN
	timedAt mono.Time
	srtt    time.Duration // smoothed round trip, 0: none measured
	rttvar  time.Duration // mean deviation (RFC 6298)

	probeAt mono.Time
	probes  uint8 // since progress
	probe   bool  // one is due

	backAt mono.Time // when the oldest packet was repeated last
	ahead  bth.PSN   // last answer beyond what is missing
}

// setMTU sets the path MTU and what follows from it. A READ is asked for in
// pieces, like any NIC may: what one window has room for comes without overrunning
// anybody, and a loss costs a piece at most.
func (q *QP) setMTU(m bth.MTU) {
	q.pmtu, q.mtu = m, uint32(m.Bytes())
	q.bulk = q.window
	if q.measured {
		q.bulk = min(q.window, bursts*maxSuper/(int32(q.mtu)+superOverhead))
	}
	q.readPSNs = max(uint32(q.bulk)/2, 1)
}

// mayFly reports whether the window has room for the next packet. Once it was full
// it must have room for a burst, or for what is left to send: acknowledgements
// would otherwise break up for good what can go as one super-packet.
func (q *QP) mayFly(w *sendWQE) bool {
	r := &q.requester
	limit := q.inFlight(w)
	free := limit - r.next.Sub(r.acked)
	if free <= 0 {
		r.full = true
		return false
	}
	if !r.full {
		return true
	}
	left := int32(w.last.Sub(r.next)) + int32(q.sq.tail-q.sq.cur)
	r.full = free < min(limit/bursts, left)
	return !r.full
}

// inFlight is how many packets may be unacknowledged while w is sent.
func (q *QP) inFlight(w *sendWQE) int32 {
	if w.length > q.mtu {
		return min(q.requester.flight.window, q.bulk)
	}
	return q.requester.flight.window
}

// mayBeSilent reports whether the next packet, of the SEND or WRITE w, may go without
// asking for an acknowledgement.
func (q *QP) mayBeSilent(now mono.Time, w *sendWQE) bool {
	r := &q.requester
	return !q.askAlways && !q.signals(w) && w.length <= q.mtu && r.next == r.max && q.state == RTS &&
		now.Sub(r.askedAt) < unaskedFor && r.unasked() < maxUnasked && r.srtt > 0 && r.wait() <= r.timeout/2 &&
		int(q.sq.cur-q.sq.head) < q.sq.cap()/unaskedPart
}

// unasked is how many of the newest packets on the way nobody was asked to
// acknowledge.
func (r *requester) unasked() int32 {
	if r.asked.Less(r.acked) {
		return r.max.Sub(r.acked)
	}
	return r.max.Sub(r.asked)
}

// ask has the next Emit ask for what is unasked, because something waits for it.
func (q *QP) ask() {
	if r := &q.requester; r.unasked() > 0 {
		r.asked, r.probe = r.max, true
	}
}

// askNow is ask for a work request that waits for all before it.
func (q *QP) askNow(sink frame.Sink) emission {
	if q.ask(); q.requester.probe {
		return q.emitAgain(sink)
	}
	return idle
}

// sent notes a packet or READ request just emitted for the first time.
func (f *flight) sent(now mono.Time, psn, next bth.PSN) {
	if f.silent {
		return
	}
	f.asked, f.askedAt = next, now
	if !f.timing {
		f.timing, f.timed, f.timedAt = true, psn, now
	}
}

// acknowledged notes progress up to and without psn, of n packets.
func (f *flight) acknowledged(now mono.Time, psn bth.PSN, n, limit int32) {
	if f.probe = false; f.probes > 0 {
		f.probes, f.probeAt = 0, mono.Never // they have lengthened the wait
	}
	if f.window < limit {
		f.window = min(f.window+n/8+1, limit)
	}
	if !f.timing || !f.timed.Less(psn) {
		return
	}
	f.timing = false
	rtt := max(now.Sub(f.timedAt), 1)
	if f.srtt == 0 {
		f.srtt, f.rttvar = rtt, rtt/2
		return
	}
	dev := rtt - f.srtt
	f.srtt += dev / 8
	f.rttvar += (max(dev, -dev) - f.rttvar) / 4
}

// wentBack notes that everything unacknowledged is going to be sent again,
// because of a loss or for want of a receive.
func (f *flight) wentBack(lost bool) {
	f.timing, f.probe, f.full = false, false, false
	if lost {
		f.window = max(f.window/2, min(minWindow, f.window))
	}
}

// arm starts the probe timer; each probe without an answer doubles the wait.
func (f *flight) arm(now mono.Time, timeout time.Duration) {
	wait := f.wait() << f.probes
	if timeout == 0 || wait > timeout/2 {
		f.probeAt = mono.Never
		return
	}
	f.probeAt = now.Add(wait)
}

// wait is how long the first probe waits.
func (f *flight) wait() time.Duration {
	if f.srtt == 0 {
		return firstProbe
	}
	return max(f.srtt+4*f.rttvar, minProbe)
}

// stale reports whether an answer that says that a repeated packet is missing
// comes too early to be about the repetition.
func (f *flight) stale(now mono.Time) bool { return f.srtt == 0 || now.Sub(f.backAt) <= f.srtt/2 }

// probeExpired is the probe timer: the next Emit sends one.
func (q *QP) probeExpired(now mono.Time) {
	r := &q.requester
	r.probeAt = mono.Never
	if (q.state != RTS && q.state != SQD) || !r.acked.Less(r.max) || r.rnrDeadline != mono.Never {
		return
	}
	r.probe, r.full = true, false
	r.probes++
	r.flight.arm(now, r.timeout)
}

// emitAgain sends the oldest packet once more and leaves the rest where it is.
func (q *QP) emitAgain(sink frame.Sink) emission {
	r := &q.requester
	next, cur, reads := r.next, q.sq.cur, r.reads
	w := q.sq.at(q.sq.head)
	emit := probes[w.kind]
	if emit == nil || w.fail || r.acked == next || r.acked.Less(w.first) {
		r.probe = false
		return idle
	}
	r.next, q.sq.cur, r.reads = r.acked, q.sq.head, 0
	res := emit(q, sink, w, &opTable[w.op])
	if q.state == Err {
		return res
	}
	r.next, q.sq.cur, r.reads = next, cur, reads
	if res != blocked {
		r.probe = false
	}
	if res == emitted {
		q.cnt.SentPkts++
		q.cnt.Probes++
	}
	return res
}

// probes are the requests that are repeated as they are. Of what takes care of
// a peculiar peer none is.
var probes = [...]func(*QP, frame.Sink, *sendWQE, *opInfo) emission{
	kindSend:        (*QP).emitSend,
	kindRead:        (*QP).emitRead,
	kindAtomic:      (*QP).emitAtomic,
	kindFlush:       nil,
	kindAtomicWrite: nil,
	kindLocal:       nil,
}
