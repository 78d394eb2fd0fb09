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

// signals are the two signals of a socket: in for reading and accepting, out for writing and connecting.
type signals struct{ in, out signal }

func newSignals(in, out int) signals { return signals{signal{fd: in}, signal{fd: out}} }

// wake makes all waiting threads try again.
func (s *signals) wake() {
	s.in.set()
	s.out.set()
}

func (s *signals) close() {
	s.in.close()
	s.out.close()
}

// Events of poll(2), which Ready returns.
const (
	pollIn  = 0x1
	pollOut = 0x4
	pollErr = 0x8
	pollHup = 0x10
)

// ready returns the events of poll(2) in want that a socket has, and POLLERR and POLLHUP. The signals of missing
// events are clear. events returns all events that the socket has; if arm is set, missing ones will be signaled.
func (s *signals) ready(want uint32, events func(arm bool) uint32) int {
	want |= pollErr | pollHup
	if e := events(false) & want; e != 0 {
		return int(e)
	}
	s.each(want, (*signal).clear)
	e := events(true) & want
	if e != 0 {
		s.each(want, (*signal).set)
	}
	return int(e)
}

// each calls f for the signals of events.
func (s *signals) each(events uint32, f func(*signal)) {
	if events&pollIn != 0 {
		f(&s.in)
	}
	if events&pollOut != 0 {
		f(&s.out)
	}
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
