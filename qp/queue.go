package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// sendWQE is a posted send work request with its place in the PSN space. It is one cache
// line: there may be thousands of them, and each is read when it is posted, sent and
// completed. Rare fields that do not fit are in sendParts.
type sendWQE struct {
	id    uint64
	op    Opcode
	kind  opKind // of op: in most cases all that is needed of opTable
	flags SendFlags
	fail  bool   // building a packet, or executing it, failed: completes when it is the oldest
	done  bool   // local operation: executed, and completes when it is the oldest
	sges  uint8  // elements of the list: see sendQueue.list
	slot  uint16 // of its parts; the ring may move the work request when it grows

	length uint32
	first  bth.PSN // first and last PSN; a READ owns those of its responses, a local operation none
	last   bth.PSN
	rkey   bth.RKey
	addr   uint64

	sge    [1]mr.SGE // the scatter/gather list, if it has at most one element
	extra  uint32    // Imm or InvKey
	inline uint32    // bytes of inline data: see sendQueue.inlined
}

// sendRest has the fields that only some operations and service types need.
type sendRest struct {
	srqn     bth.SRQN
	swapAdd  uint64
	compare  uint64
	swapMask uint64 // or field boundary
	cmpMask  uint64
	args     *MaskedArgs // of a masked atomic of more than 8 bytes
	ah       *frame.Path
	destQPN  bth.QPN
	destQKey bth.QKey
	dcKey    uint64
	local    localWQE
	calc     Calc
}

// signals reports whether a work request that succeeds delivers a completion.
func (q *QP) signals(w *sendWQE) bool { return w.flags&Signaled != 0 || q.signalAll }

// sendQueue is the ring of send work requests. Its indices only grow, until it is empty;
// head is the oldest not completed, cur the next to (re)transmit from, tail the next
// free.
type sendQueue struct {
	ring[sendWQE]
	cur, tail       uint32
	maxSGE, maxData int32      // elements and inline bytes of a slot
	parts           *sendParts // nil: no work request has needed any
}

// sendParts has what does not fit into sendWQE, by slot. Each part is made when the first
// work request needs it.
type sendParts struct {
	lists longLists
	data  []byte // inline
	rests []sendRest
}

func newSendQueue(n, sge, inline int) sendQueue {
	return sendQueue{ring: newRing[sendWQE](n), maxSGE: int32(sge), maxData: int32(inline)}
}

func (q *sendQueue) empty() bool { return q.head == q.tail }
func (q *sendQueue) full() bool  { return q.tail-q.head >= q.limit }
func (q *sendQueue) room() int   { return int(q.limit) - int(q.tail-q.head) }

// next returns the slot at the tail. The caller has checked that there is room.
func (q *sendQueue) next() *sendWQE {
	switch int(q.tail - q.head) {
	case len(q.slots):
		q.widen()
	case 0:
		q.head, q.cur, q.tail = 0, 0, 0 // the slots used last are likely to be in a cache
	}
	return q.at(q.tail)
}

func (q *sendQueue) widen() {
	n := len(q.slots)
	for i, w := range q.grow(q.head) {
		w.slot = uint16(n + i)
	}
	p := q.parts
	if p == nil {
		return
	}
	p.lists.widen(len(q.slots), int(q.maxSGE))
	if p.data != nil {
		p.data = resized(p.data, len(q.slots)*int(q.maxData))
	}
	if p.rests != nil {
		p.rests = resized(p.rests, len(q.slots))
	}
}

// part returns the parts, and makes them if there are none.
func (q *sendQueue) part() *sendParts {
	if q.parts == nil {
		q.parts = new(sendParts)
	}
	return q.parts
}

// resized is a copy of s with n elements.
func resized[T any](s []T, n int) []T {
	more := make([]T, n)
	copy(more, s)
	return more
}

// longLists are the scatter/gather lists of a queue that have more than one element, by slot. Each has room for most
// elements: the limit of the queue. They are made for the first such list.
type longLists []mr.SGE

// put copies the list of a slot; there are so many slots.
func (l *longLists) put(slot, slots, most int, sg []mr.SGE) {
	if *l == nil {
		*l = make(longLists, slots*most)
	}
	copy((*l)[slot*most:], sg)
}

// at is the list of n elements of a slot.
func (l longLists) at(slot, most, n int) []mr.SGE { return l[slot*most:][:n] }

// widen makes room for so many slots.
func (l *longLists) widen(slots, most int) {
	if *l != nil {
		*l = resized(*l, slots*most)
	}
}

// setList copies a scatter/gather list into a slot.
func (q *sendQueue) setList(w *sendWQE, sg []mr.SGE) {
	w.sges = uint8(len(sg))
	switch len(sg) {
	case 0:
	case 1:
		w.sge[0] = sg[0]
	default:
		q.part().lists.put(int(w.slot), len(q.slots), int(q.maxSGE), sg)
	}
}

// list is the scatter/gather list of a work request.
func (q *sendQueue) list(w *sendWQE) []mr.SGE {
	if w.sges <= 1 {
		return w.sge[:w.sges]
	}
	return q.parts.lists.at(int(w.slot), int(q.maxSGE), int(w.sges))
}

// setInline copies inline data into a slot.
func (q *sendQueue) setInline(w *sendWQE, b []byte) {
	w.inline = uint32(len(b))
	if len(b) == 0 {
		return
	}
	p := q.part()
	if p.data == nil {
		p.data = make([]byte, len(q.slots)*int(q.maxData))
	}
	copy(p.data[int(w.slot)*int(q.maxData):], b)
}

// inlined is the inline data of a work request.
func (q *sendQueue) inlined(w *sendWQE) []byte {
	return q.parts.data[int(w.slot)*int(q.maxData):][:w.inline]
}

// rest returns the rare fields of a work request. They keep the values of an old work request until the caller sets
// them.
func (q *sendQueue) rest(w *sendWQE) *sendRest {
	p := q.part()
	if p.rests == nil {
		p.rests = make([]sendRest, len(q.slots))
	}
	return &p.rests[w.slot]
}

// cursor walks a scatter/gather list by message offset without starting over
// for every packet.
type cursor struct {
	i    int    // element
	base uint32 // message offset of its first byte
}

// seek moves to the element that holds message offset off.
func (c *cursor) seek(sg []mr.SGE, off uint32) {
	if off < c.base {
		*c = cursor{}
	}
	for c.i < len(sg) && off-c.base >= sg[c.i].Length {
		c.base += sg[c.i].Length
		c.i++
	}
}
