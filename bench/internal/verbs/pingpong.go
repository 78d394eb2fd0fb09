//go:build linux

package verbs

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
)

// NewPingPong makes the roles of a SEND there and one back, one at a time.
func NewPingPong(s harness.Spec) (harness.Role, error) {
	if s.Size <= 0 || s.Size > 64 {
		return nil, fmt.Errorf("ping-pong of %d bytes: want 1 to 64, which are sent inline", s.Size)
	}
	return &pingPong{spec: s}, nil
}

type pingPong struct {
	spec harness.Spec
	*endpoint
	send roce.SendWR
	recv roce.RecvWR
	sent int
	wcs  [16]roce.WC
}

const (
	pingQueue = 64 // work requests of either queue
	pingEvery = 32 // SENDs for each signaled one
)

func (p *pingPong) Prepare() (any, error) {
	var err error
	if p.endpoint, err = newEndpoint(p.spec, p.spec.Size, pingQueue, pingQueue); err != nil {
		return nil, err
	}
	p.send = roce.SendWR{Opcode: roce.Send, Inline: make([]byte, p.spec.Size)}
	p.recv = roce.RecvWR{SG: []roce.SGE{p.mr.SGE(0, p.spec.Size)}}
	return p.offer(), nil
}

func (p *pingPong) Connect(b json.RawMessage) error {
	err := p.endpoint.Connect(b)
	for range pingQueue / 2 {
		if err == nil {
			err = p.postRecv()
		}
	}
	return err
}

func (p *pingPong) Run(ctx context.Context) (m harness.Measure, err error) {
	if p.spec.Active {
		m, err = harness.RoundTrips(p.spec, func() error {
			if err := p.postSend(); err != nil {
				return err
			}
			return p.await(ctx)
		}, p.postRecv)
		m.Mode, m.Value = p.dev.mode(), p.perQP
		return m, err
	}
	for {
		if err := p.await(ctx); err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return m, err
		}
		if err := p.postSend(); err != nil {
			return m, err
		}
		if err := p.postRecv(); err != nil {
			return m, err
		}
	}
}

func (p *pingPong) postRecv() error { return p.qps[0].PostRecv(&p.recv) }

func (p *pingPong) postSend() error {
	p.send.Flags = 0
	if p.sent++; p.sent%pingEvery == 0 {
		p.send.Flags = roce.Signaled
	}
	return p.qps[0].PostSend(&p.send)
}

// await waits for the message of the peer.
func (p *pingPong) await(ctx context.Context) error {
	for polls := 0; ; polls++ {
		n := p.cq.Poll(p.wcs[:])
		got := false
		for i := range p.wcs[:n] {
			if err := check(&p.wcs[i]); err != nil {
				return err
			}
			got = got || p.wcs[i].Opcode == roce.WCRecv
		}
		switch {
		case got:
			return nil
		case n == 0 && polls%256 == 0 && ctx.Err() != nil:
			return ctx.Err()
		case n == 0:
			if err := p.wait(ctx); err != nil {
				return err
			}
		}
	}
}
