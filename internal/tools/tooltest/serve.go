package tooltest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Outcome is how one end of a tool has ended.
type Outcome[R any] struct {
	Result R
	Err    error
}

// server is the server of a tool whose ends meet by TCP, on a device and with options.
type server[R any] func(ctx context.Context, addr string, listening func(netip.AddrPort)) (R, error)

// Serve starts a server on the loopback and returns its address.
func Serve[R any](t *testing.T, s server[R]) (addr string, done <-chan Outcome[R]) {
	t.Helper()
	return ServeAt(t, "127.0.0.1:0", s)
}

// ServeAt starts a server that waits at an address of its own.
func ServeAt[R any](t *testing.T, at string, s server[R]) (addr string, done <-chan Outcome[R]) {
	t.Helper()
	ready, end := make(chan netip.AddrPort, 1), make(chan Outcome[R], 1)
	go func() {
		r, err := s(t.Context(), at, func(a netip.AddrPort) { ready <- a })
		end <- Outcome[R]{r, err}
	}()
	select {
	case a := <-ready:
		return a.String(), end
	case o := <-end:
		t.Fatal(o.Err)
		return
	}
}

// BadPeer is a client that says something by TCP and then no more. wait waits for the
// server, whose error must have want in it.
func BadPeer(t *testing.T, addr, says, want string, wait func() error) {
	t.Helper()
	tcp, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	io.WriteString(tcp, says)
	tcp.(*net.TCPConn).CloseWrite()
	if err := wait(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("server: %v, want %q", err, want)
	}
}

// Interrupted checks that a server that waits for its client heeds the end of its
// context.
func Interrupted[R any](t *testing.T, s server[R]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s(ctx, "127.0.0.1:0", func(netip.AddrPort) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("server: %v", err)
	}
}
