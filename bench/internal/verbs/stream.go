//go:build linux

package verbs

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

var opcodes = map[string]roce.Opcode{"SEND": roce.Send, "WRITE": roce.Write, "READ": roce.Read, result.SplitWrite: roce.Write}

// NewStream makes the roles of a stream of messages over one queue pair or many. The active end
// posts; the other end receives or, for WRITE and READ, drives its device. At the end the roles compare the data.
func NewStream(s harness.Spec) (harness.Role, error) {
	op, ok := opcodes[s.Op]
	if !ok || s.Size <= 0 {
		return nil, fmt.Errorf("no stream of %q of %d bytes", s.Op, s.Size)
	}
	s.SRQ = (s.SRQ || s.QPs > 1) && op == roce.Send && !s.Active
	one := func() *stream { return &stream{spec: s, op: op, shape: shapeOf(s)} }
	if s.Shards < 2 {
		return one(), nil
	}
	all := &shards{spec: s}
	for range s.Shards {
		all.streams = append(all.streams, one())
	}
	return all, nil
}

type stream struct {
	spec  harness.Spec
	op    roce.Opcode
	shape shape
	*endpoint
	receiver receiver
}

func (s *stream) Prepare() (any, error) {
	dev, err := open(s.spec)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(dev, 0); err != nil {
		dev.Close()
		return nil, err
	}
	return s.offer(), nil
}

// prepare makes the objects of the stream on a shard of a device.
func (s *stream) prepare(dev device, shard int) (err error) {
	sendWR, recvWR := s.shape.perQP(s.spec.QPs), 1
	if s.op == roce.Send && !s.spec.Active {
		sendWR, recvWR = 1, 2*s.shape.depth
	}
	if s.endpoint, err = newEndpointOn(dev, shard, s.spec, s.shape.memory(), sendWR, recvWR); err != nil {
		return err
	}
	if s.source() {
		s.shape.fill(s.mr.Bytes(), len(s.qps))
	}
	return nil
}

// source reports whether this end sends the data; otherwise it receives the data.
func (s *stream) source() bool { return s.spec.Active == (s.op != roce.Read) }

func (s *stream) Connect(b json.RawMessage) error {
	if err := s.endpoint.Connect(b); err != nil || s.op != roce.Send || s.spec.Active {
		return err
	}
	return s.prepost()
}

func (s *stream) Run(ctx context.Context) (m harness.Measure, err error) {
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

// drive keeps messages in flight. It returns when all posted messages have completed.
func (s *stream) drive(ctx context.Context) (harness.Measure, error) {
	var (
		p     = newPump(s.endpoint, s.qps, s.shape)
		lists = s.shape.sends(s.op, s.mr, 0, s.peer, 0)
		meter = newMeter(s.dev, s.spec)
	)
	for {
		if !meter.over || p.posted < len(lists) {
			if err := p.fill(lists); err != nil {
				return meter.measure, err
			}
		}
		n, err := p.poll(ctx)
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

// used reports whether after so many messages each queue pair has sent some, and so has allocated its queues.
func (s *stream) used(messages uint64) bool {
	return messages >= uint64(2*len(s.qps)*s.shape.burst)
}

// serve is the loop of the end that posts no sends.
func (s *stream) serve(ctx context.Context) (harness.Measure, error) {
	meter := newMeter(s.dev, s.spec)
	if s.op == roce.Send {
		return s.receive(ctx, meter)
	}
	if s.spec.Wait {
		<-ctx.Done()
	}
	for polls := 0; ; polls++ {
		if polls%256 == 0 {
			meter.at(0, 0)
			if ctx.Err() != nil {
				return meter.measure, nil
			}
		}
		s.dev.Progress()
	}
}

// receiver keeps receives posted.
type receiver struct {
	lists  [][]roce.RecvWR
	posted int // lists
	used   int // completed receives that are not posted again yet
	into   interface {
		PostRecvs([]roce.RecvWR) (int, error)
	}
}

func (r *receiver) post() error {
	_, err := r.into.PostRecvs(r.lists[r.posted%len(r.lists)])
	r.posted++
	return err
}

// prepost posts receives for twice as many messages as can be in flight.
func (s *stream) prepost() error {
	s.receiver = receiver{lists: s.shape.recvs(s.mr), into: s.qps[0]}
	if s.srq != nil {
		s.receiver.into = s.srq
	}
	for range 2 * s.shape.depth / s.shape.burst {
		if err := s.receiver.post(); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) receive(ctx context.Context, meter *meter) (harness.Measure, error) {
	var (
		r    = &s.receiver
		wcs  = make([]roce.WC, pollBatch)
		done = uint64(0)
	)
	for polls := 0; ; polls++ {
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
		case polls%256 == 0 && ctx.Err() != nil:
			return meter.measure, nil
		default:
			if s.wait(ctx) != nil {
				return meter.measure, nil
			}
		}
	}
}
