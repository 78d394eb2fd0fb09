package roce

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/notify"
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
	signal    notify.Chan   // has a token when there is a completion for a waiter
	solicited notify.Chan   // the same for a solicited one
	done      chan struct{} // closed with the queue
}

// CQConfig configures a completion queue of [Device.CreateCQWith] (struct
// ibv_cq_init_attr_ex).
type CQConfig struct {
	// Entries is the capacity in completions, 1 to DeviceAttr.MaxCQE. It is
	// rounded up to 2^k; [CQ.Cap] returns the result.
	Entries int

	// Shard is one of the device's shards, from 0 (comp_vector). A shard is a
	// port with its goroutine; a queue pair belongs to the shard of its
	// completion queues. Other shards hand over packets for it.
	Shard int

	// Channel receives the events that [CQ.RequestNotify] requests. Nil: the
	// queue has no channel, and a program waits for it by [CQ.Wait] only.
	Channel *CompChannel

	// CrossChannel lets work requests wait for completions of the queue, see [CQ.WaitWR].
	// With IgnoreOverrun the queue drops a completion that finds it full, counts it, and
	// raises no event.
	CrossChannel  bool
	IgnoreOverrun bool

	UserData any // returned by CQ.UserData (cq_context)
}

// CreateCQ creates a completion queue for at least n completions on the first
// shard (ibv_create_cq). If the queue is full, further completions are lost
// and raise [EventCQErr].
func (d *Device) CreateCQ(n int) (*CQ, error) { return d.CreateCQWith(CQConfig{Entries: n}) }

// CreateCQWith creates a completion queue on a chosen shard, or with a completion
// channel (ibv_create_cq, ibv_create_cq_ex). It fails with EINVAL if the number of
// entries is out of range, or if the shard or channel is not one of this device.
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
		signal: notify.New(), solicited: notify.New(), done: make(chan struct{})}
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

// notify wakes the client that requested a completion, a waiter or a completion channel. The
// caller holds the lock of the shard.
func (c *CQ) notify(who cq.Client) {
	switch who {
	case cq.Channel:
		c.channel.raise(c)
	case cq.SolicitedWaiter:
		c.solicited.Notify()
	default:
		c.signal.Notify()
	}
	c.shard.Woke()
	c.dev.nic.Nudge()
}

// Num returns the number of the queue, which names it in errors and events: 1 for the first queue
// of the device, 2 for the second, and so on.
func (c *CQ) Num() uint32 { return c.q.Num() }

// UserData returns CQConfig.UserData (cq_context).
func (c *CQ) UserData() any { return c.userData }

// Channel returns the completion channel, or nil.
func (c *CQ) Channel() *CompChannel { return c.channel }

// Resize changes the capacity to at least n completions and keeps the waiting
// ones (ibv_resize_cq). It may be called while queue pairs work and other
// goroutines poll. It fails with EINVAL if n is out of range, or less than
// the number of waiting completions.
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

// RequestNotify requests one event on the queue's completion channel
// (ibv_req_notify_cq), for the next completion. With solicitedOnly the event is
// for the next solicited completion: a receive whose message had the solicited
// event bit, or a completion in error. Completions that are already in the
// queue raise no event: poll again after RequestNotify, and wait for the
// channel only if the poll found none. Two requests before the event give one
// event, for the weaker condition. It fails with EINVAL without a channel.
func (c *CQ) RequestNotify(solicitedOnly bool) error {
	if c.channel == nil {
		return fail("request notification", syscall.EINVAL, "the completion queue was created without a completion channel")
	}
	if notify.Closed(c.done) {
		return ErrClosed
	}
	c.q.Arm(cq.Channel, solicitedOnly)
	c.shard.Waits()
	return nil
}

// Cap returns the capacity in completions.
func (c *CQ) Cap() int { return c.q.Cap() }

// Pushed returns how many completions the queue has received, apart from lost ones.
func (c *CQ) Pushed() uint64 { return c.q.Pushed() }

