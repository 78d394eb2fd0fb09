// Package oob is what tools need that meet out of band: a TCP connection over the
// host's ordinary sockets, by which two ends tell each other their queue pairs.
package oob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
)

// Conn is a TCP connection with one peer. Reads and writes fail with the error of
// the context it was made with as soon as that ends.
type Conn struct {
	tcp  net.Conn
	ctx  context.Context
	stop func() bool
}

// Dial connects to a server. addr is "host:port".
func Dial(ctx context.Context, addr string) (*Conn, error) {
	tcp, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: start the server there first, with the same port (-p)", err)
	}
	if err != nil {
		return nil, err
	}
	return newConn(ctx, tcp), nil
}

// Accept waits for one client on a TCP address ("host:port", host may be empty).
// listening is called when it can be connected to.
func Accept(ctx context.Context, addr string, listening func(netip.AddrPort)) (*Conn, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: another server has the port; give both ends another one (-p)", err)
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
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

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.tcp.Read(b)
	return n, cause(c.ctx, err)
}

func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.tcp.Write(b)
	return n, cause(c.ctx, err)
}

// Linger tells the peer that this end is done and waits until it is too, or hangs
// up, at most for a while: somebody must be here to repeat acknowledgements that
// were lost.
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

// cause is why ctx ended if it has and there is an error, else err.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// ChooseGID returns the index of the own address in the GID table: index itself, or
// if that is negative the first address of the IP version peer is reached by.
func ChooseGID(d *roce.Device, index int, peer netip.Addr) (int, error) {
	gids := d.GIDs()
	if index >= len(gids) {
		return 0, fmt.Errorf("GID index %d: the device has %d: %w", index, len(gids), syscall.EINVAL)
	}
	if index >= 0 {
		return index, nil
	}
	want := bth.GIDFrom(peer)
	if peer.IsLoopback() { // the sides meet by TCP within this host
		return 0, nil
	}
	for i, g := range gids {
		if !g.IsZero() && g.Is4() == want.Is4() && g.IsLinkLocal() == want.IsLinkLocal() {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the device has no address to reach %v from: %w", peer, syscall.ENETUNREACH)
}
