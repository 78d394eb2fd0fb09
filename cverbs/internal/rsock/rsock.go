// Package rsock implements the calls of rs.h, the rsockets of librdmacm.so.1: streams on package rsocket, and
// datagrams on queue pairs of type UD. Only Shutdown, Close and Map wait for the peer. Other calls return EAGAIN
// instead, and the C side waits for a descriptor. See [Sockets.Create].
//
//	rsock.go     all stream sockets of a process
//	signal.go    the descriptors that signal when to try again
//	socket.go    a stream socket, and its states
//	connect.go   binding, listening, accepting and connecting
//	stream.go    reading, writing and ending
//	options.go   socket options
//	memory.go    memory that the peer writes to
//
//	datagram.go          all datagram sockets of a process, and what they do
//	datagram_wire.go     the headers of their datagrams
//	datagram_udp.go      their UDP socket
//	datagram_pair.go     their queue pairs
//	datagram_peers.go    what they know of other datagram sockets
//	datagram_options.go  their options
//
// Errors are of type [syscall.Errno].
package rsock

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/handle"
	"github.com/goroce/roce/cverbs/internal/verbs"
	"github.com/goroce/roce/rdmacm"
)

// Sockets are the stream rsockets of a process. Make them with [New]. Any goroutine may call the methods.
type Sockets struct {
	host func() (*rdmacm.Host, error)
	table[*socket]
}

// New returns the stream rsockets of a process. host opens its devices, once.
func New(host func() (*rdmacm.Host, error)) *Sockets { return &Sockets{host: host} }

// Create is rsocket of a stream. in and out are eventfds of EFD_NONBLOCK that the caller owns. in is
// readable while the socket may have something to read or to accept; out while it may have room to write or
// the outcome of a connect. They may be readable although a call finds nothing; a call that returns EAGAIN
// first makes them unreadable.
//
// ENODEV: there are no devices.
func (a *Sockets) Create(v6 bool, in, out int) (abi.Handle, error) {
	host, err := a.host()
	if err != nil {
		return 0, failure(err)
	}
	return a.enter(newSocket(host, v6, in, out))
}

// Close is rclose. It waits until the peer has the written data, at most ten seconds. When it returns, the
// descriptors are readable, and the socket does not touch them any more.
func (a *Sockets) Close(h abi.Handle) error {
	return a.end(h)
}

// table has all sockets of a kind by their handles.
type table[S interface{ close() error }] struct{ objects handle.Table }

// enter gives a new socket a handle. If that fails, it closes the socket.
func (t *table[S]) enter(s S) (abi.Handle, error) {
	h, err := t.objects.Add(s)
	if err != nil {
		s.close()
		return 0, syscall.ENOMEM
	}
	return h, nil
}

func (t *table[S]) find(h abi.Handle) (S, error) {
	s, ok := handle.Get[S](&t.objects, h)
	if !ok {
		return s, syscall.EBADF
	}
	return s, nil
}

// end frees a handle and closes its socket.
func (t *table[S]) end(h abi.Handle) error {
	s, err := t.find(h)
	if err != nil || !t.objects.Free(h) {
		return syscall.EBADF
	}
	return failure(s.close())
}

// failure returns the errno of an error.
func failure(err error) error {
	switch {
	case err == nil:
		return nil
	case err == syscall.EAGAIN: // the frequent one
		return syscall.EAGAIN
	case errors.Is(err, net.ErrClosed):
		return syscall.EBADF
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return syscall.ETIMEDOUT
	}
	return verbs.Errno(err)
}

// ended converts the end of the stream to that of C: 0 bytes.
func ended(n int, err error) (int, error) {
	if err == io.EOF {
		return 0, nil
	}
	return n, failure(err)
}
