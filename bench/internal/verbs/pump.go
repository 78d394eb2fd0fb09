//go:build linux

package verbs

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// pump keeps messages under way: lists of work requests, posted to one queue pair after
// the other.
type pump struct {
	*rig
	on       []*roce.QP // which post
	shape    shape
	perQP    int       // most messages of a queue pair
	busy     []int     // messages of each under way
	wcs      []roce.WC // room
	idle     int       // polls that have brought nothing
	inFlight int       // messages under way
	posted   int       // lists
	done     uint64    // messages
}

// pollBatch is how many completions are taken at a time.
const pollBatch = 256

// newPump makes one over some queue pairs of a rig.
func newPump(r *rig, qps []*roce.QP, sh shape) *pump {
	return &pump{rig: r, on: qps, shape: sh, perQP: sh.perQP(len(qps)), busy: make([]int, len(qps)), wcs: make([]roce.WC, pollBatch)}
}

// post posts lists in turn, as long as not too much is under way.
func (p *pump) post(lists [][]roce.SendWR) error {
	for p.inFlight+p.shape.burst <= p.shape.depth {
		i := p.posted % len(p.on)
		if p.busy[i]+p.shape.burst > p.perQP {
			break
		}
		list := lists[p.posted%len(lists)]
		list[len(list)-1].ID = uint64(i)
		if _, err := p.on[i].PostSends(list); err != nil {
			return err
		}
		p.busy[i] += p.shape.burst
		p.inFlight += p.shape.burst
		p.posted++
	}
	return nil
}

// take takes completions, one a list, and returns how many there were.
func (p *pump) take(ctx context.Context) (n int, err error) {
	n = p.cq.Poll(p.wcs)
	for i := range p.wcs[:n] {
		if err := check(&p.wcs[i]); err != nil {
			return n, err
		}
		p.busy[p.wcs[i].ID] -= p.shape.burst
		p.inFlight -= p.shape.burst
		p.done += uint64(p.shape.burst)
	}
	if n > 0 {
		return n, nil
	}
	if p.idle++; p.idle%256 == 0 && ctx.Err() != nil {
		return 0, fmt.Errorf("stopped with %d messages under way: %w", p.inFlight, ctx.Err())
	}
	return 0, p.wait(ctx)
}

// turn is what was done in some milliseconds, among others that are compared with it.
type turn struct {
	messages uint64
	took     time.Duration
}

func (t turn) rate() float64 { return float64(t.messages) / t.took.Seconds() }

// A turn lasts that long, and that many messages.
const (
	turnTime     = 10 * time.Millisecond
	turnMessages = 8
)

// turn posts lists until it is over and all have completed. What counts is from the first
// completions to the last before it stopped posting.
func (p *pump) turn(ctx context.Context, lists [][]roce.SendWR) (t turn, err error) {
	var (
		posted = p.posted
		began  time.Time
		from   uint64
	)
	for over := false; !over || p.inFlight > 0; {
		if !over {
			if err := p.post(lists); err != nil {
				return t, err
			}
		}
		n, err := p.take(ctx)
		switch {
		case err != nil:
			return t, err
		case n == 0 || over:
		case began.IsZero():
			began, from = time.Now(), p.done
		default:
			t = turn{p.done - from, time.Since(began)}
			over = t.took > turnTime && t.messages >= turnMessages && p.posted-posted >= len(lists)
		}
	}
	return t, nil
}
