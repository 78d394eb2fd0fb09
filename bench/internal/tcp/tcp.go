// Package tcp measures the alternative of users: TCP with Go's package net, and with iperf3.
package tcp

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
)

// NewDial makes the roles that dial, accept and close connections as often as they can.
func NewDial(s harness.Spec) (harness.Role, error) { return &dial{spec: s}, nil }

// dial is one end. The passive end listens, and its offer is the address.
type dial struct {
	spec     harness.Spec
	listener *net.TCPListener
	peer     netip.AddrPort // of the listener
}

func (r *dial) Prepare() (_ any, err error) {
	if r.spec.Active {
		return "", nil
	}
	r.listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.spec.Local.IP, 0)))
	if err != nil {
		return "", err
	}
	return r.listener.Addr().String(), nil
}

func (r *dial) Connect(b json.RawMessage) error {
	if !r.spec.Active {
		return nil
	}
	return json.Unmarshal(b, &r.peer)
}

func (r *dial) Close() error {
	if r.listener == nil {
		return nil
	}
	return r.listener.Close()
}

// open dials the peer at the active end. At the other end it accepts a connection.
func (r *dial) open() (*net.TCPConn, error) {
	if r.spec.Active {
		return net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(r.peer))
	}
	return r.listener.AcceptTCP()
}

func (r *dial) Run(ctx context.Context) (harness.Measure, error) {
	if !r.spec.Active {
		defer context.AfterFunc(ctx, func() { r.listener.SetDeadline(time.Now()) })()
	}
	return harness.Connections(ctx, r.spec, func(context.Context) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		if r.spec.Active {
			c.SetLinger(0) // closes without TIME_WAIT, because otherwise there are not enough ports
		}
		return c.Close()
	})
}
