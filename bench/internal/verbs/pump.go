//go:build linux

package verbs

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// pump keeps messages in flight: it posts lists of work requests to one queue pair after the
// other.
type pump struct {
	end      *endpoint
	on       []*roce.QP // to post to
	shape    shape
	perQP    int       // most messages of a queue pair
	busy     []int     // messages in flight of each
	wcs      []roce.WC // room for completions
	idle     int       // polls without a completion
	inFlight int       // messages
	posted   int       // lists
	done     uint64    // messages
}

// pollBatch is the maximum number of completions of one poll.
const pollBatch = 256

// newPump makes a pump over some queue pairs of an endpoint.
func newPump(e *endpoint, qps []*roce.QP, sh shape) *pump {
	return &pump{end: e, on: qps, shape: sh, perQP: sh.perQP(len(qps)), busy: make([]int, len(qps)), wcs: make([]roce.WC, pollBatch)}
}

// fill posts lists until the allowed number of messages is in flight.
func (p *pump) fill(lists [][]roce.SendWR) error {
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

// poll polls for completions, one for each list, and returns how many there were.
func (p *pump) poll(ctx context.Context) (n int, err error) {
	n = p.end.cq.Poll(p.wcs)
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
		return 0, fmt.Errorf("stopped with %d messages in flight: %w", p.inFlight, ctx.Err())
	}
	return 0, p.end.wait(ctx)
}

// slot is the result of some milliseconds of posting. Slots of compared streams alternate.
type slot struct {
	messages uint64
	took     time.Duration
}

func (s slot) rate() float64 { return float64(s.messages) / s.took.Seconds() }

// A slot is at least this long, in time and in messages.
const (
	slotTime     = 10 * time.Millisecond
	slotMessages = 8
)

// slot posts lists until the slot is over, and waits for all completions. It counts from the
// first completions to the last ones before it stopped posting.
func (p *pump) slot(ctx context.Context, lists [][]roce.SendWR) (s slot, err error) {
	var (
		posted = p.posted
		began  time.Time
		from   uint64
	)
	for over := false; !over || p.inFlight > 0; {
		if !over {
			if err := p.fill(lists); err != nil {
				return s, err
			}
		}
		n, err := p.poll(ctx)
		switch {
		case err != nil:
			return s, err
		case n == 0 || over:
		case began.IsZero():
			began, from = time.Now(), p.done
		default:
			s = slot{p.done - from, time.Since(began)}
			over = s.took > slotTime && s.messages >= slotMessages && p.posted-posted >= len(lists)
		}
	}
	return s, nil
}
