//go:build linux

package verbs

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/trial"
)

var opcodes = map[string]roce.Opcode{"SEND": roce.Send, "WRITE": roce.Write, "READ": roce.Read, result.SplitWrite: roce.Write}

// NewStream makes the roles of a stream of messages, over one queue pair or many:
// the active end posts, the other receives or, for WRITE and READ, drives its device.
// Afterwards the data is compared.
func NewStream(s trial.Spec) (trial.Role, error) {
	op, ok := opcodes[s.Op]
	if !ok || s.Size <= 0 {
		return nil, fmt.Errorf("no stream of %q of %d bytes", s.Op, s.Size)
	}
	s.SRQ = (s.SRQ || s.QPs > 1) && op == roce.Send && !s.Active
	return &stream{spec: s, op: op, shape: shapeOf(s)}, nil
}

type stream struct {
	spec  trial.Spec
	op    roce.Opcode
	shape shape
	*rig
	receiver receiver
}

func (s *stream) Prepare() (any, error) {
	sendWR, recvWR := s.shape.perQP(s.spec.QPs), 1
	if s.op == roce.Send && !s.spec.Active {
		sendWR, recvWR = 1, 2*s.shape.depth
	}
	var err error
	if s.rig, err = newRig(s.spec, s.shape.memory(), sendWR, recvWR); err != nil {
		return nil, err
	}
	if s.source() {
		s.shape.fill(s.mr.Bytes(), len(s.qps))
	}
	return s.offer(), nil
}

// source reports whether the data comes from here.
func (s *stream) source() bool { return s.spec.Active == (s.op != roce.Read) }

func (s *stream) Connect(b json.RawMessage) error {
	var peer offer
	if err := json.Unmarshal(b, &peer); err != nil {
		return err
	}
	if err := s.connect(peer); err != nil {
		return err
	}
	if s.op == roce.Send && !s.spec.Active {
		return s.prepost()
	}
	return nil
}

func (s *stream) Close() error {
	if s.rig == nil {
		return nil
	}
	return s.close()
}

func (s *stream) Run(ctx context.Context) (m trial.Measure, err error) {
	if s.spec.Active {
		m, err = s.drive(ctx)
	} else {
		m, err = s.serve(ctx)
	}
	m.Mode = s.dev.mode()
	if err == nil && !s.source() {
		if at, ok := s.shape.verify(s.mr.Bytes(), len(s.qps)); !ok {
			err = fmt.Errorf("wrong data: byte %d of %d is %#x", at, len(s.mr.Bytes()), s.mr.Bytes()[at])
		}
	}
	return m, err
}

// drive keeps messages under way, and ends when all that was posted has completed.
func (s *stream) drive(ctx context.Context) (trial.Measure, error) {
	var (
		p     = newPump(s.rig, s.qps, s.shape)
		lists = s.shape.sends(s.op, s.mr, 0, s.peer, 0)
		meter = newMeter(s.dev, s.spec)
	)
	for {
		if !meter.over || p.posted < len(lists) {
			if err := p.post(lists); err != nil {
				return meter.measure, err
			}
		}
		n, err := p.take(ctx)
		if err != nil {
			return meter.measure, err
		}
		if n == 0 {
			continue
		}
		if s.used(p.done) {
			meter.at(p.done, uint64(s.shape.size))
		}
		if meter.over && p.inFlight == 0 && p.posted >= len(lists) {
			return meter.measure, nil
		}
	}
}

// used reports whether, after so many messages, each queue pair has been used, and has made
// its queues.
func (s *stream) used(messages uint64) bool {
	return messages >= uint64(2*len(s.qps)*s.shape.burst)
}

// serve is the other end.
func (s *stream) serve(ctx context.Context) (trial.Measure, error) {
	meter := newMeter(s.dev, s.spec)
	switch {
	case s.op == roce.Send:
		return s.receive(ctx, meter)
	case s.spec.Wait:
		<-ctx.Done()
	default:
		serve(ctx, s.dev, meter)
	}
	return meter.measure, nil
}

// serve drives the device of an end that has nothing else to do.
func serve(ctx context.Context, dev device, meter *meter) {
	for turn := 0; ; turn++ {
		if turn%256 == 0 {
			meter.at(0, 0)
			if ctx.Err() != nil {
				return
			}
		}
		dev.Progress()
	}
}

// receiver keeps receives posted.
type receiver struct {
	lists  [][]roce.RecvWR
	posted int // lists
	used   int // receives to be posted again
	into   interface {
		PostRecvs([]roce.RecvWR) (int, error)
	}
}

func (r *receiver) post() error {
	_, err := r.into.PostRecvs(r.lists[r.posted%len(r.lists)])
	r.posted++
	return err
}

// prepost posts all receives that can be needed, and as many again.
func (s *stream) prepost() error {
	s.receiver = receiver{lists: s.shape.recvs(s.mr), into: s.qps[0]}
	n := 2 * s.shape.depth
	if s.srq != nil {
		s.receiver.into = s.srq
	}
	for range n / s.shape.burst {
		if err := s.receiver.post(); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) receive(ctx context.Context, meter *meter) (trial.Measure, error) {
	var (
		r    = &s.receiver
		wcs  = make([]roce.WC, pollBatch)
		done = uint64(0)
	)
	for turn := 0; ; turn++ {
		n := s.cq.Poll(wcs)
		for i := range wcs[:n] {
			if err := check(&wcs[i]); err != nil {
				return meter.measure, err
			}
			if int(wcs[i].ByteLen) != s.shape.size {
				return meter.measure, fmt.Errorf("received %d bytes, want %d", wcs[i].ByteLen, s.shape.size)
			}
		}
		for r.used += n; r.used >= s.shape.burst; r.used -= s.shape.burst {
			if err := r.post(); err != nil {
				return meter.measure, err
			}
		}
		done += uint64(n)
		switch {
		case n > 0:
			if s.used(done) {
				meter.at(done, uint64(s.shape.size))
			}
		case turn%256 == 0 && ctx.Err() != nil:
			return meter.measure, nil
		default:
			if s.wait(ctx) != nil {
				return meter.measure, nil
			}
		}
	}
}
