//go:build linux

package verbs

import (
	"context"
	"fmt"

	"github.com/goroce/roce"
)

// pump keeps messages under way: lists of work requests, posted to one queue pair after
// the other.
type pump struct {
	*rig
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

func newPump(r *rig, sh shape) *pump {
	return &pump{rig: r, shape: sh, perQP: sh.perQP(len(r.qps)), busy: make([]int, len(r.qps)), wcs: make([]roce.WC, pollBatch)}
}

// post posts lists in turn, as long as not too much is under way.
func (p *pump) post(lists [][]roce.SendWR) error {
	for p.inFlight+p.shape.burst <= p.shape.depth {
		i := p.posted % len(p.qps)
		if p.busy[i]+p.shape.burst > p.perQP {
			break
		}
		list := lists[p.posted%len(lists)]
		list[len(list)-1].ID = uint64(i)
		if _, err := p.qps[i].PostSends(list); err != nil {
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
