package rsock

import (
	"encoding/binary"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// signal keeps an eventfd readable while a call may succeed. It makes a system call only when that changes, so a
// program that never waits makes none.
type signal struct {
	fd int

	mu     sync.Mutex
	on     bool
	closed bool
}

// set makes the descriptor readable.
func (s *signal) set() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on || s.closed {
		return
	}
	s.on = true
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	unix.Write(s.fd, one[:])
}

// clear makes it unreadable. The caller must try the call once more afterwards: data that came before clear set
// no signal.
func (s *signal) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on || s.closed {
		return
	}
	s.on = false
	var count [8]byte
	unix.Read(s.fd, count[:])
}

// close makes it readable for good, and forgets the descriptor.
func (s *signal) close() {
	s.set()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// attempt makes a call of the direction of s. If it returns EAGAIN, the descriptor is unreadable until another
// try may succeed.
func (s *signal) attempt(try func() (int, error)) (int, error) {
	n, err := try()
	if err != syscall.EAGAIN {
		return n, err
	}
	s.clear()
	if n, err = try(); err != syscall.EAGAIN {
		s.set() // there may be more, for another thread
	}
	return n, err
}
