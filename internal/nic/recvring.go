package nic

import (
	"sync/atomic"

	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// RecvRing is the memory of a [qp.RecvRing], which a front end may share with memory of C. The program adds a receive so: if the ring is
// open and not full, it writes slot Added, adds 1 to Added, and looks again whether the ring is open.
type RecvRing struct {
	*RecvRingState
	Slots []RecvSlot // as many as MaxRecvWR, rounded up to 2^k
}

// RecvRingState is the part of a [RecvRing] that both sides watch. It has no pointers.
type RecvRingState struct {
	Open  atomic.Uint32 // 1: outside RESET and ERR. The queue pair sets it
	Taken atomic.Uint32 // how many receives the queue pair has taken
	_     [14]uint32
	Added atomic.Uint32 // how many the program has added; the ring is full if they are as many as Slots more than Taken
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
	return &qp.RecvRing{Open: r.open, Len: r.Len, Next: r.next}
}

func (r *RecvRing) open(open bool) {
	var v uint32
	if open {
		v = 1
	}
	r.Open.Store(v)
}

// Len returns how many receives the program has added that the queue pair has not taken.
func (r *RecvRing) Len() int { return int(r.Added.Load() - r.Taken.Load()) }

func (r *RecvRing) next() (id uint64, sg [1]mr.SGE, elements int, ok bool) {
	at := r.Taken.Load()
	if at == r.Added.Load() {
		return 0, sg, 0, false
	}
	s := r.Slots[at&uint32(len(r.Slots)-1)]
	r.Taken.Store(at + 1) // the program may overwrite the slot
	return s.ID, s.SG, int(min(s.Elements, 1)), true
}
