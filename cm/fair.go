package cm

import (
	"container/heap"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// fairQueue holds half-open entries: requests that the owner has not answered, and
// connections that the peer has not confirmed. Its owner bounds it. When there is no room for a
// new entry, the source that holds most loses its oldest one, if the source of the new entry
// holds less. So a flood from one source displaces itself, and in a flood from many sources
// the newest request is always admitted.
//
// The zero value is empty.
type fairQueue struct {
	sources map[bth.GID]*share
	order   shareHeap
	n       int
	arrived uint64
}

// share has the entries of one source, oldest first.
type share struct {
	source      bth.GID
	first, last *place
	n           int
	pos         int // in the heap
}

// place is an entry of a fairQueue. The zero value with an owner is in no
// queue.
type place struct {
	owner      evictable
	share      *share // nil: in no queue
	prev, next *place
	nth        uint64 // number of earlier entries
}

// evictable is the owner of places. evict ends it, so that its places become
// free.
type evictable interface{ evict(now mono.Time) }

// SourceOf returns the source of a peer's address: an IPv4 address is one source,
// and so is the /64 of an IPv6 address, because one host can use all addresses of
// a /64.
func SourceOf(g bth.GID) bth.GID {
	if !g.Is4() {
		clear(g[8:])
	}
	return g
}

// add enters p for a source.
func (q *fairQueue) add(p *place, source bth.GID) {
	s := q.sources[source]
	if s == nil {
		if q.sources == nil {
			q.sources = map[bth.GID]*share{}
		}
		s = &share{source: source}
		q.sources[source] = s
	}
	p.share, p.prev, p.next, p.nth = s, s.last, nil, q.arrived
	if s.last == nil {
		s.first = p
	} else {
		s.last.next = p
	}
	s.last = p
	q.arrived++
	q.n++
	if s.n++; s.n == 1 {
		heap.Push(&q.order, s)
	} else {
		heap.Fix(&q.order, s.pos)
	}
}

// remove removes p, if it is in the queue.
func (q *fairQueue) remove(p *place) {
	s := p.share
	if s == nil {
		return
	}
	if p.prev == nil {
		s.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		s.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.share, p.prev, p.next = nil, nil, nil
	q.n--
	if s.n--; s.n == 0 {
		heap.Remove(&q.order, s.pos)
		delete(q.sources, s.source)
	} else {
		heap.Fix(&q.order, s.pos)
	}
}

// makeRoom evicts an entry for a new one of a source and returns true. It returns false if
// that source has its share. A source that holds nothing displaces an entry of any source. A
// source with entries displaces one only of a source that still holds more without it:
// otherwise two sources would displace each other again and again.
func (q *fairQueue) makeRoom(now mono.Time, source bth.GID) bool {
	if q.n == 0 {
		return false
	}
	most, own := q.order[0], 0
	if s := q.sources[source]; s != nil {
		own = s.n
	}
	if own > 0 && most.n <= own+1 {
		return false
	}
	most.first.owner.evict(now)
	return true
}

// shareHeap is a heap of sources. The first is the source that holds most entries; of several
// such sources the one with the oldest entry.
type shareHeap []*share

func (h shareHeap) Len() int { return len(h) }
func (h shareHeap) Less(i, j int) bool {
	if h[i].n != h[j].n {
		return h[i].n > h[j].n
	}
	return h[i].first.nth < h[j].first.nth
}
func (h shareHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].pos, h[j].pos = i, j }
func (h *shareHeap) Push(s any)   { s.(*share).pos = len(*h); *h = append(*h, s.(*share)) }
func (h *shareHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}
