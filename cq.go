package roce

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/goroce/roce/cq"
)

// CQ is a completion queue (struct ibv_cq). Its methods may be called from any
// goroutine.
type CQ struct {
	dev   *Device
	shard *shard
	q     *cq.CQ

	mu     sync.Mutex    // one poller at a time
	signal chan struct{} // holds one token when a completion that was waited for is there
}

// CreateCQ creates a completion queue for at least n completions
// (ibv_create_cq). Completions that find it full are lost and raise
// [EventCQErr].
func (d *Device) CreateCQ(n int) (*CQ, error) {
	c := &CQ{dev: d, shard: d.shards[0], signal: make(chan struct{}, 1)}
	var err error
	c.q, err = cq.New(n, cq.Options{Notify: c.notify, Overflow: func() { d.raise(Event{Type: EventCQErr, CQ: c}) }})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *CQ) notify() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// Cap returns how many completions fit.
func (c *CQ) Cap() int { return c.q.Cap() }

// Poll takes up to len(wcs) completions without waiting and returns how many
// (ibv_poll_cq). On a polled device it does the work that is waiting first.
func (c *CQ) Poll(wcs []WC) int {
	if c.dev.polled && c.q.Len() == 0 {
		c.shard.progress()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.q.Poll(wcs)
}

// Wait blocks until there is a completion to poll (ibv_req_notify_cq and
// ibv_get_cq_event in one). It returns the context's error, or [ErrClosed]
// once the device is closed and nothing is left to poll. With several waiters
// each completion wakes at least one; whoever finds nothing waits again.
func (c *CQ) Wait(ctx context.Context) error {
	if c.dev.polled {
		return c.waitPolled(ctx)
	}
	for {
		c.q.Arm(false)
		if c.q.Len() > 0 {
			c.notify() // for another waiter, who may have lost the signal to us
			return nil
		}
		select {
		case <-c.signal:
		case <-c.dev.done:
			if c.q.Len() > 0 {
				return nil
			}
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitPolled does the device's work on this goroutine until a completion is
// there.
func (c *CQ) waitPolled(ctx context.Context) error {
	return c.dev.pollUntil(ctx, c.shard, func() bool { return c.q.Len() > 0 })
}

// pollUntil drives a polled device until cond holds, sleeping on s when there
// is nothing to do.
func (d *Device) pollUntil(ctx context.Context, s *shard, cond func() bool) error {
	for {
		for range pollSpins {
			d.Progress()
			if cond() {
				return nil
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case s.waiting <- struct{}{}: // one waits on the port, the others go on looking
			err := s.port.Wait(pollWait)
			<-s.waiting
			if err != nil {
				return ErrClosed
			}
		default:
			runtime.Gosched()
		}
	}
}

// A polled device looks this often before it sleeps, and sleeps at most so
// long: a timer, the end of a context or another goroutine may change things.
const (
	pollSpins = 200
	pollWait  = time.Millisecond
)

// Next waits for one completion and takes it. An error completion is not an
// error here: look at its Status.
func (c *CQ) Next(ctx context.Context) (WC, error) {
	var wc [1]WC
	for {
		if c.Poll(wc[:]) == 1 {
			return wc[0], nil
		}
		if err := c.Wait(ctx); err != nil {
			return WC{}, err
		}
	}
}

// Close destroys the queue (ibv_destroy_cq). It fails with EBUSY while queue
// pairs use it.
func (c *CQ) Close() error {
	c.dev.lockAll()
	defer c.dev.unlockAll()
	return c.q.Close()
}
