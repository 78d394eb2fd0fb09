package rsock

import (
	"context"
	"syscall"
	"time"

	"github.com/goroce/roce/cverbs/internal/abi"
)

// Recv is rrecv with MSG_DONTWAIT, and with MSG_PEEK if peek is set. 0: the peer sends no more.
func (a *Sockets) Recv(h abi.Handle, p []byte, peek bool) (int, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	return s.in.attempt(func() (int, error) {
		c, err := s.stream()
		switch {
		case err != nil:
			return 0, err
		case peek:
			return ended(c.Peek(p))
		}
		return ended(c.TryRead(p))
	})
}

// Send is rsend with MSG_DONTWAIT.
func (a *Sockets) Send(h abi.Handle, p []byte) (int, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	return s.out.attempt(func() (int, error) {
		c, err := s.stream()
		if err == syscall.ENOTCONN {
			err = syscall.EPIPE
		}
		if err != nil {
			return 0, err
		}
		n, err := c.TryWrite(p)
		return n, failure(err)
	})
}

// Directions of Shutdown: those of shutdown(2).
const (
	shutRead = iota
	shutWrite
	shutBoth
)

// disconnectTime bounds Shutdown in both directions.
const disconnectTime = 10 * time.Second

// Shutdown is rshutdown. It waits until the peer has the written data, at most ten seconds. A listener takes
// no more streams.
func (a *Sockets) Shutdown(h abi.Handle, how int) error {
	s, err := a.find(h)
	if err != nil {
		return err
	}
	if how < shutRead || how > shutBoth {
		return syscall.EINVAL
	}
	s.mu.Lock()
	state, c := s.state, s.conn
	s.mu.Unlock()
	switch {
	case state == listening && how != shutWrite:
		s.endListening()
		return nil
	case c == nil:
		return syscall.ENOTCONN
	case how == shutRead:
		return failure(c.CloseRead())
	case how == shutWrite:
		return failure(c.CloseWrite())
	}
	ctx, cancel := context.WithTimeout(context.Background(), disconnectTime)
	defer cancel()
	return failure(c.Disconnect(ctx))
}
