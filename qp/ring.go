package qp

import "math/bits"

// ring is the memory of a bounded queue. It starts empty and doubles when it is full, up to
// its limit: most queue pairs of a server are idle and need no memory.
type ring[T any] struct {
	slots []T    // a power of two, or none
	limit uint32 // the same
	head  uint32 // the oldest entry, of a ring that is a queue
}

// firstSlots is the size of a ring after its first use.
const firstSlots = 8

// ringSize rounds up to a power of two, so that indices can wrap by masking.
func ringSize(n int) int {
	if n <= 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}

func newRing[T any](limit int) ring[T] { return ring[T]{limit: uint32(ringSize(limit))} }

// cap is how many entries there may be.
func (r *ring[T]) cap() int { return int(r.limit) }

// at is slot i, of those in use or reserved.
func (r *ring[T]) at(i uint32) *T { return &r.slots[i&uint32(len(r.slots)-1)] }

// grow doubles the slots and returns the new ones; all of the old ones, [head, head+n), are
// in use. At the limit it returns none.
func (r *ring[T]) grow(head uint32) (fresh []*T) {
	n := len(r.slots)
	if n == r.cap() {
		return nil
	}
	old := *r
	r.slots = make([]T, min(max(2*n, firstSlots), r.cap()))
	for i := range uint32(n) {
		*r.at(head + i) = *old.at(head + i)
	}
	for i := n; i < len(r.slots); i++ {
		fresh = append(fresh, r.at(head+uint32(i)))
	}
	return fresh
}
