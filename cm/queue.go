package cm

import "github.com/goroce/roce/mono"

// ring is a FIFO that reuses its memory and returns it when it ran empty after a
// peak. The zero value is empty.
type ring[T any] struct {
	buf  []T
	head int
	n    int
}

// ringKeep is the size up to which an empty ring keeps its memory.
const ringKeep = 256

func (r *ring[T]) len() int { return r.n }

// push appends a zero or left-over element and returns it to be overwritten.
func (r *ring[T]) push() *T {
	if r.n == len(r.buf) {
		bigger := make([]T, max(16, 2*len(r.buf)))
		k := copy(bigger, r.buf[r.head:])
		copy(bigger[k:], r.buf[:r.head])
		r.buf, r.head = bigger, 0
	}
	r.n++
	return r.last()
}

// last returns the element pushed last.
func (r *ring[T]) last() *T { return &r.buf[(r.head+r.n-1)%len(r.buf)] }

func (r *ring[T]) pop() (v T, ok bool) {
	if r.n == 0 {
		return v, false
	}
	var zero T
	v, r.buf[r.head] = r.buf[r.head], zero
	r.head = (r.head + 1) % len(r.buf)
	r.n--
	if r.n == 0 && len(r.buf) > ringKeep {
		r.buf, r.head = nil, 0
	}
	return v, true
}

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
