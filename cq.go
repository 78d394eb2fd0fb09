package roce

import (
	"context"
	"runtime"
	"sync"
	"syscall"

	"github.com/goroce/roce/cq"
)

// CQ is a completion queue (struct ibv_cq). Its methods may be called from any
// goroutine.
type CQ struct {
	dev    *Device
	shard  *shard
	q      *cq.CQ
	closed bool // guarded by the device

	mu     sync.Mutex    // one poller at a time
	signal chan struct{} // holds a token when a completion that was waited for is there
	done   chan struct{} // closed with the queue
}

// CreateCQ creates a completion queue for at least n completions
// (ibv_create_cq). Completions that find it full are lost and raise
// [EventCQErr].
func (d *Device) CreateCQ(n int) (*CQ, error) { return d.CreateCQOn(0, n) }

// CreateCQOn is CreateCQ on one of the device's shards, from 0 (the comp_vector
// of ibv_create_cq). A shard is a port with its goroutine; queue pairs live on
// the shard of their completion queues. Packets that arrive at another port are
// handed on.
func (d *Device) CreateCQOn(shard, n int) (*CQ, error) {
	if shard < 0 || shard >= len(d.shards) {
		return nil, fail("create cq", syscall.EINVAL, "shard %d, the device has %d", shard, len(d.shards))
	}
	if d.closing.Load() {
		return nil, ErrClosed
	}
	c := &CQ{dev: d, shard: d.shards[shard], signal: make(chan struct{}, 1), done: make(chan struct{})}
	var err error
	c.q, err = cq.New(n, cq.Options{Notify: c.notify, Overflow: func() { d.raise(Event{Type: EventCQErr, CQ: c}) }})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// notify wakes one who waits.
func (c *CQ) notify() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
	c.dev.nudge()
}

// Cap returns how many completions fit.
func (c *CQ) Cap() int { return c.q.Cap() }

// Poll takes up to len(wcs) completions without waiting and returns how many
// (ibv_poll_cq). On a polled device it does the work that is waiting first.
func (c *CQ) Poll(wcs []WC) int {
	if c.dev.polled && c.q.Len() == 0 {
		c.shard.progress()
		for _, s := range c.dev.shards {
			if s != c.shard { // it may have packets for us; but someone may be at it
				s.tryProgress()
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.q.Poll(wcs)
}

// A polled device looks for a completion that often before it sleeps, which
// takes some 50 µs, and lets others run now and then.
const (
	pollSpins = 1024
	pollYield = 64
)

// Wait blocks until there is a completion to poll (ibv_req_notify_cq and
// ibv_get_cq_event in one). It returns the context's error, or [ErrClosed]
// once the queue or the device is closed and nothing is left to poll. With
// several waiters each completion wakes at least one; whoever finds nothing
// waits again.
func (c *CQ) Wait(ctx context.Context) error {
	if c.dev.polled {
		for i := range pollSpins {
			if c.q.Len() > 0 {
				return nil
			}
			c.dev.Progress()
			if i%pollYield == pollYield-1 {
				runtime.Gosched()
			}
		}
	}
	err := c.dev.wait(ctx, c.signal, c.done, func() bool {
		c.q.Arm(false)
		return c.q.Len() > 0
	})
	if c.q.Len() > 0 {
		c.notify() // for another waiter, who may have lost the token to us
		return nil
	}
	return err
}

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
	if c.closed {
		return ErrClosed
	}
	if err := c.q.Close(); err != nil {
		return err
	}
	c.closed = true
	close(c.done)
	c.dev.nudge()
	return nil
}
