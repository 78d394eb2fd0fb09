package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// sendWQE is a posted send work request with its place in the PSN space. What every
// packet of an RC queue pair needs comes first, a cache line: there may be thousands of
// them, and each is looked at when it is posted, sent and completed.
type sendWQE struct {
	id    uint64
	op    Opcode
	flags SendFlags
	fail  bool // building a packet, or executing it, failed: completes when it is the oldest
	fault mr.Fault
	done  bool // local operation: executed, and completes when it is the oldest

	length uint32
	first  bth.PSN // first and last PSN; a READ owns those of its responses, a local operation none
	last   bth.PSN
	rkey   bth.RKey
	sg     []mr.SGE
	addr   uint64

	inline []byte
	extra  uint32 // Imm or InvKey
	srqn   bth.SRQN

	// Valid only for the operations, or service types, that have them.
	swapAdd  uint64
	compare  uint64
	swapMask uint64 // or field boundary
	cmpMask  uint64
	ah       *frame.Path
	destQPN  bth.QPN
	destQKey bth.QKey
	local    localWQE

	_ [8]byte // three cache lines: the first is one in every slot
}

// signals reports whether a work request that succeeds delivers a completion.
func (q *QP) signals(w *sendWQE) bool { return w.flags&Signaled != 0 || q.signalAll }

// sendQueue is the ring of send work requests. Its indices only grow; head is
// the oldest not completed, cur the next to (re)transmit from, tail the next
// free.
type sendQueue struct {
	ring[sendWQE]
	head, cur, tail uint32
	sge, inline     int // elements and bytes a slot has room for
}

func newSendQueue(n, sge, inline int) sendQueue {
	return sendQueue{ring: newRing[sendWQE](n), sge: sge, inline: inline}
}

func (q *sendQueue) cap() int    { return q.limit }
func (q *sendQueue) empty() bool { return q.head == q.tail }
func (q *sendQueue) full() bool  { return int(q.tail-q.head) >= q.limit }

// next is the slot at the tail; there is room.
func (q *sendQueue) next() *sendWQE {
	if int(q.tail-q.head) == len(q.slots) {
		q.widen()
	}
	return q.at(q.tail)
}

func (q *sendQueue) widen() {
	fresh := q.grow(q.head)
	sges, data := make([]mr.SGE, len(fresh)*q.sge), make([]byte, len(fresh)*q.inline)
	for i, w := range fresh {
		w.sg = sges[i*q.sge : i*q.sge : (i+1)*q.sge]
		w.inline = data[i*q.inline : i*q.inline : (i+1)*q.inline]
	}
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
