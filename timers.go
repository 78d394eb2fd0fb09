package roce

import "github.com/goroce/roce/mono"

// timerHeap orders queue pairs by their next deadline. It is intrusive: a
// queue pair knows its place, so moving it costs no search and no allocation.
// A queue pair without a deadline is not in it.
type timerHeap []*QP

// next returns the earliest deadline.
func (h timerHeap) next() mono.Time {
	if len(h) == 0 {
		return mono.Never
	}
	return h[0].deadline
}

// due returns a queue pair whose deadline has come, or nil.
func (h timerHeap) due(now mono.Time) *QP {
	if len(h) == 0 || now < h[0].deadline {
		return nil
	}
	return h[0]
}

// set changes the deadline of a queue pair; mono.Never takes it out.
func (h *timerHeap) set(q *QP, at mono.Time) {
	if q.deadline == at {
		return
	}
	q.deadline = at
	if q.timer == 0 {
		*h = append(*h, q)
		q.timer = len(*h)
	}
	i := q.timer - 1
	if at == mono.Never {
		last := len(*h) - 1
		h.swap(i, last)
		(*h)[last] = nil
		*h = (*h)[:last]
		q.timer = 0
		if i == last {
			return
		}
	}
	h.up(i)
	h.down(i)
}

func (h timerHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer, h[j].timer = i+1, j+1
}

func (h timerHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].deadline <= h[i].deadline {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h timerHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].deadline < h[least].deadline {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
