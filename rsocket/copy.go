package rsocket

import (
	"io"
	"sync"
)

// copyBuffers are the buffers of ReadFrom and WriteTo, each for one message. Without them the
// stream's own buffers would be locked while the reader or writer runs, which may take any
// time.
var copyBuffers = sync.Pool{New: func() any { return new([maxMessage]byte) }}

// WriteTo reads until io.EOF and writes all data to w. Other calls can run while w
// writes: Close does not wait for w. Data that w does not accept is lost.
func (c *Conn) WriteTo(w io.Writer) (total int64, err error) {
	b := copyBuffers.Get().(*[maxMessage]byte)
	defer copyBuffers.Put(b)
	return io.CopyBuffer(w, struct{ io.Reader }{c}, b[:])
}

// ReadFrom reads from r until io.EOF and sends all data. Other calls can run while r
// reads: Close does not wait for r.
func (c *Conn) ReadFrom(r io.Reader) (total int64, err error) {
	b := copyBuffers.Get().(*[maxMessage]byte)
	defer copyBuffers.Put(b)
	return io.CopyBuffer(struct{ io.Writer }{c}, r, b[:])
}
