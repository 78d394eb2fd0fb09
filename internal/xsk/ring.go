// Package xsk is a thin layer over the kernel's AF_XDP socket: four rings in shared memory, the memory of the frames
// (UMEM), and the socket calls. Package xdp implements a link.Port with it.
//
//	            user                         kernel
//	Fill        Producer  -- chunks to fill --->
//	RX          Consumer  <-- frames ----------
//	TX          Producer  -- frames ----------->
//	Completion  Consumer  <-- chunks sent -----
//
// The rings and the frame pools are plain memory and build everywhere; sockets need Linux.
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

// Continued in Desc.Options says that the frame continues in the next descriptor (XDP_PKT_CONTD).
const Continued = 1

// needWakeup in a ring's flags requests a system call (XDP_RING_NEED_WAKEUP).
const needWakeup = 1

// ring has the parts that both ends of a ring share. Indexes count up and wrap around at 2^32; an entry is at its index
// modulo the size, which is a power of two.
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

// NeedWakeup reports whether the kernel needs a system call to look at the ring.
func (r *ring[T]) NeedWakeup() bool { return atomic.LoadUint32(r.flags)&needWakeup != 0 }

// Size returns the number of entries.
func (r *ring[T]) Size() uint32 { return r.mask + 1 }

// Producer is the writing end of a ring. It belongs to one goroutine at a time.
type Producer[T any] struct {
	ring[T]
	next uint32 // entries before it are written
	done uint32 // entries before it were consumed at the last look
}

// NewProducer returns the writing end of a ring in shared memory. The length of entries is a power of two.
func NewProducer[T any](producer, consumer, flags *uint32, entries []T) Producer[T] {
	return Producer[T]{
		ring: ring[T]{producer, consumer, flags, entries, uint32(len(entries) - 1)},
		next: atomic.LoadUint32(producer), done: atomic.LoadUint32(consumer),
	}
}

// Free returns how many entries there is room for. It reads the shared consumer index only if there is room for fewer
// than want.
func (r *Producer[T]) Free(want uint32) uint32 {
	n := r.Size() - (r.next - r.done)
	if n < want {
		r.done = atomic.LoadUint32(r.consumer)
		n = r.Size() - (r.next - r.done)
	}
	return n
}

// Put writes the next entry and returns its index. There must be room. The kernel sees the entry after Submit.
func (r *Producer[T]) Put(v T) (index uint32) {
	index = r.next
	r.entries[index&r.mask] = v
	r.next++
	return index
}

// Submit publishes all entries of Put.
func (r *Producer[T]) Submit() {
	order.Sent()
	atomic.StoreUint32(r.producer, r.next)
}

// Consumed returns the index of the first entry that is not consumed.
func (r *Producer[T]) Consumed() uint32 {
	r.done = atomic.LoadUint32(r.consumer)
	return r.done
}

// Next returns the index of the entry that the next Put writes.
func (r *Producer[T]) Next() uint32 { return r.next }

// At returns the entry with an index. Put has written it, and it may not be consumed yet.
func (r *Producer[T]) At(index uint32) *T { return &r.entries[index&r.mask] }

// Consumer is the reading end of a ring. It belongs to one goroutine at a time.
type Consumer[T any] struct {
	ring[T]
	next uint32 // entries before it are released
	seen uint32 // entries before it were produced at the last look
}

// NewConsumer returns the reading end of a ring in shared memory. The length of entries is a power of two.
func NewConsumer[T any](producer, consumer, flags *uint32, entries []T) Consumer[T] {
	return Consumer[T]{
		ring: ring[T]{producer, consumer, flags, entries, uint32(len(entries) - 1)},
		next: atomic.LoadUint32(consumer), seen: atomic.LoadUint32(producer),
	}
}

// Ready returns the number of readable entries. It reads the shared producer index only if there are fewer than want.
func (r *Consumer[T]) Ready(want uint32) uint32 {
	n := r.seen - r.next
	if n < want {
		r.seen = atomic.LoadUint32(r.producer)
		order.Received()
		n = r.seen - r.next
	}
	// The shared word may be wrong, so limit the number to the size of the ring.
	return min(n, r.Size())
}

// Get returns the entry i places after the first unreleased one.
func (r *Consumer[T]) Get(i uint32) *T { return &r.entries[(r.next+i)&r.mask] }

// Release gives the first n entries back to the kernel.
func (r *Consumer[T]) Release(n uint32) {
	r.next += n
	atomic.StoreUint32(r.consumer, r.next)
}
