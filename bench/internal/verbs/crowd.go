//go:build linux

package verbs

import (
	"context"
	"time"

	"github.com/goroce/roce/bench/internal/stats"
	"github.com/goroce/roce/bench/internal/trial"
)

// NewScaling makes the roles of a stream over many queue pairs, which takes turns of some
// milliseconds with one over a single queue pair of the same device.
func NewScaling(s trial.Spec) (trial.Role, error) {
	r, err := NewStream(s)
	if err != nil || s.QPs <= 1 {
		return r, err
	}
	return &crowd{r.(*stream)}, nil
}

// crowd is a stream whose last queue pair is the single one.
type crowd struct{ *stream }

func (c *crowd) Prepare() (any, error) {
	if _, err := c.stream.Prepare(); err != nil {
		return nil, err
	}
	config := c.config
	config.Caps.MaxSendWR = c.shape.perQP(1)
	if err := c.add(config); err != nil {
		return nil, err
	}
	return c.offer(), nil
}

func (c *crowd) Run(ctx context.Context) (trial.Measure, error) {
	if !c.spec.Active {
		return c.stream.Run(ctx)
	}
	m, err := c.measure(ctx)
	m.Mode = c.dev.mode()
	return m, err
}

// measure measures the many, and as Value their rate to that of the one.
func (c *crowd) measure(ctx context.Context) (m trial.Measure, err error) {
	var (
		last  = len(c.qps) - 1
		many  = newPump(c.rig, c.qps[:last], c.shape)
		one   = newPump(c.rig, c.qps[last:], c.shape)
		lists = c.shape.sends(c.op, c.mr, 0, c.peer, 0)
		start = time.Now().Add(c.spec.Warmup)
	)
	for !c.used(many.done) || time.Now().Before(start) {
		if _, err := many.turn(ctx, lists); err != nil {
			return m, err
		}
	}
	before, err := one.turn(ctx, lists)
	if err != nil {
		return m, err
	}
	var (
		end          = time.Now().Add(c.spec.Duration)
		counters     = c.dev.Counters()
		ratios, ones []float64
		length       time.Duration
	)
	for len(ratios) == 0 || time.Now().Before(end) {
		those, err := many.turn(ctx, lists)
		if err != nil {
			return m, err
		}
		after, err := one.turn(ctx, lists)
		if err != nil {
			return m, err
		}
		m.Messages += those.messages
		length += those.took
		// That one before and one behind the other count the same keeps out what slowly changes.
		alone := (before.rate() + after.rate()) / 2
		ratios, ones = append(ratios, those.rate()/alone), append(ones, alone)
		before = after
	}
	now := c.dev.Counters()
	m.Seconds, m.Bytes = length.Seconds(), m.Messages*uint64(c.shape.size)
	m.Retrans, m.Drops = now.RetransPkts-counters.RetransPkts, now.Link.RxDrops-counters.Link.RxDrops
	m.Value = stats.Median(ratios)
	m.Extra = map[string]float64{"one": stats.Median(ones), "turns": float64(len(ratios))}
	return m, nil
}
