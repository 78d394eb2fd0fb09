// Package tcp is what a user would take instead: TCP by Go's package net, and by iperf3.
package tcp

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/bench/internal/trial"
)

// listener is the part both ends of a TCP measurement have in common.
type listener struct {
	spec trial.Spec
	l    *net.TCPListener
	at   netip.AddrPort
}

func (e *listener) Prepare() (_ any, err error) {
	if e.spec.Active {
		return "", nil
	}
	e.l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(e.spec.Local.IP, 0)))
	if err != nil {
		return "", err
	}
	return e.l.Addr().String(), nil
}

func (e *listener) Connect(b json.RawMessage) error {
	if !e.spec.Active {
		return nil
	}
	return json.Unmarshal(b, &e.at)
}

func (e *listener) Close() error {
	if e.l == nil {
		return nil
	}
	return e.l.Close()
}

func (e *listener) dial() (*net.TCPConn, error) {
	return net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(e.at))
}

// NewPingPong makes the roles of some bytes there and back over a net.Conn.
func NewPingPong(s trial.Spec) (trial.Role, error) { return &pingPong{listener{spec: s}}, nil }

type pingPong struct{ listener }

func (p *pingPong) Run(ctx context.Context) (trial.Measure, error) {
	b := make([]byte, p.spec.Size)
	if !p.spec.Active {
		defer context.AfterFunc(ctx, func() { p.l.SetDeadline(time.Now()) })()
		c, err := p.l.AcceptTCP()
		if err != nil {
			return trial.Measure{}, err
		}
		defer c.Close()
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return trial.Measure{}, nil // the peer has enough
			}
			if _, err := c.Write(b); err != nil {
				return trial.Measure{}, nil
			}
		}
	}
	c, err := p.dial() // without Nagle's delay, as Go does by default
	if err != nil {
		return trial.Measure{}, err
	}
	defer c.Close()
	began := time.Now()
	for s := trial.NewSampler(p.spec); ; {
		s.Begin()
		if _, err := c.Write(b); err != nil {
			return trial.Measure{}, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return trial.Measure{}, err
		}
		if s.End() {
			return s.Measure(time.Since(began)), nil
		}
	}
}

// dialers is how many connections are made at a time.
const dialers = 32

// NewDial makes the roles of connecting: dial, accept, close, as often as can be.
func NewDial(s trial.Spec) (trial.Role, error) { return &dials{listener{spec: s}}, nil }

type dials struct{ listener }

func (d *dials) Run(ctx context.Context) (trial.Measure, error) {
	if d.spec.Active {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, d.spec.Duration)
		defer stop()
	} else {
		defer context.AfterFunc(ctx, func() { d.l.SetDeadline(time.Now()) })()
	}
	once := func() error {
		if d.spec.Active {
			c, err := d.dial()
			if err != nil {
				return err
			}
			c.SetLinger(0) // else the ports run out
			return c.Close()
		}
		c, err := d.l.AcceptTCP()
		if err != nil {
			return err
		}
		return c.Close()
	}
	var (
		began  = time.Now()
		made   atomic.Uint64
		failed atomic.Pointer[error]
		all    sync.WaitGroup
	)
	for range dialers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := once(); err == nil {
					made.Add(1)
				} else if d.spec.Active && ctx.Err() == nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	m := trial.Measure{Seconds: time.Since(began).Seconds(), Messages: made.Load()}
	if err := failed.Load(); err != nil {
		return m, *err
	}
	return m, nil
}
