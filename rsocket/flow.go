package rsocket

import "github.com/goroce/roce/internal/fifo"

// sender counts the resources for sending: the bytes and messages that the peer has allowed,
// and the ring and the work requests of this side.
type sender struct {
	seq     uint16         // messages sent, modulo 2^16
	allowed uint16         // number of the first message that is not allowed yet
	halves  [halves]extent // the halves of the peer's buffer to fill next
	half    int            // the half being filled
	slot    int            // the half that the peer announces next

	buffer int // size of the ring for outgoing data
	at     int // place of the next data in the ring
	free   int // bytes free from there, in ring order
	wrs    int // work requests left for data
	ctrl   int // work requests reserved for control messages

	quiet unsignaled // the newest messages, which generate no completions
}

// unsignaled counts messages that generate no completions. The completion of the next signaled work request covers
// them, too. So a short message costs its sender no wake-up, and its peer usually no separate acknowledgement.
type unsignaled struct{ bytes, wrs int }

// maxQuiet bounds the messages in unsignaled, and their size.
const maxQuiet = 16

// mayBeQuiet reports whether a message of n bytes may be unsignaled: it is short, and all unsignaled messages hold at
// most a quarter of the ring and of the work requests. So a writer that waits for room waits for a signaled message.
func (s *sender) mayBeQuiet(n, depth int) bool {
	q := s.quiet
	return n <= lowWater && q.wrs < min(maxQuiet, (depth-ctrlReserve)/4) && q.bytes+n <= s.buffer/4
}

// takeQuiet returns and resets the count of unsignaled messages, which the completion of
// the next work request covers.
func (s *sender) takeQuiet() (q unsignaled) {
	q, s.quiet = s.quiet, unsignaled{}
	return q
}

// room returns the number of bytes that one message may carry now. It returns 0 until there is
// room for lowWater bytes, or for all of want: otherwise data would be divided into very small
// messages.
func (s *sender) room(want int) int {
	n := min(want, maxMessage)
	if s.wrs == 0 || s.seq == s.allowed || s.free < min(n, lowWater) {
		return 0
	}
	return min(n, s.free, s.buffer-s.at, int(min(s.halves[s.half].length, maxMessage)))
}

// take takes room for a message of n bytes. It returns the place of the data
// in the ring and the destination in the peer's buffer.
func (s *sender) take(n int) (at int, to extent) {
	h := &s.halves[s.half]
	to = *h
	h.addr += uint64(n)
	h.length -= uint32(n)
	if h.length == 0 {
		s.half = (s.half + 1) % halves
	}
	s.seq++
	return s.hold(n), to
}

// hold takes n bytes of the ring and a work request, for data without credits
// of the peer.
func (s *sender) hold(n int) (at int) {
	at = s.at
	s.at = (s.at + n) % s.buffer
	s.free -= n
	s.wrs--
	return at
}

// sent frees n bytes and the work requests of completed messages.
func (s *sender) sent(n, wrs int) {
	s.free += n
	s.wrs += wrs
}

// announced handles a new entry of the table of halves. The peer fills the
// entries in turn, beginning with the second, because the handshake carried the
// first.
func (s *sender) announced(e extent) {
	s.halves[s.slot] = e
	s.slot = (s.slot + 1) % halves
}

// receiver tracks the data that has arrived, and the room to grant to the peer. The
// peer fills the early buffer first, and then the halves of the receive buffer in
// turn.
type receiver struct {
	buffer  int // size of the receive buffer, two halves
	depth   int // posted receives, the number of messages that the peer may send
	early   int // unread bytes of the early buffer
	at      int // place in the receive buffer of the next byte to read after those
	granted int // bytes that the peer may still send
	ready   int // bytes that can be granted: read, or never used
	offer   int // place of those bytes
	slot    int // entry of the peer's table for the next half
	slots   int

	read  uint16   // messages read, modulo 2^16
	renew uint16   // value of read at which the peer gets a new limit
	inbox messages // arrived messages
}

// arrived records a message of n bytes and reports whether the peer was allowed
// to send it.
func (r *receiver) arrived(n uint32) bool {
	if int64(n) > int64(r.granted) || r.inbox.lengths.Len() > r.depth {
		return false
	}
	r.granted -= int(n)
	r.inbox.push(n)
	return true
}

// next returns the number of contiguous bytes that can be read, at most limit. They
// are in the early buffer while it has unread bytes, otherwise at r.at.
func (r *receiver) next(limit int) (n int) {
	if r.early > 0 {
		return min(limit, r.inbox.bytes, r.early)
	}
	return min(limit, r.inbox.bytes, r.buffer-r.at)
}

// consume records that n bytes have been read. When the early buffer is read, its
// entry of the peer's table is free for the second half.
func (r *receiver) consume(n int) {
	r.read += uint16(r.inbox.pop(n))
	if r.early > 0 {
		k := min(n, r.early)
		if n, r.early = n-k, r.early-k; r.early == 0 {
			r.ready += r.buffer / halves
		}
	}
	r.at = (r.at + n) % r.buffer
	r.ready += n
}

// due reports whether there is enough new room to announce: a half of the
// buffer, or half of the messages.
func (r *receiver) due() bool {
	return r.ready >= r.buffer/halves || int16(r.read-r.renew) >= 0
}

// grant returns the new limit of messages and, if a half of the buffer is
// free, the half to announce and its entry.
func (r *receiver) grant() (limit uint16, half bool, offset, slot int) {
	r.renew = r.read + uint16(r.depth/2)
	limit = r.read + uint16(r.depth)
	size := r.buffer / halves
	if r.ready < size {
		return limit, false, 0, 0
	}
	offset, slot = r.offer, r.slot
	r.ready -= size
	r.granted += size
	r.offer = (r.offer + size) % r.buffer
	r.slot = (r.slot + 1) % r.slots
	return limit, true, offset, slot
}

// messages has the lengths of unread messages, at most as many as there are receives.
type messages struct {
	lengths fifo.Queue[uint32]
	bytes   int
}

func (m *messages) push(n uint32) {
	*m.lengths.Push() = n
	m.bytes += int(n)
}

// pop takes n bytes and returns the number of messages that are then
// completely read.
func (m *messages) pop(n int) (done int) {
	m.bytes -= n
	for m.lengths.Len() > 0 {
		first := m.lengths.At(0)
		if uint32(n) < *first {
			*first -= uint32(n)
			break
		}
		n -= int(*first)
		m.lengths.Pop()
		done++
	}
	return done
}
