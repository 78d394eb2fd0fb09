// Package oob is the out-of-band exchange of tools: a TCP connection over the host's ordinary
// sockets, over which two ends exchange the addresses of their queue pairs.
package oob

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/usage"
)

// Conn is a TCP connection with one peer. When the context of its creation ends, reads and writes fail with the context's
// error.
type Conn struct {
	tcp  net.Conn
	ctx  context.Context
	stop func() bool
}

// Dial connects to a server. addr is "host:port".
func Dial(ctx context.Context, addr string) (*Conn, error) {
	tcp, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return newConn(ctx, tcp), nil
}

// Accept waits for one client on a TCP address ("host:port", host may be empty). It calls
// listening when clients can connect.
func Accept(ctx context.Context, addr string, listening func(netip.AddrPort)) (*Conn, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	listening(l.Addr().(*net.TCPAddr).AddrPort())
	tcp, err := l.Accept()
	if err != nil {
		return nil, cause(ctx, err)
	}
	return newConn(ctx, tcp), nil
}

func newConn(ctx context.Context, tcp net.Conn) *Conn {
	past := time.Unix(1, 0)
	return &Conn{tcp: tcp, ctx: ctx, stop: context.AfterFunc(ctx, func() { tcp.SetDeadline(past) })}
}

// Peer returns the peer's address.
func (c *Conn) Peer() netip.Addr { return c.tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap() }

// Read reads from the connection.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.tcp.Read(b)
	return n, cause(c.ctx, err)
}

// Write writes to the connection.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.tcp.Write(b)
	return n, cause(c.ctx, err)
}

// Linger closes this end for writing, and then waits until the peer has done so or has closed the connection, or until atMost has
// passed. Meanwhile the device can repeat acknowledgements that were lost.
func (c *Conn) Linger(atMost time.Duration) {
	c.tcp.(*net.TCPConn).CloseWrite() // if this fails the peer is gone
	c.tcp.SetReadDeadline(time.Now().Add(atMost))
	io.Copy(io.Discard, c.tcp)
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.stop()
	return c.tcp.Close()
}

// cause returns err, or the error of ctx if ctx has ended.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// HungUp explains an error of reading from a connection: io.EOF means that the peer has hung up.
func HungUp(err error) error {
	if err == io.EOF {
		return fmt.Errorf("%w: the peer hung up; its own output says why", err)
	}
	return err
}

// Order returns send and receive in the order in which an end calls them: the first end sends before it
// receives, and the other end receives before it sends.
func Order(first bool, send, receive func() error) [2]func() error {
	if first {
		return [2]func() error{send, receive}
	}
	return [2]func() error{receive, send}
}

// InOrder calls the two functions that [Order] returns, the second one unless the first fails.
func InOrder(first bool, send, receive func() error) error {
	for _, step := range Order(first, send, receive) {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// ChooseGID returns the index of the local address in the GID table: index itself, or if that is negative, the first
// address of the peer's IP version.
func ChooseGID(d *roce.Device, index int, peer netip.Addr) (int, error) {
	gids := d.GIDs()
	if index >= len(gids) {
		return 0, usage.Errorf("GID index %d: the device has %d: %w", index, len(gids), syscall.EINVAL)
	}
	if index >= 0 {
		return index, nil
	}
	want := bth.GIDFrom(peer)
	if peer.IsLoopback() { // both ends are on this host
		return 0, nil
	}
	for i, g := range gids {
		if !g.IsZero() && g.Is4() == want.Is4() && g.IsLinkLocal() == want.IsLinkLocal() {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the device has no address to reach %v from: %w", peer, syscall.ENETUNREACH)
}
