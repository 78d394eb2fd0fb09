package nic

import (
	"context"
	"runtime"
	"time"

	"github.com/goroce/roce/errs"
)

// A caller that waits on a polled NIC polls that often before it sleeps, which takes some
// 50 µs, and lets other goroutines run now and then.
const (
	pollSpins = 1024
	pollYield = 64
)

// SpinFor drives a polled NIC for a while and reports whether the condition holds now. On
// other NICs it does nothing and reports false.
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
			runtime.Gosched()
		}
	}
	return false
}

// Wait blocks until ready reports true. It asks at once, and again whenever signal yields a
// token. It fails with the context's error, or with errs.ErrClosed when done or the NIC is
// closed, in which case ready is asked once more first.
//
// On a polled NIC the callers that wait do the work. One of them at a time is the driver:
// it handles what there is and sleeps at the port when there is nothing. The others sleep
// until their signal comes or the driver leaves.
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

// Waits notes that a program waits: it polls no more, on whichever shard.
func (n *NIC) Waits() {
	for _, s := range n.shards {
		s.Waits()
	}
}

// portNap is how long the driver of a polled NIC sleeps at most if there are several
// ports: it can sleep at one of them only.
const portNap = time.Millisecond

// drive does the work there is and, if there was none, sleeps at the first port until there
// is some, or until Nudge ends the sleep.
func (n *NIC) drive(ctx context.Context, done <-chan struct{}, ready func() bool) {
	for n.Progress() {
		if ready() || ctx.Err() != nil || isClosed(done) {
			return
		}
	}
	s := n.shards[0]
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, s.port.Wake)
		defer stop()
	}
	// A goroutine that makes ready true or closes done from now on calls Nudge.
	n.napping.Store(true)
	defer n.napping.Store(false)
	nap := s.sleep()
	defer s.awake()
	if len(n.shards) > 1 && (nap < 0 || nap > portNap) {
		nap = portNap
	}
	if isClosed(done) {
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

// linger waits until all peers have confirmed that their connections are over, or the time
// is up: what the connection manager has sent may be lost, and it repeats it.
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

// isClosed reports whether a channel that carries nothing is closed; nil is not.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Nudge ends the sleep of the driver of a polled NIC, because something happened that a
// caller may be waiting for, other than a packet or a timer.
func (n *NIC) Nudge() {
	if n.napping.Load() {
		n.shards[0].port.Wake()
	}
}
