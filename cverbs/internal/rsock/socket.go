package rsock

import (
	"context"
	"net/netip"
	"sync"
	"syscall"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/rdmacm"
	"github.com/goroce/roce/rsocket"
)

// state is what a socket is doing.
type state int

const (
	idle       state = iota // made, perhaps bound
	listening               // rlisten was called
	connecting              // rconnect was called
	connected               // it has, or had, a stream
	closed
)

// socket is an rsocket.
type socket struct {
	host *rdmacm.Host
	v6   bool
	signals

	mu      sync.Mutex // guards the fields below
	state   state
	id      *rdmacm.ID // has the address and port of a bound socket
	bound   netip.AddrPort
	options options
	pending

	listeners []*rsocket.Listener
	accepted  chan *rsocket.Conn // streams that wait for raccept
	stop      context.CancelFunc // ends accepting or connecting
	running   sync.WaitGroup     // goroutines of these

	conn *rsocket.Conn
	maps maps
}

func newSocket(host *rdmacm.Host, v6 bool, in, out int) *socket {
	return &socket{host: host, v6: v6, signals: newSignals(in, out), options: defaults, stop: func() {}, maps: make(maps)}
}

// attach gives the socket its stream. Called with the socket locked, or before other goroutines know it.
func (s *socket) attach(c *rsocket.Conn) {
	s.conn, s.state = c, connected
	s.options.keepAlive(c)
	c.Watch(s.in.set, s.out.set)
	s.wake()
}

// stream returns the stream. EAGAIN: there is none yet. Otherwise it returns the error of a failed connect, or
// ENOTCONN.
func (s *socket) stream() (*rsocket.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case connected:
		return s.conn, nil
	case connecting:
		return nil, syscall.EAGAIN
	case closed:
		return nil, syscall.EBADF
	}
	if err := s.takeError(); err != nil {
		return nil, err
	}
	return nil, syscall.ENOTCONN
}

// pending is the pending error of a socket, SO_ERROR. The lock of the socket guards it.
type pending struct{ failed error }

// takeError returns the pending error and forgets it.
func (p *pending) takeError() (err error) {
	err, p.failed = p.failed, nil
	return err
}

// close ends the socket and, in an orderly way, its stream if there is one.
func (s *socket) close() (err error) {
	s.mu.Lock()
	conn, id, accepted := s.conn, s.id, s.accepted
	s.state, s.conn, s.id = closed, nil, nil
	s.mu.Unlock()
	s.endListening()
	if conn != nil {
		err = conn.Close()
	}
	s.running.Wait()
	if accepted != nil {
		discard(accepted)
	}
	if id != nil {
		id.Destroy()
	}
	s.signals.close()
	return err
}

// discard ends the unaccepted streams.
func discard(accepted chan *rsocket.Conn) {
	for {
		select {
		case c := <-accepted:
			go c.Close() // waits for its peer
		default:
			return
		}
	}
}

// Ready returns the events of poll(2) in want that a socket has, and POLLERR and POLLHUP. The descriptors of
// missing events are unreadable.
func (a *Sockets) Ready(h abi.Handle, want uint32) (int, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	return s.ready(want, s.events), nil
}

// events returns the events of poll(2). The stream and the listener signal missing ones by themselves.
func (s *socket) events(bool) (e uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case idle:
		if s.failed != nil {
			return pollIn | pollOut | pollErr | pollHup
		}
		return pollOut | pollHup
	case listening:
		if len(s.accepted) > 0 || len(s.listeners) == 0 {
			e = pollIn
		}
	case connected:
		read, write, over := s.conn.Ready()
		if read {
			e |= pollIn
		}
		if write {
			e |= pollOut
		}
		if over {
			e |= pollHup
		}
		if over && s.conn.Err() != nil {
			e |= pollErr
		}
	case closed:
		e = pollErr | pollHup
	}
	return e
}
