package qp

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
)

// TestRing: a queue that grows while it wraps keeps its entries and their lists, in order.
func TestRing(t *testing.T) {
	for _, limit := range []int{1, 2, 8, 64} {
		for start := range uint32(70) {
			q := newRecvQueue(limit, 3)
			if q.cap() != limit || !q.empty() || len(q.slots) != 0 {
				t.Fatalf("new queue of %d: %+v", limit, q)
			}
			var out inUse
			next := uint64(0)
			q.head, q.tail = start, start
			list := func(i uint64) []mr.SGE { // long ones come late
				n := i % 2
				if i >= uint64(limit)/2 {
					n = i % 4
				}
				return []mr.SGE{{Addr: i, Length: 1}, {Addr: i, Length: 2}, {Addr: i, Length: 3}}[:n]
			}
			for i := range uint64(3 * limit) {
				q.push(i, list(i))
				if q.len() < q.cap() && i%5 != 0 {
					continue
				}
				if out.take(&q); out.id != next || !slices.Equal(out.list(), list(next)) {
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

// TestSendQueue: the parts of a work request stay together while the queue grows and wraps.
func TestSendQueue(t *testing.T) {
	for _, limit := range []int{1, 2, 8, 64} {
		for start := range uint32(70) {
			q := newSendQueue(limit, 3, 5)
			q.head, q.tail = start, start
			next := 0
			for i := range 4 * limit {
				w := q.next()
				w.id = uint64(i)
				sg := make([]mr.SGE, i%4)
				for k := range sg {
					sg[k].Addr = uint64(10*i + k)
				}
				q.setList(w, sg)
				q.setInline(w, bytes.Repeat([]byte{byte(i)}, i%6))
				if i >= limit/2 { // made late
					q.rest(w).compare = uint64(i)
				}
				q.tail++
				if !q.full() && i%5 != 0 {
					continue
				}
				w = q.at(q.head)
				list := q.list(w)
				if w.id != uint64(next) || len(list) != next%4 {
					t.Fatalf("limit %d, start %d: ID %d with %d elements, want %d with %d", limit, start, w.id, len(list), next, next%4)
				}
				for k := range list {
					if list[k].Addr != uint64(10*next+k) {
						t.Fatalf("element %d of %d is %+v", k, next, list[k])
					}
				}
				if w.inline > 0 && !bytes.Equal(q.inlined(w), bytes.Repeat([]byte{byte(next)}, next%6)) {
					t.Fatalf("inline data of %d is %v", next, q.inlined(w))
				}
				if next >= limit/2 && q.rest(w).compare != uint64(next) {
					t.Fatalf("the rest of %d is %+v", next, q.rest(w))
				}
				q.head++
				next++
			}
		}
	}
	if n := unsafe.Sizeof(sendWQE{}); n != 64 {
		t.Errorf("a work request has %d bytes, a cache line is 64", n)
	}
	if n := unsafe.Sizeof(QP{}); n > 1024 && unsafe.Sizeof(n) == 8 {
		t.Errorf("a queue pair has %d bytes, so 1152 are allocated, not 1024", n)
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
