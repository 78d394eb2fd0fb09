// Package cq holds completion queues: bounded queues of work completions between
// one producer, the engine that executes work requests, and one consumer, the
// program that polls.
//
// # Concurrency
//
// One goroutine at a time may Push, or Next and Publish, and, at the same time, one
// goroutine at a time may Poll; neither waits for the other and there is no lock. Arm, Len,
// HasSolicited, Cap and Dropped may be called by any goroutine at any time. During Resize,
// Retain, Release and Close neither side may use the queue.
//
// # Memory order
//
// Publish, the last step of Push, releases the entry by an atomic store, which Poll
// reads with an atomic load. So the goroutine whose Poll returned the completion sees
// everything that the producer wrote before Publish, in particular the data of a
// received message.
//
// # Notification
//
// [CQ.Arm] asks for one call of Options.Notify, at the next completion or at the
// next solicited one, on behalf of one [Client]; each has an arm of its own. To
// wait without missing a completion: poll until empty, Arm, poll once more, then
// sleep. A completion pushed before Arm causes no notification; for one pushed
// after Arm the second poll returns it or Notify is called, often both.
package cq

import (
	"math/bits"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// MaxEntries is the largest completion queue (max_cqe).
const MaxEntries = 1 << 22

// WC is a work completion (struct ibv_wc). When Status is not [Success] only
// ID, Status, QPN and VendorErr are valid.
type WC struct {
	ID           uint64 // of the work request (wr_id)
	Status       Status
	Opcode       Opcode
	Flags        Flags
	QPN          bth.QPN  // local queue pair
	SrcQPN       bth.QPN  // remote queue pair (UD receives)
	ByteLen      uint32   // bytes of the message; a UD receive includes the 40 bytes of the GRH area
	Imm          uint32   // immediate data: the value of the big-endian field, if WithImm
	InvKey       bth.RKey // the key the peer invalidated, if WithInv
	VendorErr    uint32
	PKeyIndex    uint16
	SLID         uint16 // always 0 on RoCE, as SL and DLIDPathBits
	SL           uint8
	DLIDPathBits uint8
	IPv4         bool // with GRH: the GRH area ends with an IPv4 header; false: it is an IPv6 header
}

// Err is Status.Err.
func (w *WC) Err() error { return w.Status.Err() }

// Options are the hooks of a completion queue. Both run inside Push, on the
// producer's goroutine and under whatever lock it holds: they must not block
// and must not call back into the engine.
type Options struct {
	Num      uint32       // number of the queue in errors; 0: none
	Notify   func(Client) // a completion that the client asked for with Arm has arrived
	Overflow func()       // a completion was dropped: the async event CQ_ERR

	// CrossChannel lets work requests wait for completions of the queue. Producer is the owner that pushes the
	// completions: a work request can wait only for a queue with the same Producer.
	CrossChannel bool
	Producer     any

	// IgnoreOverrun is for a queue that nobody polls: it only counts its completions, for
	// work requests that wait for them. If it is full it drops a completion without an
	// error.
	IgnoreOverrun bool
}

// CQ is a completion queue (struct ibv_cq). The package comment says which
// methods may run at the same time.
type CQ struct {
	pages    pages
	notify   func(Client)
	overflow func()
	ignore   bool // Options.IgnoreOverrun
	waitable bool // Options.CrossChannel
	producer any

	size   atomic.Uint32 // how many completions fit: 2^k
	users  int
	closed bool
	num    uint32

	_ [64]byte // the cache line of the producer

	// tail counts pushed entries. The store in Publish releases the entry, the
	// load in Poll acquires it.
	tail    atomic.Uint64
	next    uint64 // tail, as the producer knows it
	bound   uint64 // the entries below it have room in page
	page    *page  // the page of entry next, or nil
	dropped atomic.Uint64

	solicited atomic.Uint64 // tail behind the last solicited completion

	lost WC // what [CQ.Next] returns when the queue is full

	waits waits

	_ [64]byte // the cache line of the consumer

	// head counts polled entries. The store in Poll releases the slots, and
	// after the load in Push nobody reads them any more.
	head atomic.Uint64

	_ [64]byte // written by both

	arms atomic.Uint32 // armBits for each client
}

// New creates a completion queue for at least the given number of completions
// (ibv_create_cq), rounded up to 2^k. It fails with EINVAL when
// entries is not within 1…[MaxEntries].
func New(entries int, o Options) (*CQ, error) {
	size, err := roundUp("create cq", entries)
	if err != nil {
		return nil, err
	}
	c := &CQ{num: o.Num, notify: o.Notify, overflow: o.Overflow, ignore: o.IgnoreOverrun, waitable: o.CrossChannel, producer: o.Producer, pages: newPages(size)}
	c.size.Store(size)
	return c, nil
}

// roundUp returns the next 2^k.
func roundUp(op string, entries int) (uint32, error) {
	if entries < 1 || entries > MaxEntries {
		return 0, errs.New(op, syscall.EINVAL, "%d entries, want 1 to %d", entries, MaxEntries)
	}
	return 1 << bits.Len32(uint32(entries)-1), nil
}

// Cap returns how many completions fit.
func (c *CQ) Cap() int { return int(c.size.Load()) }

// Len returns how many completions wait to be polled.
func (c *CQ) Len() int {
	h := c.head.Load() // before tail, which only grows: the difference is never negative
	return min(int(c.tail.Load()-h), c.Cap())
}

// Pushed returns how many completions were pushed, apart from lost ones.
func (c *CQ) Pushed() uint64 { return c.tail.Load() }

// Dropped returns how many completions were lost to overflow.
func (c *CQ) Dropped() uint64 { return c.dropped.Load() }

// Push adds a completion. solicited says that it is a receive whose message had the solicited event bit set. If the
// queue is full Push drops the completion, calls the Overflow hook and returns false. The queue still works, as with
// rxe. (The standard permits it to become unusable.)
func (c *CQ) Push(wc *WC, solicited bool) bool {
	e := c.Next()
	*e = *wc
	return c.Publish(e, solicited)
}

// Next returns the slot of the next completion, with all fields zero. The producer sets its
// fields and then calls [CQ.Publish], with no other call between. Next and Publish are Push
// without a copy; the copy would have to wait until the processor has stored the fields.
func (c *CQ) Next() *WC {
	if c.next == c.bound {
		return c.nextSlow()
	}
	e := &c.page[c.next%pageLen]
	*e = WC{}
	return e
}

// nextSlow is the slow path of Next, for a producer that knows of no free slot: it needs a new page,
// or the consumer has polled meanwhile, or the queue is full.
func (c *CQ) nextSlow() *WC {
	t, head := c.next, c.head.Load()
	room := head + uint64(c.size.Load()) - t
	if room == 0 {
		c.lost = WC{}
		return &c.lost
	}
	if c.page == nil || t%pageLen == 0 {
		c.page = c.pages.pageFor(t, head)
	}
	c.bound = t + min(room, pageLen-t%pageLen)
	return c.Next()
}

// Publish pushes the completion that [CQ.Next] returned; see [CQ.Push] for the rest.
func (c *CQ) Publish(e *WC, solicited bool) bool {
	if e == &c.lost {
		return c.lose()
	}
	c.next++
	c.tail.Store(c.next)
	solicited = solicited || e.Status != Success
	if solicited {
		c.solicited.Store(c.next)
	}
	// The producer loads the arms after it has stored the entry; the consumer arms before
	// it polls. So at least one of the two sees the other.
	if a := c.arms.Load(); a != 0 {
		c.fire(a, solicited)
	}
	return true
}

// lose counts a completion that a full queue drops, and reports whether the queue permits
// that.
func (c *CQ) lose() bool {
	c.dropped.Add(1)
	c.wakeParked()
	if !c.ignore && c.overflow != nil {
		c.overflow()
	}
	return c.ignore
}

// Poll takes up to len(dst) completions, oldest first, and returns how many
// (ibv_poll_cq).
func (c *CQ) Poll(dst []WC) int {
	h := c.head.Load()
	n := min(c.tail.Load()-h, uint64(len(dst)))
	if n == 0 {
		return 0
	}
	c.pages.copy(dst[:n], h)
	c.head.Store(h + n)
	return int(n)
}

// Resize changes the capacity and keeps the completions that wait
// (ibv_resize_cq). It fails with EINVAL if entries is out of range or more
// completions wait. During the call neither side may use the queue.
func (c *CQ) Resize(entries int) error {
	size, err := roundUp("resize cq", entries)
	if err != nil {
		return err
	}
	n := c.Len()
	if n > entries {
		return errs.On("resize cq", c.Object(), syscall.EINVAL, "%d completions are waiting, %d entries asked for; poll first", n, entries)
	}
	// Entries keep their numbers, so that Len, which takes no lock, stays right.
	old, head, tail := c.pages, c.head.Load(), c.tail.Load()
	c.pages, c.page = newPages(size), nil
	for i := head; i != tail; i++ {
		if c.page == nil || i%pageLen == 0 {
			c.page = c.pages.pageFor(i, head)
		}
		c.page[i%pageLen] = *old.at(i)
	}
	c.bound = tail // the producer looks for room anew
	c.size.Store(size)
	return nil
}

// Num returns the number of the queue in errors, 0 if it has none.
func (c *CQ) Num() uint32 { return c.num }

// Object names the completion queue in errors: "cq 3", or "cq" if it has no number.
func (c *CQ) Object() string {
	if c.num == 0 {
		return "cq"
	}
	return "cq " + strconv.FormatUint(uint64(c.num), 10)
}

// Retain counts one more user, a queue pair or shared receive queue; a
// completion queue with users cannot be closed. Retain fails with EINVAL if
// the queue is closed.
func (c *CQ) Retain() error {
	if c.closed {
		return errs.On("use cq", c.Object(), syscall.EINVAL, "completion queue is closed")
	}
	c.users++
	return nil
}

// Release undoes one Retain.
func (c *CQ) Release() { c.users-- }

// Close ends the completion queue (ibv_destroy_cq). It fails with EBUSY while
// it has users. Poll still returns the completions that were pushed before.
func (c *CQ) Close() error {
	switch {
	case c.closed:
		return errs.On("destroy cq", c.Object(), syscall.EINVAL, "completion queue is closed already")
	case c.users > 0:
		return errs.On("destroy cq", c.Object(), syscall.EBUSY, "%d queue pairs still use it; close them first", c.users)
	}
	c.closed = true
	return nil
}
