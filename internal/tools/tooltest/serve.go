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

// Outcome is the result of one end of a tool.
type Outcome[R any] struct {
	Result R
	Err    error
}

// server runs the server of a tool whose ends connect over TCP.
type server[R any] func(ctx context.Context, addr string, listening func(netip.AddrPort)) (R, error)

// Serve starts a server on the loopback and returns its address.
func Serve[R any](t *testing.T, s server[R]) (addr string, done <-chan Outcome[R]) {
	t.Helper()
	return ServeAt(t, "127.0.0.1:0", s)
}

// ServeAt starts a server at an address ("host:port") and returns the address at which it listens.
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

// BadPeer connects to a server over TCP, sends the text says and closes its side for writing. wait returns the error of the server,
// which must contain want.
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

// Interrupted checks that a server which waits for its client returns when its context ends.
func Interrupted[R any](t *testing.T, s server[R]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s(ctx, "127.0.0.1:0", func(netip.AddrPort) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("server: %v", err)
	}
}
