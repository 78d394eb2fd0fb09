package qp

import (
	"math/bits"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// sendWQE is a posted send work request with its place in the PSN space.
type sendWQE struct {
	id    uint64
	op    Opcode
	flags SendFlags
	fail  bool // building a packet, or executing it, failed: completes when it is the oldest
	fault mr.Fault

	length   uint32
	first    bth.PSN // first and last PSN; a READ owns those of its responses, a local operation none
	last     bth.PSN
	sg       []mr.SGE
	inline   []byte
	addr     uint64
	rkey     bth.RKey
	extra    uint32 // Imm or InvKey
	swapAdd  uint64
	compare  uint64
	swapMask uint64 // or field boundary
	cmpMask  uint64
	ah       *frame.Path
	destQPN  bth.QPN
	destQKey bth.QKey
	srqn     bth.SRQN
	local    localWQE
}

// sendQueue is the ring of send work requests. Its indices only grow; head is
// the oldest not completed, cur the next to (re)transmit from, tail the next
// free.
type sendQueue struct {
	slots           []sendWQE
	head, cur, tail uint32
}

// ringSize rounds up to a power of two, so that indices can wrap by masking.
func ringSize(n int) int {
	if n <= 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}

func newSendQueue(n, sge, inline int) sendQueue {
	n = ringSize(n)
	q := sendQueue{slots: make([]sendWQE, n)}
	sges := make([]mr.SGE, n*sge)
	data := make([]byte, n*inline)
	for i := range q.slots {
		q.slots[i].sg = sges[i*sge : i*sge : (i+1)*sge]
		q.slots[i].inline = data[i*inline : i*inline : (i+1)*inline]
	}
	return q
}

func (q *sendQueue) at(i uint32) *sendWQE { return &q.slots[i&uint32(len(q.slots)-1)] }
func (q *sendQueue) cap() int             { return len(q.slots) }
func (q *sendQueue) empty() bool          { return q.head == q.tail }
func (q *sendQueue) full() bool           { return int(q.tail-q.head) >= len(q.slots) }

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
