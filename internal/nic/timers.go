package nic

import "github.com/goroce/roce/mono"

// timerHeap orders queue pairs by their next deadline. It is intrusive: a queue pair knows
// its place, so moving it costs no search and no allocation. A queue pair without a deadline
// is not in the heap.
type timerHeap []timer

// timer is an entry of the heap. It has a copy of the deadline: comparing deadlines then reads
// no queue pair, which among thousands is in no cache.
type timer struct {
	at mono.Time
	q  *QP
}

// next returns the earliest deadline.
func (h timerHeap) next() mono.Time {
	if len(h) == 0 {
		return mono.Never
	}
	return h[0].at
}

// due returns a queue pair whose deadline has come, or nil.
func (h timerHeap) due(now mono.Time) *QP {
	if len(h) == 0 || now < h[0].at {
		return nil
	}
	return h[0].q
}

// set changes the deadline of a queue pair; mono.Never takes it out.
func (h *timerHeap) set(q *QP, at mono.Time) {
	if q.deadline == at {
		return
	}
	q.deadline = at
	i := q.timer - 1
	last := len(*h) - 1
	switch {
	case i < 0:
		i = len(*h)
		*h = append(*h, timer{})
	case at == mono.Never:
		end := (*h)[last]
		(*h)[last] = timer{}
		*h = (*h)[:last]
		q.timer = 0
		if i == last {
			return
		}
		at, q = end.at, end.q
	}
	h.down(h.up(i, at), timer{at, q})
}

// put puts a timer into place i.
func (h timerHeap) put(i int, t timer) {
	h[i] = t
	t.q.timer = i + 1
}

// up makes room for a deadline at place i or above, and returns where.
func (h timerHeap) up(i int, at mono.Time) int {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= at {
			break
		}
		h.put(i, h[parent])
		i = parent
	}
	return i
}

// down puts a timer into place i or below.
func (h timerHeap) down(i int, t timer) {
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].at < h[child].at {
			child++
		}
		if child >= len(h) || h[child].at >= t.at {
			h.put(i, t)
			return
		}
		h.put(i, h[child])
		i = child
	}
}
