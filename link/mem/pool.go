package mem

import "sync"

// buf is room for one frame. It has exactly one owner at a time: the pool, a
// sender's cache, a sender's pending list, a receiver's queue, or a receiver's
// held list.
type buf struct {
	b []byte // the whole room
	n int    // bytes of the frame in it
}

func (f *buf) data() []byte { return f.b[:f.n:f.n] }

// pool recycles the buffers of a switch. It grows to the capacity of queues
// and batches; from then on nothing is allocated.
type pool struct {
	size int

	mu   sync.Mutex
	free []*buf // guarded by mu
}

// take appends n buffers to dst.
func (p *pool) take(dst []*buf, n int) []*buf {
	p.mu.Lock()
	k := min(n, len(p.free))
	at := len(p.free) - k
	dst = append(dst, p.free[at:]...)
	clear(p.free[at:])
	p.free = p.free[:at]
	p.mu.Unlock()
	for range n - k {
		dst = append(dst, &buf{b: make([]byte, p.size)})
	}
	return dst
}

// give takes buffers back.
func (p *pool) give(bufs []*buf) {
	p.mu.Lock()
	p.free = append(p.free, bufs...)
	p.mu.Unlock()
}
