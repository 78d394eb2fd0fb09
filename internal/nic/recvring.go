package nic

import (
	"sync/atomic"

	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// RecvRing is a [qp.RecvRing] in memory that a front end may share with a program of C. The program adds a receive so: if the ring is
// open and neither the ring nor the receive queue is full, it writes slot Added, adds 1 to Added, and looks again whether the ring is open. The ring is
// full if Added is as many as it has slots more than Taken, the receive queue if Added is MaxRecvWR more than Done.
type RecvRing struct {
	*RecvRingState
	Slots []RecvSlot // 2^k

	taken uint32 // the same as Taken, which the program might overwrite
}

// RecvRingState is the part of a [RecvRing] that both sides watch. It has no pointers.
type RecvRingState struct {
	Open  atomic.Uint32 // 1: outside RESET and ERR. The queue pair sets it
	Taken atomic.Uint32 // how many receives the queue pair has taken
	Done  atomic.Uint32 // how many receives have ended, less those that were posted with a call
	_     [13]uint32
	Added atomic.Uint32 // how many the program has added
	_     [15]uint32
}

// RecvSlot is a receive in a [RecvRing].
type RecvSlot struct {
	ID       uint64
	SG       [1]mr.SGE
	Elements uint32 // of SG: 0 or 1
	_        uint32
}

// engine returns the ring for the engine of the queue pair.
func (r *RecvRing) engine() *qp.RecvRing {
	return &qp.RecvRing{Open: r.open, Len: r.waiting, Next: r.next, Done: func(n int) { r.Done.Add(uint32(n)) }}
}

func (r *RecvRing) open(open bool) {
	var v uint32
	if open {
		v = 1
	}
	r.Open.Store(v)
}

// waiting is how many receives the program has added that the queue pair has not taken.
func (r *RecvRing) waiting() int { return int(min(r.Added.Load()-r.taken, uint32(len(r.Slots)))) }

func (r *RecvRing) next() (id uint64, sg [1]mr.SGE, elements int, ok bool) {
	switch n := r.Added.Load() - r.taken; {
	case n == 0:
		return 0, sg, 0, false
	case n > uint32(len(r.Slots)): // the program has overwritten the ring
		r.taken += n
		r.Taken.Store(r.taken)
		return 0, sg, 0, false
	}
	s := r.Slots[r.taken&uint32(len(r.Slots)-1)]
	r.taken++
	r.Taken.Store(r.taken) // the program may overwrite the slot
	return s.ID, s.SG, int(min(s.Elements, 1)), true
}
