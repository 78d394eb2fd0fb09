package roce

import (
	"context"
	"sync"
	"syscall"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/nic"
)

// CQ is a completion queue (struct ibv_cq). Its methods may be called from any
// goroutine.
type CQ struct {
	dev      *Device
	shard    *nic.Shard
	q        *cq.CQ
	channel  *CompChannel // nil: none
	userData any
	closed   bool // guarded by the device

	mu        sync.Mutex    // one poller at a time
	signal    chan struct{} // holds a token when a completion that was waited for is there
	solicited chan struct{} // the same for a solicited one
	done      chan struct{} // closed with the queue
}

// CQConfig says how [Device.CreateCQWith] makes a completion queue (struct
// ibv_cq_init_attr_ex).
type CQConfig struct {
	// Entries is how many completions it must hold, 1 to DeviceAttr.MaxCQE. It
	// is rounded up to 2^k; [CQ.Cap] tells.
	Entries int

	// Shard is one of the device's shards, from 0 (comp_vector). A shard is a
	// port with its goroutine; queue pairs live on the shard of their completion
	// queues. Packets that arrive at another port are handed on.
	Shard int

	// Channel takes the events that [CQ.RequestNotify] asks for. Nil: the queue
	// has none, and only [CQ.Wait] waits for it.
	Channel *CompChannel

	// CrossChannel lets work requests wait for completions of the queue, see [CQ.WaitWR].
	// With IgnoreOverrun they are counted only: one that finds the queue full is
	// dropped, and raises nothing.
	CrossChannel  bool
	IgnoreOverrun bool

	UserData any // what CQ.UserData returns (cq_context)
}

// CreateCQ creates a completion queue for at least n completions on the first
// shard (ibv_create_cq). Completions that find it full are lost and raise
// [EventCQErr].
func (d *Device) CreateCQ(n int) (*CQ, error) { return d.CreateCQWith(CQConfig{Entries: n}) }

// CreateCQWith creates a completion queue on a shard of the program's choice, or with a
// completion channel (ibv_create_cq, ibv_create_cq_ex). It fails with EINVAL when the
// number of entries, the shard or the channel is not one of this device.
func (d *Device) CreateCQWith(c CQConfig) (*CQ, error) {
	if c.Shard < 0 || c.Shard >= d.nic.Shards() {
		return nil, fail("create cq", syscall.EINVAL, "shard %d, the device has %d", c.Shard, d.nic.Shards())
	}
	if c.Channel != nil && c.Channel.dev != d {
		return nil, fail("create cq", syscall.EINVAL, "the completion channel is another device's")
	}
	if c.IgnoreOverrun && !c.CrossChannel {
		return nil, fail("create cq", syscall.EINVAL, "IgnoreOverrun is for queues with CrossChannel")
	}
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	q := &CQ{dev: d, shard: d.nic.Shard(c.Shard), channel: c.Channel, userData: c.UserData,
		signal: make(chan struct{}, 1), solicited: make(chan struct{}, 1), done: make(chan struct{})}
	var err error
	q.q, err = cq.New(c.Entries, cq.Options{Num: d.cqs.Add(1), Notify: q.notify,
		CrossChannel: c.CrossChannel, IgnoreOverrun: c.IgnoreOverrun, Producer: q.shard, Overflow: func() { d.raise(Event{Type: EventCQErr, CQ: q}) }})
	if err != nil {
		return nil, err
	}
	if err := c.Channel.retain(); err != nil {
		return nil, err
	}
	return q, nil
}

// notify wakes the client, a waiter or a completion channel, that asked for a completion. Called
// under the lock of the shard.
func (c *CQ) notify(who cq.Client) {
	switch who {
	case cq.Channel:
		c.channel.raise(c)
	case cq.SolicitedWaiter:
		token(c.solicited)
	default:
		token(c.signal)
	}
	c.shard.Woke()
	c.dev.nic.Nudge()
}

// Num returns the number of the queue, which names it in errors and events: 1 for the first queue
// of the device, 2 for the second, and so on.
func (c *CQ) Num() uint32 { return c.q.Num() }

// UserData returns what the queue was created with (cq_context).
func (c *CQ) UserData() any { return c.userData }

// Channel returns the completion channel, or nil.
func (c *CQ) Channel() *CompChannel { return c.channel }

