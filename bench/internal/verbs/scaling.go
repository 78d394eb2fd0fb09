//go:build linux

package verbs

import (
	"context"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/stats"
)

// NewScaling makes the roles of a stream over many queue pairs. Its slots of some milliseconds
// alternate with those of a stream over a single queue pair of the same device.
func NewScaling(s harness.Spec) (harness.Role, error) {
	r, err := NewStream(s)
	if err != nil || s.QPs <= 1 {
		return r, err
	}
	return &scaling{r.(*stream)}, nil
}

// scaling is a stream whose last queue pair is the single one.
type scaling struct{ *stream }

func (s *scaling) Prepare() (any, error) {
	if _, err := s.stream.Prepare(); err != nil {
		return nil, err
	}
	config := s.config
	config.Caps.MaxSendWR = s.shape.perQP(1)
	if err := s.add(config); err != nil {
		return nil, err
	}
	return s.offer(), nil
}

// Run measures the rate of the many queue pairs, and as Value the ratio to that of the one.
func (s *scaling) Run(ctx context.Context) (m harness.Measure, err error) {
	if !s.spec.Active {
		return s.stream.Run(ctx)
	}
	var (
		last  = len(s.qps) - 1
		many  = newPump(s.endpoint, s.qps[:last], s.shape)
		one   = newPump(s.endpoint, s.qps[last:], s.shape)
		lists = s.shape.sends(s.op, s.mr, 0, s.peer, 0)
		start = time.Now().Add(s.spec.Warmup)
	)
	for !s.used(many.done) || time.Now().Before(start) {
		if _, err := many.slot(ctx, lists); err != nil {
			return m, err
		}
	}
	before, err := one.slot(ctx, lists)
	if err != nil {
		return m, err
	}
	var (
		end          = time.Now().Add(s.spec.Duration)
		counters     = s.dev.Counters()
		ratios, ones []float64
		length       time.Duration
	)
	for len(ratios) == 0 || time.Now().Before(end) {
		those, err := many.slot(ctx, lists)
		if err != nil {
			return m, err
		}
		after, err := one.slot(ctx, lists)
		if err != nil {
			return m, err
		}
		m.Messages += those.messages
		length += those.took
		// The mean of the slots before and after cancels slow changes of the machine.
		alone := (before.rate() + after.rate()) / 2
		ratios, ones = append(ratios, those.rate()/alone), append(ones, alone)
		before = after
	}
	now := s.dev.Counters()
	m.Seconds, m.Bytes = length.Seconds(), m.Messages*uint64(s.shape.size)
	m.Retrans, m.Drops = now.RetransPkts-counters.RetransPkts, now.Link.RxDrops-counters.Link.RxDrops
	m.Value = stats.Median(ratios)
	m.Extra = map[string]float64{"one": stats.Median(ones), "turns": float64(len(ratios))}
	m.Mode = s.dev.mode()
	return m, nil
}
