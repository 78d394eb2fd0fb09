package rsock

import (
	"math"
	"syscall"
	"unsafe"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/rsocket"
)

// maps is the memory of calls of riomap, by address. Memory that the peer may not write to has a nil mapping.
type maps map[unsafe.Pointer]*rsocket.Mapping

// ByAddress is the offset with which Map uses the address of the memory as its offset.
const ByAddress = -1

// Map is riomap. If write is set, the peer may write to the memory, and Map waits until it can announce it.
func (a *Sockets) Map(h abi.Handle, p unsafe.Pointer, length uint64, write bool, offset int64) (int64, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	if p == nil || length == 0 || length > math.MaxUint32 {
		return 0, syscall.EINVAL
	}
	c, err := s.stream()
	if err == syscall.EAGAIN {
		err = syscall.ENOTCONN
	}
	if err != nil {
		return 0, err
	}
	if offset == ByAddress {
		offset = int64(uintptr(p))
	}
	var m *rsocket.Mapping
	if write {
		if m, err = c.MapForeign(unsafe.Slice((*byte)(p), length), offset); err != nil {
			return 0, failure(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps[p] = m
	return offset, nil
}

// Unmap is riounmap.
func (a *Sockets) Unmap(h abi.Handle, p unsafe.Pointer) error {
	s, err := a.find(h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	m, ok := s.maps[p]
	delete(s.maps, p)
	s.mu.Unlock()
	switch {
	case !ok:
		return syscall.EINVAL
	case m == nil:
		return nil
	}
	return failure(m.Close())
}

// WriteAt is riowrite with MSG_DONTWAIT.
func (a *Sockets) WriteAt(h abi.Handle, p []byte, offset int64) (int, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	return s.out.attempt(func() (int, error) {
		c, err := s.stream()
		if err != nil {
			return 0, err
		}
		n, err := c.TryWriteAt(p, offset)
		return n, failure(err)
	})
}