// Resize changes the capacity to at least n completions and keeps those that
// wait (ibv_resize_cq). It may be called while queue pairs work and others
// poll. It fails with EINVAL when n is out of range, or fewer than there are
// completions waiting.
func (c *CQ) Resize(n int) error {
	c.shard.Lock() // the producer
	defer c.shard.Unlock()
	c.mu.Lock() // the consumers
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return c.q.Resize(n)
}

// RequestNotify asks for one event on the queue's completion channel
// (ibv_req_notify_cq): at the next completion or, with solicitedOnly, at the
// next one that is a receive whose message had the solicited event bit, or in
// error. Completions that are there already raise nothing: poll once more after
// RequestNotify, and wait for the channel only if there was none. Asking twice
// before the event gives one, for the weaker of the two conditions. EINVAL
// without a channel.
func (c *CQ) RequestNotify(solicitedOnly bool) error {
	if c.channel == nil {
		return fail("request notification", syscall.EINVAL, "the completion queue was created without a completion channel")
	}
	select {
	case <-c.done:
		return ErrClosed
	default:
	}
	c.q.Arm(cq.Channel, solicitedOnly)
	c.shard.Waits()
	return nil
}

// Cap returns how many completions fit.
func (c *CQ) Cap() int { return c.q.Cap() }

// Poll takes up to len(wcs) completions without waiting and returns how many
// (ibv_poll_cq). If there are none, it does the work that is waiting first: on a polled
// device always, on others if the program polls in a loop, for which the background goroutine then
// pauses. On a lazy device it sends what was posted. Where other programs want the processor, too, a
// Poll that finds nothing again and again sleeps until a packet comes, for 150 µs at most.
func (c *CQ) Poll(wcs []WC) int {
	if c.q.Len() == 0 {
		c.look()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.q.Poll(wcs)
}

// look is called when the queue is empty.
func (c *CQ) look() {
	switch {
	case c.dev.nic.Polled():
		c.shard.Poll(c.q)
		for i := range c.dev.nic.Shards() {
			if s := c.dev.nic.Shard(i); s != c.shard { // it may have packets for us; but someone may be at it
				s.TryProgress()
			}
		}
	default:
		c.shard.PollEmpty(c.q)
	}
}

// Wait blocks until there is a completion to poll. It returns the context's
// error, or [ErrClosed] once the queue or the device is closed and nothing is
// left to poll. With several waiters each completion wakes at least one; a
// waiter that finds nothing waits again. Wait needs no completion channel and
// takes no event of one.
func (c *CQ) Wait(ctx context.Context) error {
	return c.await(ctx, c.signal, cq.Waiter, func() bool { return c.q.Len() > 0 })
}

// WaitSolicited is Wait for a solicited completion: a receive whose message had
// the solicited event bit, or one in error. It returns as long as one waits to
// be polled, perhaps behind others.
func (c *CQ) WaitSolicited(ctx context.Context) error {
	return c.await(ctx, c.solicited, cq.SolicitedWaiter, c.q.HasSolicited)
}

// await blocks until there is what a kind of waiters waits for.
func (c *CQ) await(ctx context.Context, signal chan struct{}, who cq.Client, there func() bool) error {
	if c.dev.nic.SpinFor(there) {
		return nil
	}
	if c.dev.nic.Lazy() && !there() {
		c.dev.nic.SendDeferred()
	}
	err := c.dev.nic.Wait(ctx, signal, c.done, func() bool {
		c.q.Arm(who, who == cq.SolicitedWaiter)
		return there()
	})
	if there() {
		token(signal) // for another caller that waits, which may have lost the token to this one
		c.dev.nic.Nudge()
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

// Close destroys the queue (ibv_destroy_cq) and drops its events that the program
// has not taken. It fails with EBUSY while queue pairs use it.
func (c *CQ) Close() error {
	c.dev.nic.Lock()
	defer c.dev.nic.Unlock()
	if c.closed {
		return ErrClosed
	}
	if err := c.q.Close(); err != nil {
		return err
	}
	c.closed = true
	close(c.done)
	c.channel.release(c)
	c.dev.events.drop(func(e *Event) bool { return e.CQ == c })
	c.dev.nic.Nudge()
	return nil
}

// SetIgnoreOverrun changes CQConfig.IgnoreOverrun (ibv_exp_modify_cq with
// IBV_EXP_CQ_IGNORE_OVERRUN). EINVAL for a queue without CrossChannel.
func (c *CQ) SetIgnoreOverrun(on bool) error {
	c.shard.Lock()
	defer c.shard.Unlock()
	if c.closed {
		return ErrClosed
	}
	return c.q.SetIgnoreOverrun(on)
}