// Collecting tells a front end whether it may collect work requests of a program that polls: see [CQ.Collecting].
type Collecting = nic.Collecting

// Collecting returns what tells a front end whether it may collect work requests for the queue pairs of the completion queue; nil
// without [Options.Collect]. Completion queues of one shard have the same. now is the present time on the clock of its
// Until. The front end posts what it has collected before each Poll of such a queue, before other work requests of
// the queue pair, and when the device calls Options.Collect.
func (c *CQ) Collecting() (in *Collecting, now time.Duration) { return c.shard.Collecting() }

// Poll takes up to len(wcs) completions without waiting and returns their number (ibv_poll_cq). If
// there are none, Poll first does the pending work of the device: on a polled device always, on
// others if the program polls in a loop, during which the background goroutine pauses. On a lazy
// device it sends deferred posts. If other programs compete for the processor, a Poll that has
// repeatedly found nothing sleeps until a packet arrives, for 150 µs at most.
func (c *CQ) Poll(wcs []WC) int {
	if c.q.Len() == 0 {
		if c.look(); c.q.Len() == 0 {
			return 0
		}
	}
	c.mu.Lock()
	n := c.q.Poll(wcs)
	c.mu.Unlock()
	return n
}

// look does the pending work of the device, because the queue is empty.
func (c *CQ) look() {
	if !c.dev.nic.Polled() {
		c.shard.PollEmpty(c.q)
		return
	}
	c.shard.Poll(c.q)
	for i := range c.dev.nic.Shards() {
		if s := c.dev.nic.Shard(i); s != c.shard { // it may have packets for us, but another goroutine may hold its lock
			s.TryProgress()
		}
	}
}

// Wait blocks until there is a completion to poll. It returns the context's
// error, or [ErrClosed] once the queue or the device is closed and no
// completion is left. With several waiters each completion wakes at least
// one; a waiter that finds no completion waits again. Wait needs no
// completion channel and does not take its events.
func (c *CQ) Wait(ctx context.Context) error {
	return c.await(ctx, c.signal, cq.Waiter, func() bool { return c.q.Len() > 0 })
}

// WaitSolicited is Wait for a solicited completion: a receive whose message had
// the solicited event bit, or a completion in error. It returns as long as the
// queue has one, at any position.
func (c *CQ) WaitSolicited(ctx context.Context) error {
	return c.await(ctx, c.solicited, cq.SolicitedWaiter, c.q.HasSolicited)
}

// await blocks until ready returns true: the queue then has a completion for
// waiters of this kind.
func (c *CQ) await(ctx context.Context, signal notify.Chan, kind cq.Client, ready func() bool) error {
	if c.dev.nic.SpinFor(ready) || kind == cq.Waiter && c.shard.SpinFor(ctx, c.q, c.done) {
		return nil
	}
	c.shard.Blocks()
	defer c.shard.Waited()
	if c.dev.nic.Lazy() && !ready() {
		c.dev.nic.SendDeferred()
	}
	err := c.dev.nic.Wait(ctx, signal, c.done, func() bool {
		c.q.Arm(kind, kind == cq.SolicitedWaiter)
		return ready()
	})
	if ready() {
		signal.Notify() // this caller may have taken the token of another one, which still waits
		c.dev.nic.Nudge()
		return nil
	}
	return err
}

// Next waits for one completion and takes it. For a completion in error it
// returns no error: check its Status.
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

// Close destroys the queue (ibv_destroy_cq) and drops its pending events. It
// fails with EBUSY while queue pairs use it.
func (c *CQ) Close() error {
	return c.dev.closeOnce(&c.closed, func() error {
		if err := c.q.Close(); err != nil {
			return err
		}
		close(c.done)
		c.channel.release(c)
		c.dev.events.drop(func(e *Event) bool { return e.CQ == c })
		c.dev.nic.Nudge()
		return nil
	})
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
