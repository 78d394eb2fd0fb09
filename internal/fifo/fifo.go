// Package fifo has a queue that reuses its memory.
package fifo

// Queue is a first-in first-out queue in a ring, which doubles when it is full. The zero
// value is empty and has no memory.
type Queue[T any] struct {
	slots []T // a power of two, or none
	head  uint32
	tail  uint32 // both only increase, and wrap
}

// firstSlots is the smallest size of a ring.
const firstSlots = 16

// Len returns the number of elements.
func (q *Queue[T]) Len() int { return int(q.tail - q.head) }

// Cap returns the number of elements that there is memory for.
func (q *Queue[T]) Cap() int { return len(q.slots) }

// At returns element i, counted from the oldest. It is valid until the queue changes.
func (q *Queue[T]) At(i int) *T { return q.slot(q.head + uint32(i)) }

// Last returns the youngest element, which there must be.
func (q *Queue[T]) Last() *T { return q.slot(q.tail - 1) }

func (q *Queue[T]) slot(i uint32) *T { return &q.slots[i&uint32(len(q.slots)-1)] }

// Push appends a zero element and returns it, to be filled in.
func (q *Queue[T]) Push() *T {
	q.reserve()
	q.tail++
	return q.Last()
}

// PushFront is Push at the other end: the element becomes the oldest.
func (q *Queue[T]) PushFront() *T {
	q.reserve()
	q.head--
	return q.slot(q.head)
}

// reserve makes room for one more element.
func (q *Queue[T]) reserve() {
	n := q.Len()
	if n < q.Cap() {
		return
	}
	bigger := make([]T, max(firstSlots, 2*n))
	for i := range n {
		bigger[i] = *q.At(i)
	}
	q.slots, q.head, q.tail = bigger, 0, uint32(n)
}

// Pop removes the oldest element and returns it. ok is false if there is none.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if q.head == q.tail {
		return v, false
	}
	var zero T
	s := q.slot(q.head)
	v, *s = *s, zero
	q.head++
	return v, true
}

// DeleteFunc removes the elements that match and keeps the order of the others.
func (q *Queue[T]) DeleteFunc(match func(T) bool) {
	var zero T
	kept := q.head
	for i := q.head; i != q.tail; i++ {
		v := *q.slot(i)
		*q.slot(i) = zero
		if !match(v) {
			*q.slot(kept) = v
			kept++
		}
	}
	q.tail = kept
}

// Release frees the memory of an empty queue with more than keep slots. It is for queues that are long only at
// peaks.
func (q *Queue[T]) Release(keep int) {
	if q.head == q.tail && q.Cap() > keep {
		*q = Queue[T]{}
	}
}
