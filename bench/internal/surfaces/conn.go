//go:build linux

package surfaces

import (
	"context"
	"io"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
)

// NewPingPong makes the roles of some bytes there and back over a net.Conn.
var NewPingPong = newRole((*role).pingPong)

// NewStream makes the roles of a stream of messages over a net.Conn.
var NewStream = newRole((*role).stream)

func (r *role) pingPong(ctx context.Context) (m harness.Measure, err error) {
	c, err := r.open(ctx)
	if err != nil {
		return m, err
	}
	defer c.Close()
	defer measureProcessor(&m)()
	b := make([]byte, r.spec.Size)
	if !r.spec.Active {
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return m, nil // the peer has closed the connection
			}
			if _, err := c.Write(b); err != nil {
				return m, nil
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

// stream measures at the active end the bytes that the connection has taken, like streams of messages.
func (r *role) stream(ctx context.Context) (m harness.Measure, err error) {
	c, err := r.open(ctx)
	if err != nil {
		return m, err
	}
	defer c.Close()
	defer measureProcessor(&m)()
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
		m.Handled++
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
