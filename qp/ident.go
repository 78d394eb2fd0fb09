package qp

import (
	"time"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// A UDP socket hides the IPv4 header. The ICRC covers the Identification in that header, so the receiver computes
// from the ICRC the Identification with which it is right. A damaged packet passes if its ICRC would be right with
// any of the 65536 values: of the 32 bits of the check, 16 are left. But the Identifications of a sender are seldom
// random. Most senders count them, for one peer or for all, or leave them zero, and number the packets of a
// super-packet from zero. Once a peer has done so for a while, its queue pair expects the next Identification to be
// near the last one, and takes a packet with another for damaged.
//
// What is near depends on the time: the peer may have sent to others meanwhile, and its kernel may add a random
// number for the time that has passed. So the window of near Identifications grows with time, and after a pause of
// some milliseconds any Identification is near.
//
// A wrong guess must not stop a connection. Other hosts may forge packets from the peer to this queue pair. So the
// queue pair learns only from packets that advance the connection: a host that does not see the packets would have to
// guess the PSN. But any packet can be refused, a forged one, too, and the Identifications of the peer itself may
// jump. So a packet is refused only after a run of packets that were near. After a refusal all packets are accepted
// until there has been such a run again. If the packet after a refusal shows that the peer has jumped, the refused
// packet was not damaged. Then the queue pair requires runs of twice the length, until the peer has not jumped for
// long. A jump costs one packet, which the network might have lost as well.
//
// The state belongs to the queue pair, and only packets with the addresses of its peer change it. Packets from other
// addresses cost no memory.

// The limits of a near Identification, and of the runs of packets that prove them.
const (
	identBehind = 128     // overtaken by other packets, or the beginning of another super-packet
	identAhead  = 256     // two batches: packets of the same peer for other queue pairs
	identShift  = 7       // the window opens by one in 2^7 ns
	identNarrow = 1 << 14 // a wider window proves almost nothing
	identRun    = 16
	identMax    = 1 << 12 // the longest run that is required
	identForget = 1 << 14 // a run that proves that the peer does not jump any more

	// All packets of a batch have the same time. To compute the window, identBatch bounds the time between the
	// transmission of the first and of the last packet of a batch.
	identBatch = time.Millisecond
)

// idents is what a queue pair knows about the Identifications of its peer.
type idents struct {
	at     mono.Time     // of the last packet
	before time.Duration // from the previous batch to that time
	last   uint16        // the newest Identification
	run    uint16        // packets that were near, in a row
	need   uint16        // packets in a row that must be near; 0: identRun
	doubt  bool          // the last packet was refused
}

// trust says how much an ICRC proves.
type trust uint8

const (
	full    trust = iota // the Identification is near, as it must be
	weak                 // any Identification would have done
	refused              // the Identification is too far away
)

// judge decides whether to trust a packet whose ICRC is right for Identification id.
func (s *idents) judge(now mono.Time, id uint16) trust {
	if now != s.at {
		s.before, s.at = now.Sub(s.at), now
	} else {
		s.before = min(s.before, identBatch)
	}
	need := max(s.need, identRun)
	room := identAhead + int64(s.before)>>identShift
	ahead := id - s.last + identBehind
	switch {
	case room+identBehind > 1<<16: // a pause
		s.last, s.doubt = id, false
		return weak
	case int64(ahead) < room+identBehind:
		if ahead >= identBehind {
			s.last = id
		}
		s.doubt = false
		proven := s.run >= need
		if room > identNarrow {
			return weak
		}
		if s.run++; s.run == identForget {
			s.run, s.need = identMax, need/2
		}
		if proven {
			return full
		}
		return weak
	case s.run >= need:
		s.run, s.doubt = 0, true
		return refused
	}
	if s.doubt { // the refused packet was not damaged
		s.need, s.doubt = min(2*need, identMax), false
	}
	s.run, s.last = 0, id
	return weak
}

// follows reports whether judge would return full and change only the fields that follow changes. This holds for
// nearly every packet of a batch except the first.
func (s *idents) follows(now mono.Time, id uint16) bool {
	return now == s.at && id-s.last+identBehind < identAhead+identBehind && s.run >= max(s.need, identRun) && s.run < identForget-1 && s.before <= identBatch
}

// follow records a packet that follows.
func (s *idents) follow(id uint16) {
	if id-s.last < identAhead {
		s.last = id
	}
	s.run++
}

// handleSolvedID processes a packet of the peer whose Identification was computed from the ICRC. If that
// Identification is refused, the packet counts as damaged.
func (q *QP) handleSolvedID(now mono.Time, p *frame.Packet, id uint16) {
	next := q.idents
	switch next.judge(now, id) {
	case refused:
		q.idents = next
		q.cnt.StrangeID++
		q.cnt.ICRCErr++
		return
	case weak:
		q.cnt.WeakICRC++
	}
	before, expect, acked := q.idents, q.responder.expect, q.requester.acked
	q.handleAdmitted(now, p)
	if (q.responder.expect != expect || q.requester.acked != acked) && q.idents == before { // it has not migrated
		q.idents = next
	}
}
