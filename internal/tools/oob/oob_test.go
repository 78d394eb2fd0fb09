package oob

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

// pair returns both ends of a connection.
func pair(t *testing.T, ctx context.Context) (server, client *Conn) {
	t.Helper()
	at, accepted := make(chan netip.AddrPort, 1), make(chan *Conn, 1)
	go func() {
		c, err := Accept(ctx, "127.0.0.1:0", func(a netip.AddrPort) { at <- a })
		if err != nil {
			t.Errorf("accept: %v", err)
			close(accepted)
			return
		}
		accepted <- c
	}()
	client, err := Dial(ctx, (<-at).String())
	if err != nil {
		t.Fatal(err)
	}
	if server = <-accepted; server == nil {
		t.FailNow()
	}
	t.Cleanup(func() {
		server.Close()
		client.Close()
	})
	return server, client
}

func TestConn(t *testing.T) {
	s, c := pair(t, t.Context())
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	var b [5]byte
	if _, err := io.ReadFull(s, b[:]); err != nil || string(b[:]) != "hello" {
		t.Errorf("read %q, %v", b, err)
	}
	if want := netip.MustParseAddr("127.0.0.1"); s.Peer() != want || c.Peer() != want {
		t.Errorf("peers %v and %v", s.Peer(), c.Peer())
	}
	c.Close()
	if _, err := s.Read(b[:]); err != io.EOF {
		t.Errorf("behind the end: %v", err)
	}
}

// If the context ends, a read fails with the context's error.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, c := pair(t, ctx)
	read := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	cancel()
	if err := <-read; !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if _, err := Accept(ctx, "127.0.0.1:0", func(netip.AddrPort) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("accept: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	if _, err := Dial(t.Context(), "127.0.0.1:0"); err == nil {
		t.Error("connected to port 0")
	}
	if _, err := Accept(t.Context(), "192.0.2.1:0", func(netip.AddrPort) {}); err == nil {
		t.Error("listens on somebody else's address")
	}
}

func TestChooseGID(t *testing.T) {
	d, _ := tooltest.Pair(t, fault.Config{})
	both := []string{tooltest.Server4, tooltest.Server6}
	for _, tt := range []struct {
		have  []string
		index int
		peer  string
		want  int
		err   error
	}{
		{both, 1, tooltest.Client4, 1, nil},
		{both, -1, tooltest.Client4, 0, nil},
		{both, -1, tooltest.Client6, 1, nil},
		{both, -1, "127.0.0.1", 0, nil},
		{both, -1, "fe80::1", 0, syscall.ENETUNREACH},
		{both, 2, tooltest.Client4, 0, syscall.EINVAL},
		{both[1:], -1, tooltest.Client6, 1, nil}, // the empty GID index 0 is not chosen
		{both[:1], -1, tooltest.Client6, 0, syscall.ENETUNREACH},
	} {
		var have []netip.Addr
		for _, a := range tt.have {
			have = append(have, netip.MustParseAddr(a))
		}
		if err := d.SetAddrs(have); err != nil {
			t.Fatal(err)
		}
		if got, err := ChooseGID(d, tt.index, netip.MustParseAddr(tt.peer)); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%v: ChooseGID(%d, %s) = %d, %v; want %d, %v", tt.have, tt.index, tt.peer, got, err, tt.want, tt.err)
		}
	}
}

// Accept and Dial return the errors of the system calls, for which rocectl has advice.
func TestNotMet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_, err = Accept(t.Context(), at, func(netip.AddrPort) {})
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
	l.Close()
	_, err = Dial(t.Context(), at)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("no server: %v", err)
	}
}
