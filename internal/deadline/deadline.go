// Package deadline has a heap of deadlines. Package nic uses it for queue pairs, package cm for connections.
package deadline

import "github.com/goroce/roce/mono"

// Heap orders the owners of timers by deadline. It is intrusive: a [Timer] knows its place, so moving a timer needs
// no search and no allocation. The zero value is empty.
type Heap[T any] []entry[T]

// entry has a copy of the deadline, so that comparing entries does not read their owners: with thousands of owners
// most are not in the cache.
type entry[T any] struct {
	at    mono.Time
	timer *Timer
	owner T
}

// Timer is a deadline that at most one heap holds. An idle timer is the zero value.
type Timer struct {
	At  mono.Time // read only
	pos int       // place in the heap, from 1; 0: in none
}

// Next returns the earliest deadline, mono.Never if there is none.
func (h Heap[T]) Next() mono.Time {
	if len(h) == 0 {
		return mono.Never
	}
	return h[0].at
}

// Due returns the owner of the earliest deadline if that has come. Otherwise ok is false.
func (h Heap[T]) Due(now mono.Time) (owner T, ok bool) {
	if len(h) == 0 || now < h[0].at {
		return owner, false
	}
	return h[0].owner, true
}

// Pop is Due, and stops the timer.
func (h *Heap[T]) Pop(now mono.Time) (owner T, ok bool) {
	if owner, ok = h.Due(now); ok {
		h.Set((*h)[0].timer, owner, mono.Never)
	}
	return owner, ok
}

// Set starts the timer of an owner, or moves it; mono.Never stops it.
func (h *Heap[T]) Set(t *Timer, owner T, at mono.Time) {
	i := t.pos - 1
	switch {
	case i < 0 && at == mono.Never, i >= 0 && t.At == at:
	case i < 0:
		*h = append(*h, entry[T]{})
		h.place(len(*h)-1, entry[T]{at, t, owner})
	case at == mono.Never:
		last := len(*h) - 1
		end := (*h)[last]
		(*h)[last] = entry[T]{}
		*h = (*h)[:last]
		if *t = (Timer{}); i != last {
			h.place(i, end)
		}
	default:
		h.place(i, entry[T]{at, t, owner})
	}
}

// place puts e into place i, or into the place above or below that the order requires.
func (h Heap[T]) place(i int, e entry[T]) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= e.at {
			break
		}
		h.put(i, h[parent])
		i = parent
	}
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].at < h[child].at {
			child++
		}
		if child >= len(h) || h[child].at >= e.at {
			break
		}
		h.put(i, h[child])
		i = child
	}
	h.put(i, e)
}

func (h Heap[T]) put(i int, e entry[T]) {
	h[i] = e
	e.timer.At, e.timer.pos = e.at, i+1
}
