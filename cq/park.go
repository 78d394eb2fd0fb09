package cq

import (
	"syscall"

	"github.com/goroce/roce/errs"
)

// Waiting is a work request that waits for completions (CQE_WAIT of cross-channel
// communication). Wake runs inside Publish, as Options.Notify does: it only notes that the
// work request may go on.
type Waiting interface{ Wake() }

// parked is a work request that waits until Count has reached a target.
type parked struct {
	target uint64
	who    Waiting
}

// waits is the producer's state for work requests that wait.
type waits struct {
	base   uint64 // completions that earlier lists of work requests have used up
	most   uint64 // completions that the current list waits for
	parked []parked
}

// Waitable returns the reason why a work request of a producer cannot wait for completions of
// the queue, or "" if it can.
func (c *CQ) Waitable(producer any) string {
	switch {
	case c.closed:
		return c.Object() + " is closed"
	case !c.waitable:
		return c.Object() + " was created without cross-channel communication"
	case c.producer != producer:
		return c.Object() + " is of another device or shard"
	}
	return ""
}

// SetIgnoreOverrun changes Options.IgnoreOverrun. It fails with EINVAL for a queue without
// CrossChannel: a program polls that queue and would miss the dropped completions. Only
// the producer calls it.
func (c *CQ) SetIgnoreOverrun(on bool) error {
	if !c.waitable {
		return errs.On("modify cq", c.Object(), syscall.EINVAL, "IgnoreOverrun is for queues with CrossChannel")
	}
	c.ignore = on
	return nil
}

// Count returns how many completions were pushed since the queue was created, including
// those that it dropped. Only the producer calls it.
func (c *CQ) Count() uint64 { return c.next + c.dropped.Load() }

// Await returns the Count at which a work request that waits for n completions may go on.
// Several work requests that are posted in a row wait for the same completions. last ends
// such a row: the next work request waits for the completions after the largest n of the
// row. Only the producer calls it.
func (c *CQ) Await(n uint32, last bool) (target uint64) {
	w := &c.waits
	w.most = max(w.most, uint64(n))
	target = w.base + uint64(n)
	if last {
		w.base, w.most = w.base+w.most, 0
	}
	return target
}

// Park makes the queue call who.Wake once, when Count reaches target. Until then it costs
// nothing. Only the producer calls it.
func (c *CQ) Park(target uint64, who Waiting) {
	c.waits.parked = append(c.waits.parked, parked{target, who})
	c.Arm(workRequests, false)
}

// Unpark undoes every Park of who that has not called Wake yet.
func (c *CQ) Unpark(who Waiting) {
	c.waits.keep(func(p parked) bool { return p.who != who })
}

// wakeParked wakes the parked work requests whose target is reached.
func (c *CQ) wakeParked() {
	count := c.Count()
	c.waits.keep(func(p parked) bool {
		if p.target > count {
			return true
		}
		p.who.Wake()
		return false
	})
	if len(c.waits.parked) > 0 {
		c.Arm(workRequests, false)
	}
}

// keep drops the parked work requests for which f is false.
func (w *waits) keep(f func(parked) bool) {
	kept := w.parked[:0]
	for _, p := range w.parked {
		if f(p) {
			kept = append(kept, p)
		}
	}
	clear(w.parked[len(kept):])
	w.parked = kept
}
