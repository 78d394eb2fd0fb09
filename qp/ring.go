package qp

import "math/bits"

// ring is the memory of a bounded queue. It begins empty and doubles when it is full, up to
// its limit: most queue pairs of a server are idle, and those that work soon have what they
// need.
type ring[T any] struct {
	slots []T // a power of two, or none
	limit int // the same
}

// firstSlots is the size of a ring that is used at all.
const firstSlots = 8

// ringSize rounds up to a power of two, so that indices can wrap by masking.
func ringSize(n int) int {
	if n <= 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}

func newRing[T any](limit int) ring[T] { return ring[T]{limit: ringSize(limit)} }

// at is slot i, of those in use or reserved.
func (r *ring[T]) at(i uint32) *T { return &r.slots[i&uint32(len(r.slots)-1)] }

// grow makes the slots twice as many, given that all of them, [head, head+n),
// are in use, and returns the new ones. There are none at the limit.
func (r *ring[T]) grow(head uint32) (fresh []*T) {
	n := len(r.slots)
	if n == r.limit {
		return nil
	}
	old := *r
	r.slots = make([]T, min(max(2*n, firstSlots), r.limit))
	for i := range uint32(n) {
		*r.at(head + i) = *old.at(head + i)
	}
	for i := n; i < len(r.slots); i++ {
		fresh = append(fresh, r.at(head+uint32(i)))
	}
	return fresh
}
