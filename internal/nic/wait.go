package nic

import (
	"context"
	"time"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/internal/sched"
)

// A caller that waits on a polled NIC polls this often before it sleeps, and yields to
// other goroutines from time to time.
const (
	pollSpins = 1024
	pollYield = 64
)

// SpinFor drives a polled NIC for a short time and reports whether the condition is true.
// On other NICs it does nothing and returns false.
func (n *NIC) SpinFor(condition func() bool) bool {
	if !n.polled {
		return false
	}
	for i := range pollSpins {
		if condition() {
			return true
		}
		n.Progress()
		if i%pollYield == pollYield-1 {
			sched.Gosched()
		}
	}
	return false
}

// Wait blocks until ready reports true. It calls ready at once, and again whenever signal
// yields a token. It fails with the context's error, or with errs.ErrClosed when done or
// the NIC is closed; before that it calls ready once more.
//
// On a polled NIC the waiting callers do the work. One of them at a time is the driver:
// it does pending work and sleeps at the port when there is none. The others sleep until
// their signal comes or the driver leaves.
func (n *NIC) Wait(ctx context.Context, signal, done <-chan struct{}, ready func() bool) error {
	var driver chan<- struct{} // nil blocks: there is no driver
	if n.polled {
		driver = n.driver
	} else {
		n.Waits()
	}
	over := func(err error) error {
		if ready() {
			return nil
		}
		return err
	}
	for {
		if ready() {
			return nil
		}
		select {
		case <-done:
			return over(errs.ErrClosed)
		case <-n.done:
			return over(errs.ErrClosed)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		select {
		case driver <- struct{}{}:
			n.drive(ctx, done, ready)
			<-n.driver
		case <-signal:
		case <-done:
		case <-n.done:
		case <-ctx.Done():
		}
	}
}

// Waits records that a program waits, and thus does not poll any shard any
// more.
func (n *NIC) Waits() {
	for _, s := range n.shards {
		s.Waits()
	}
}

// portNap is the longest sleep of the driver of a polled NIC with several ports,
// because it can sleep at only one of them.
const portNap = time.Millisecond

// drive does pending work. If there was none, it sleeps at the first port until there is
// some, or until Nudge ends the sleep.
func (n *NIC) drive(ctx context.Context, done <-chan struct{}, ready func() bool) {
	for n.Progress() {
		if ready() || ctx.Err() != nil || notify.Closed(done) {
			return
		}
	}
	s := n.shards[0]
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, s.port.Wake)
		defer stop()
	}
	// A goroutine that makes ready true or closes done from now on calls Nudge.
	n.napping.Store(s)
	defer n.napping.Store(nil)
	nap := s.sleep()
	defer s.awake()
	if len(n.shards) > 1 && (nap < 0 || nap > portNap) {
		nap = portNap
	}
	if notify.Closed(done) {
		return
	}
	if ready() || s.waitAtPort(nap) {
		return
	}
	select { // the port is closed before the NIC is done
	case <-n.done:
	case <-ctx.Done():
	}
}

// linger waits until all peers have confirmed the end of their connections, or until limit
// has passed. Meanwhile the connection manager repeats its messages, because they may be
// lost.
func (n *NIC) linger(limit time.Duration) {
	s := n.shards[0]
	s.mu.Lock()
	over := n.qp1.Leaving() == 0 || n.removed.Load()
	s.mu.Unlock()
	if over || limit <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var driver chan<- struct{} // nil blocks: the background goroutine does the work
	if n.polled {
		driver = n.driver
		n.Nudge()
	}
	select {
	case <-n.drained:
	case <-ctx.Done():
	case driver <- struct{}{}:
		for len(n.drained) == 0 && ctx.Err() == nil {
			n.drive(ctx, nil, func() bool { return len(n.drained) > 0 })
		}
		<-n.driver
	}
}

// Nudge ends the sleep of the driver of a polled NIC after an event other than a packet
// or a timer for which a caller may be waiting.
func (n *NIC) Nudge() {
	if s := n.napping.Load(); s != nil {
		s.port.Wake()
	}
}
