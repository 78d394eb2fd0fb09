package cm

import "github.com/goroce/roce/mono"

// queueKeep is how many slots an empty queue keeps after a peak.
const queueKeep = 256

// timer is a deadline that at most one heap holds. The zero value with an owner
// is idle.
type timer struct {
	at    mono.Time
	pos   int // index in the heap + 1, 0: not in it
	owner interface{ timeout(mono.Time) }
}

// timerHeap is a binary min-heap of deadlines in which each timer knows its place,
// so that ten thousand connections cost a few comparisons each time.
type timerHeap []*timer

func (h timerHeap) next() mono.Time {
	if len(h) == 0 {
		return mono.Never
	}
	return h[0].at
}

// due removes and returns the earliest timer if its deadline has come.
func (h *timerHeap) due(now mono.Time) *timer {
	if len(*h) == 0 || now.Before((*h)[0].at) {
		return nil
	}
	t := (*h)[0]
	h.stop(t)
	return t
}

// set starts t, or moves it.
func (h *timerHeap) set(t *timer, at mono.Time) {
	t.at = at
	if t.pos == 0 {
		*h = append(*h, t)
		t.pos = len(*h)
	}
	h.fix(t.pos - 1)
}

// stop removes t if it is in the heap.
func (h *timerHeap) stop(t *timer) {
	if t.pos == 0 {
		return
	}
	i, last := t.pos-1, len(*h)-1
	t.pos = 0
	moved := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	if i != last {
		h.place(moved, i)
		h.fix(i)
	}
}

func (h timerHeap) place(t *timer, i int) {
	h[i] = t
	t.pos = i + 1
}

// fix restores the order after the timer at i has changed.
func (h timerHeap) fix(i int) {
	t := h[i]
	for i > 0 {
		up := (i - 1) / 2
		if !t.at.Before(h[up].at) {
			break
		}
		h.place(h[up], i)
		i = up
	}
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].at.Before(h[down].at) {
			down++
		}
		if !h[down].at.Before(t.at) {
			break
		}
		h.place(h[down], i)
		i = down
	}
	h.place(t, i)
}
