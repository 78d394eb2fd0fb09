//go:build linux

package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/trial"
)

// dialers is how many connections are made at a time.
const dialers = 32

// NewDial makes the roles of connecting: dial, accept, close, as often as can be.
func NewDial(s trial.Spec) (trial.Role, error) {
	s.Wait = true // the end that waits for a connection sleeps
	return &dial{spec: s}, nil
}

type dial struct {
	spec     trial.Spec
	dev      device
	listener *roce.Listener
	at       string // the listener, of the peer
}

var dialCaps = roce.Caps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}

func (d *dial) Prepare() (any, error) {
	var err error
	if d.dev, err = open(d.spec); err != nil || d.spec.Active {
		return "", err
	}
	if d.listener, err = d.dev.Listen(context.Background(), fmt.Sprintf("%v:0", d.spec.Local.IP), roce.ListenConfig{Backlog: 1024}); err != nil {
		return "", err
	}
	return d.listener.Addr().String(), nil
}

func (d *dial) Connect(b json.RawMessage) error { return json.Unmarshal(b, &d.at) }

func (d *dial) Close() error {
	if d.dev.Device == nil {
		return nil
	}
	return d.dev.Close()
}

func (d *dial) Run(ctx context.Context) (trial.Measure, error) {
	once := d.accept
	if d.spec.Active {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, d.spec.Duration)
		defer stop()
		once = d.dial
	}
	var (
		began  = time.Now()
		made   atomic.Uint64
		failed = make(chan error, dialers)
		all    sync.WaitGroup
	)
	for range dialers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := once(ctx); err == nil {
					made.Add(1)
				} else if ctx.Err() == nil && d.spec.Active {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	m := trial.Measure{Seconds: time.Since(began).Seconds(), Messages: made.Load(), Mode: d.dev.mode()}
	select {
	case err := <-failed:
		return m, err
	default:
		return m, nil
	}
}

func (d *dial) dial(ctx context.Context) error {
	c, err := d.dev.Dial(ctx, d.at, roce.DialConfig{QPConfig: roce.QPConfig{Caps: dialCaps}})
	if err != nil {
		return err
	}
	return c.Close()
}

func (d *dial) accept(ctx context.Context) error {
	r, err := d.listener.Accept(ctx)
	if err != nil {
		return err
	}
	c, err := r.Accept(ctx, roce.AcceptConfig{QPConfig: roce.QPConfig{Caps: dialCaps}})
	if err != nil {
		return err
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
	return c.Close()
}
