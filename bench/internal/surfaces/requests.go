//go:build linux

package surfaces

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/message"
)

// NewRequests makes the roles of requests and answers of the same size, over several connections at a time: connections
// of package message, or net.Conns.
func NewRequests(s harness.Spec) (harness.Role, error) {
	if s.Link == linkTCP {
		return newRole((*role).requests)(s)
	}
	s.Wait = true
	return &messages{role: role{spec: s}}, nil
}

// exchange is a connection with messages in both directions.
type exchange interface {
	Send(p []byte) error
	Recv(p []byte) error
	Close() error
}

// stream is an exchange over a net.Conn.
type stream struct{ net.Conn }

func (s stream) Send(p []byte) error {
	_, err := s.Write(p)
	return err
}

func (s stream) Recv(p []byte) error {
	_, err := io.ReadFull(s, p)
	return err
}

func (r *role) requests(ctx context.Context) (harness.Measure, error) {
	return askOrAnswer(ctx, r.spec, func() (exchange, error) {
		c, err := r.open(ctx)
		return stream{c}, err
	})
}

// messages is the role of requests by package message.
type messages struct {
	role
	listener *message.Listener
}

// config returns the configuration of a service that knows its messages.
func (m *messages) config() message.Config {
	return message.Config{MaxMessage: m.spec.Size, Transfers: 1, Backlog: 2 * m.connections()}
}

func (m *messages) Prepare() (_ any, err error) {
	if err = m.openDevice(); err != nil || m.spec.Active {
		return "", err
	}
	if m.listener, err = message.Listen(m.dev, address(m.spec), m.config()); err != nil {
		return "", err
	}
	return m.listener.Addr().String(), nil
}

func (m *messages) Run(ctx context.Context) (harness.Measure, error) {
	return askOrAnswer(ctx, m.spec, func() (exchange, error) {
		c, err := m.open(ctx)
		return packets{ctx, c}, err
	})
}

func (m *messages) open(ctx context.Context) (*message.Conn, error) {
	if m.spec.Active {
		return message.Dial(ctx, m.dev, m.peer, m.config())
	}
	return m.listener.Accept(ctx)
}

func (m *messages) Close() error {
	if m.listener != nil {
		m.listener.Close()
	}
	return m.role.Close()
}

// packets is an exchange by package message.
type packets struct {
	ctx context.Context
	*message.Conn
}

func (p packets) Send(b []byte) error { return p.Conn.Send(p.ctx, b) }

func (p packets) Recv(b []byte) error {
	_, err := p.Conn.Recv(p.ctx, b)
	return err
}

// askOrAnswer opens the connections of the Spec. The active end then has one outstanding request on each.
func askOrAnswer(ctx context.Context, s harness.Spec, open func() (exchange, error)) (m harness.Measure, err error) {
	var all []exchange
	defer func() {
		var closing sync.WaitGroup
		for _, x := range all {
			closing.Go(func() { x.Close() })
		}
		closing.Wait()
	}()
	for range max(s.QPs, 1) {
		x, err := open()
		if err != nil {
			return m, err
		}
		all = append(all, x)
	}
	defer measureProcessor(&m)()
	if s.Active {
		return together(s, len(all), func(i int, b []byte) error {
			if err := all[i].Send(b); err != nil {
				return err
			}
			return all[i].Recv(b)
		})
	}
	var answering sync.WaitGroup
	for _, x := range all {
		answering.Go(func() {
			b := make([]byte, s.Size)
			for x.Recv(b) == nil && x.Send(b) == nil { // until the peer has closed the connection
			}
		})
	}
	answering.Wait()
	return m, nil
}

// together makes n goroutines call trip repeatedly, each with a separate buffer, and counts the calls.
func together(s harness.Spec, n int, trip func(i int, b []byte) error) (m harness.Measure, err error) {
	var (
		start   = time.Now().Add(s.Warmup)
		end     = start.Add(s.Duration)
		mu      sync.Mutex
		running sync.WaitGroup
	)
	for i := range n {
		running.Go(func() {
			b := make([]byte, s.Size)
			var trips, all uint64
			var failed error
			for now := time.Now(); now.Before(end) && failed == nil; {
				failed = trip(i, b)
				all++
				if now = time.Now(); now.After(start) && now.Before(end) {
					trips++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			m.Messages, m.Handled = m.Messages+trips, m.Handled+all
			if failed != nil {
				err = failed
			}
		})
	}
	running.Wait()
	m.Seconds, m.Bytes = s.Duration.Seconds(), m.Messages*uint64(s.Size)
	return m, err
}
