package fault

import (
	"container/heap"
	"math"
	"slices"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// held is a packet that waits for its time.
type held struct {
	data  []byte
	env   frame.Envelope // receive: the envelope of frame, if it has one
	frame link.Frame     // receive: the frame that Recv returns
	path  *frame.Path    // transmit: argument of the next Begin
	n     int            // transmit: bytes of BTH..ICRC
	tag   uint64         // the tag that the user of an Engine gave to Handle
	raw   bool           // its ICRC is to stay wrong
	due   mono.Time      // released at this time at the latest
	after uint64         // released when holder.passed has this value
	seq   uint64         // order among equals
}

// noCount is a value of after that is never reached.
const noCount = math.MaxUint64

// holder keeps the packets of one direction that are held back. Its memory is
// recycled.
type holder struct {
	limit     int
	seq       uint64
	passed    uint64  // packets that were not held back, or have been released
	reordered []*held // in order of arrival
	timed     byDue
	free      []*held
}

// put copies a packet, or returns nil if there is no room.
func (h *holder) put(f *link.Frame, due mono.Time, after uint64) *held {
	if len(h.reordered)+len(h.timed) >= h.limit {
		return nil
	}
	var p *held
	if last := len(h.free) - 1; last >= 0 {
		p, h.free = h.free[last], h.free[:last]
	} else {
		p = new(held)
	}
	h.seq++
	*p = held{data: append(p.data[:0], f.Data...), due: due, after: after, seq: h.seq}
	p.frame = link.Frame{Data: p.data, Segment: f.Segment}
	if f.Env != nil {
		p.env = *f.Env
		p.frame.Env = &p.env
	}
	if after == noCount {
		heap.Push(&h.timed, p)
	} else {
		h.reordered = append(h.reordered, p)
	}
	return p
}

// next takes out a packet whose time has come; nil if there is none.
func (h *holder) next(now mono.Time) *held {
	for i, p := range h.reordered {
		if p.after <= h.passed || p.due <= now {
			h.reordered = slices.Delete(h.reordered, i, i+1)
			return p
		}
	}
	if len(h.timed) > 0 && h.timed[0].due <= now {
		return heap.Pop(&h.timed).(*held)
	}
	return nil
}

// back returns a packet from next that could not be released after all; it
// stays due.
func (h *holder) back(p *held) {
	p.due, p.after = math.MinInt64, noCount
	heap.Push(&h.timed, p)
}

// recycle takes back a packet from next.
func (h *holder) recycle(p *held) {
	p.path = nil
	h.free = append(h.free, p)
}

// due returns when next will return a packet, if no packet passes before.
func (h *holder) due() mono.Time {
	t := mono.Never
	for _, p := range h.reordered {
		if p.after <= h.passed {
			return math.MinInt64
		}
		t = min(t, p.due)
	}
	if len(h.timed) > 0 {
		t = min(t, h.timed[0].due)
	}
	return t
}

// byDue is a heap: earliest first, then in order of arrival.
type byDue []*held

func (q byDue) Len() int { return len(q) }
func (q byDue) Less(i, j int) bool {
	if q[i].due != q[j].due {
		return q[i].due < q[j].due
	}
	return q[i].seq < q[j].seq
}
func (q byDue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *byDue) Push(x any)   { *q = append(*q, x.(*held)) }
func (q *byDue) Pop() any {
	old := *q
	last := len(old) - 1
	p := old[last]
	old[last] = nil
	*q = old[:last]
	return p
}
