//go:build linux

package verbs

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
)

// NewDial makes the roles that dial, accept and close connections as often as they can.
func NewDial(s harness.Spec) (harness.Role, error) {
	s.Wait = true // the end that waits for a connection sleeps
	return &dial{spec: s}, nil
}

type dial struct {
	spec     harness.Spec
	dev      device
	listener *roce.Listener
	peer     string // address of the peer's listener
}

var dialConfig = roce.QPConfig{Caps: roce.Caps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}}

func (d *dial) Prepare() (_ any, err error) {
	if d.dev, err = open(d.spec); err != nil || d.spec.Active {
		return "", err
	}
	if d.listener, err = d.dev.Listen(context.Background(), fmt.Sprintf("%v:0", d.spec.Local.IP), roce.ListenConfig{Backlog: 1024}); err != nil {
		return "", err
	}
	return d.listener.Addr().String(), nil
}

func (d *dial) Connect(b json.RawMessage) error { return json.Unmarshal(b, &d.peer) }

func (d *dial) Close() error { return d.dev.Close() }

func (d *dial) Run(ctx context.Context) (harness.Measure, error) {
	once := d.accept
	if d.spec.Active {
		once = d.dial
	}
	m, err := harness.Connections(ctx, d.spec, once)
	m.Mode = d.dev.mode()
	return m, err
}

func (d *dial) dial(ctx context.Context) error {
	c, err := d.dev.Dial(ctx, d.peer, roce.DialConfig{QPConfig: dialConfig})
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
	c, err := r.Accept(ctx, roce.AcceptConfig{QPConfig: dialConfig})
	if err != nil {
		return err
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
	return c.Close()
}
