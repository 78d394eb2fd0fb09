// Package tcp measures what a user would take instead: TCP by Go's package net, and by iperf3.
package tcp

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
)

// role is what both kinds of measurements have in common: the passive end listens, and its
// offer is the address.
type role struct {
	spec     harness.Spec
	listener *net.TCPListener
	peer     netip.AddrPort // of the listener
	run      func(*role, context.Context) (harness.Measure, error)
}

// NewPingPong makes the roles of some bytes there and back over a net.Conn.
func NewPingPong(s harness.Spec) (harness.Role, error) {
	return &role{spec: s, run: (*role).pingPong}, nil
}

// NewStream makes the roles of a stream of messages over a net.Conn.
func NewStream(s harness.Spec) (harness.Role, error) {
	return &role{spec: s, run: (*role).stream}, nil
}

// NewDial makes the roles that dial, accept and close connections as often as they can.
func NewDial(s harness.Spec) (harness.Role, error) {
	return &role{spec: s, run: (*role).connections}, nil
}

func (r *role) Prepare() (_ any, err error) {
	if r.spec.Active {
		return "", nil
	}
	r.listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.spec.Local.IP, 0)))
	if err != nil {
		return "", err
	}
	return r.listener.Addr().String(), nil
}

func (r *role) Connect(b json.RawMessage) error {
	if !r.spec.Active {
		return nil
	}
	return json.Unmarshal(b, &r.peer)
}

func (r *role) Close() error {
	if r.listener == nil {
		return nil
	}
	return r.listener.Close()
}

func (r *role) Run(ctx context.Context) (harness.Measure, error) {
	if !r.spec.Active {
		defer context.AfterFunc(ctx, func() { r.listener.SetDeadline(time.Now()) })()
	}
	return r.run(r, ctx)
}

// open dials the peer at the active end. At the other end it accepts a connection.
func (r *role) open() (*net.TCPConn, error) {
	if r.spec.Active {
		return net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(r.peer)) // without Nagle's delay, as Go does by default
	}
	return r.listener.AcceptTCP()
}

func (r *role) pingPong(context.Context) (harness.Measure, error) {
	c, err := r.open()
	if err != nil {
		return harness.Measure{}, err
	}
	defer c.Close()
	b := make([]byte, r.spec.Size)
	if !r.spec.Active {
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return harness.Measure{}, nil // the peer has closed the connection
			}
			if _, err := c.Write(b); err != nil {
				return harness.Measure{}, nil
			}
		}
	}
	return harness.RoundTrips(r.spec, func() error {
		if _, err := c.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b)
		return err
	}, nil)
}

// stream measures at the active end, as streams of ours do, what the connection has taken.
func (r *role) stream(context.Context) (m harness.Measure, err error) {
	c, err := r.open()
	if err != nil {
		return m, err
	}
	defer c.Close()
	b := make([]byte, r.spec.Size)
	if !r.spec.Active {
		for err == nil {
			_, err = c.Read(b)
		}
		return m, nil // the peer has closed the connection
	}
	start := time.Now().Add(r.spec.Warmup)
	for {
		if _, err := c.Write(b); err != nil {
			return m, err
		}
		now := time.Now()
		if now.Before(start) {
			continue
		}
		m.Messages++
		m.Bytes += uint64(len(b))
		if took := now.Sub(start); took >= r.spec.Duration {
			m.Seconds = took.Seconds()
			return m, nil
		}
	}
}

func (r *role) connections(ctx context.Context) (harness.Measure, error) {
	return harness.Connections(ctx, r.spec, func(context.Context) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		if r.spec.Active {
			c.SetLinger(0) // otherwise the ports run out
		}
		return c.Close()
	})
}
