package qp

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
)

// TestRing: a queue that grows while it wraps keeps what is in it, where it is.
func TestRing(t *testing.T) {
	for _, limit := range []int{1, 2, 8, 64} {
		for start := range uint32(70) {
			q := newRecvQueue(limit, 2)
			if q.cap() != limit || q.front() != nil || len(q.slots) != 0 {
				t.Fatalf("new queue of %d: %+v", limit, q)
			}
			var out recvWQE
			next := uint64(0)
			q.head, q.tail = start, start
			for i := range uint64(3 * limit) {
				q.push(i, i, []mr.SGE{{Length: uint32(i)}, {}})
				if w := q.at(q.tail - 1); cap(w.sg) != 2 {
					t.Fatalf("a slot has room for %d elements, want 2", cap(w.sg))
				}
				if q.len() < q.cap() && i%5 != 0 {
					continue
				}
				if q.pop(&out); out.id != next || out.sg[0].Length != uint32(next) {
					t.Fatalf("limit %d, start %d: %+v, want %d", limit, start, out, next)
				}
				next++
			}
			if len(q.slots) > limit {
				t.Errorf("%d slots, the limit is %d", len(q.slots), limit)
			}
		}
	}
}

// TestSavedRingGrows: the latest READs and atomics are found, however far the
// memory has grown.
func TestSavedRingGrows(t *testing.T) {
	var r savedRing
	r.resize(32)
	for i := range uint32(100) {
		psn := bth.PSN(i)
		*r.put() = saved{first: psn, last: psn, valid: true, value: uint64(i)}
		for back := range min(i+1, 32) {
			if s := r.find(bth.PSN(i - back)); s == nil || s.value != uint64(i-back) {
				t.Fatalf("after %d: %d is %+v", i, i-back, s)
			}
		}
		if i >= 32 && r.find(bth.PSN(i-32)) != nil {
			t.Fatalf("after %d: one too many is kept", i)
		}
	}
}
