//go:build linux

package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/trial"
)

// NewPingPong makes the roles of a SEND there and one back, one at a time.
func NewPingPong(s trial.Spec) (trial.Role, error) {
	if s.Size <= 0 || s.Size > 64 {
		return nil, fmt.Errorf("ping-pong of %d bytes: want 1 to 64, which are sent inline", s.Size)
	}
	return &pingPong{spec: s}, nil
}

type pingPong struct {
	spec trial.Spec
	*rig
	send roce.SendWR
	recv roce.RecvWR
	sent int
	wcs  [16]roce.WC
}

const (
	pingQueue = 64 // work requests of either queue
	pingEvery = 32 // a completion is asked for every so many SENDs
)

func (p *pingPong) Prepare() (any, error) {
	var err error
	if p.rig, err = newRig(p.spec, p.spec.Size, pingQueue, pingQueue); err != nil {
		return nil, err
	}
	p.send = roce.SendWR{Opcode: roce.Send, Inline: make([]byte, p.spec.Size)}
	p.recv = roce.RecvWR{SG: []roce.SGE{p.mr.SGE(0, p.spec.Size)}}
	return p.offer(), nil
}

func (p *pingPong) Connect(b json.RawMessage) error {
	var peer offer
	if err := json.Unmarshal(b, &peer); err != nil {
		return err
	}
	if err := p.connect(peer); err != nil {
		return err
	}
	for range pingQueue / 2 {
		if err := p.qps[0].PostRecv(&p.recv); err != nil {
			return err
		}
	}
	return nil
}

func (p *pingPong) Close() error {
	if p.rig == nil {
		return nil
	}
	return p.close()
}

func (p *pingPong) Run(ctx context.Context) (trial.Measure, error) {
	if !p.spec.Active {
		for {
			if over, err := p.take(ctx); over || err != nil {
				return trial.Measure{}, err
			}
			if err := p.post(); err != nil {
				return trial.Measure{}, err
			}
			if err := p.qps[0].PostRecv(&p.recv); err != nil {
				return trial.Measure{}, err
			}
		}
	}
	began := time.Now()
	for s := trial.NewSampler(p.spec); ; {
		s.Begin()
		if err := p.post(); err != nil {
			return trial.Measure{}, err
		}
		over, err := p.take(ctx)
		if err != nil {
			return trial.Measure{}, err
		}
		if s.End() || over {
			m := s.Measure(time.Since(began))
			m.Mode = p.dev.mode()
			return m, nil
		}
		if err := p.qps[0].PostRecv(&p.recv); err != nil {
			return trial.Measure{}, err
		}
	}
}

func (p *pingPong) post() error {
	p.send.Flags = 0
	if p.sent++; p.sent%pingEvery == 0 {
		p.send.Flags = roce.Signaled
	}
	return p.qps[0].PostSend(&p.send)
}

// take waits for the message of the other side.
func (p *pingPong) take(ctx context.Context) (over bool, err error) {
	for turn := 0; ; turn++ {
		n := p.cq.Poll(p.wcs[:])
		got := false
		for i := range p.wcs[:n] {
			if err := check(&p.wcs[i]); err != nil {
				return false, err
			}
			got = got || p.wcs[i].Opcode == roce.WCRecv
		}
		switch {
		case got:
			return false, nil
		case n == 0 && turn%256 == 0 && ctx.Err() != nil:
			return true, nil
		case n == 0:
			if p.wait(ctx) != nil {
				return true, nil
			}
		}
	}
}
