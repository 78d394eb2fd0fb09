// Package xsk is the kernel's AF_XDP socket as it is: four rings in shared
// memory, the memory the frames are in (UMEM), and the socket calls around them.
// Package xdp makes a link.Port of it.
//
//	            user                         kernel
//	Fill        Producer  -- chunks to fill --->
//	RX          Consumer  <-- frames ----------
//	TX          Producer  -- frames ----------->
//	Completion  Consumer  <-- chunks sent -----
//
// The rings and the frame pools are plain memory and build everywhere; sockets
// are Linux's.
package xsk

import (
	"sync/atomic"

	"github.com/goroce/roce/internal/order"
)

// Desc describes a frame, or a piece of one, in the RX and TX rings (struct
// xdp_desc).
type Desc struct {
	Addr    uint64 // offset in the UMEM
	Len     uint32
	Options uint32 // Continued
}

// Continued in Desc.Options says that the frame goes on in the next descriptor
// (XDP_PKT_CONTD).
const Continued = 1

// needWakeup in a ring's flags asks for a system call (XDP_RING_NEED_WAKEUP).
const needWakeup = 1

// ring is what both ends of a ring have. Indexes count up and wrap around at
// 2^32; an entry is at its index modulo the size, which is a power of two.
//
// The kernel's rules of order (net/xdp/xsk_queue.h) are: the producer writes the entries and
// then stores the producer index with release order; the consumer loads that index with
// acquire order, reads the entries and then stores the consumer index with release order. The
// loads and stores of sync/atomic are at least that strong.
type ring[T any] struct {
	producer, consumer, flags *uint32
	entries                   []T
	mask                      uint32
}

// NeedWakeup reports whether the kernel waits to be told of what is in the ring.
func (r *ring[T]) NeedWakeup() bool { return atomic.LoadUint32(r.flags)&needWakeup != 0 }

// Size returns the number of entries.
func (r *ring[T]) Size() uint32 { return r.mask + 1 }

// Producer is the end of a ring that entries are put in. It belongs to one
// goroutine at a time.
type Producer[T any] struct {
	ring[T]
	next uint32 // entries before it are written
	done uint32 // entries before it were consumed when we looked last
}

// NewProducer returns the end of a ring in shared memory. The length of entries
// is a power of two.
func NewProducer[T any](producer, consumer, flags *uint32, entries []T) Producer[T] {
	return Producer[T]{
		ring: ring[T]{producer, consumer, flags, entries, uint32(len(entries) - 1)},
		next: atomic.LoadUint32(producer), done: atomic.LoadUint32(consumer),
	}
}

// Free returns how many entries can be put in, and looks at what was consumed
// only when that is fewer than want.
func (r *Producer[T]) Free(want uint32) uint32 {
	n := r.Size() - (r.next - r.done)
	if n < want {
		r.done = atomic.LoadUint32(r.consumer)
		n = r.Size() - (r.next - r.done)
	}
	return n
}

// Put writes the next entry, for which there must be room, and returns its index.
// The kernel sees it after Submit.
func (r *Producer[T]) Put(v T) (index uint32) {
	index = r.next
	r.entries[index&r.mask] = v
	r.next++
	return index
}

// Submit publishes everything that was put in.
func (r *Producer[T]) Submit() {
	order.Sent()
	atomic.StoreUint32(r.producer, r.next)
}

// Consumed returns the index of the first entry that is not consumed.
func (r *Producer[T]) Consumed() uint32 {
	r.done = atomic.LoadUint32(r.consumer)
	return r.done
}

// Next returns the index of the entry that is put in next.
func (r *Producer[T]) Next() uint32 { return r.next }

// At is the entry of an index that was put in and may not be consumed.
func (r *Producer[T]) At(index uint32) *T { return &r.entries[index&r.mask] }

// Consumer is the end of a ring that entries are taken out of. It belongs to one
// goroutine at a time.
type Consumer[T any] struct {
	ring[T]
	next uint32 // entries before it are released
	seen uint32 // entries before it were produced when we looked last
}

// NewConsumer returns the end of a ring in shared memory. The length of entries
// is a power of two.
func NewConsumer[T any](producer, consumer, flags *uint32, entries []T) Consumer[T] {
	return Consumer[T]{
		ring: ring[T]{producer, consumer, flags, entries, uint32(len(entries) - 1)},
		next: atomic.LoadUint32(consumer), seen: atomic.LoadUint32(producer),
	}
}

// Ready returns how many entries there are to take, and looks for new ones only
// when there are fewer than want.
func (r *Consumer[T]) Ready(want uint32) uint32 {
	n := r.seen - r.next
	if n < want {
		r.seen = atomic.LoadUint32(r.producer)
		order.Received()
		n = r.seen - r.next
	}
	// Whatever the shared word says, no more than the ring has.
	return min(n, r.Size())
}

// Get is the entry i places behind the first that is not released.
func (r *Consumer[T]) Get(i uint32) *T { return &r.entries[(r.next+i)&r.mask] }

// Release gives the first n entries back to the kernel.
func (r *Consumer[T]) Release(n uint32) {
	r.next += n
	atomic.StoreUint32(r.consumer, r.next)
}
