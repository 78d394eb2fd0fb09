package rsocket

import (
	"io"
	"sync"
)

// copyBuffers are the buffers of ReadFrom and WriteTo, for a message each. Without them the
// stream's own buffers would be locked while the other side reads or writes, which may take any
// time.
var copyBuffers = sync.Pool{New: func() any { return new([maxMessage]byte) }}

// WriteTo writes everything that it reads to w, until io.EOF. While w writes, other
// calls go on: Close does not wait for w. Data that w does not take is lost.
func (c *Conn) WriteTo(w io.Writer) (total int64, err error) {
	b := copyBuffers.Get().(*[maxMessage]byte)
	defer copyBuffers.Put(b)
	return io.CopyBuffer(w, struct{ io.Reader }{c}, b[:])
}

// ReadFrom sends what it reads from r until io.EOF. While r reads, other calls go on:
// Close does not wait for r.
func (c *Conn) ReadFrom(r io.Reader) (total int64, err error) {
	b := copyBuffers.Get().(*[maxMessage]byte)
	defer copyBuffers.Put(b)
	return io.CopyBuffer(struct{ io.Writer }{c}, r, b[:])
}
