package roce

import (
	"context"
	"runtime"
	"time"
)

// Who waits at a polled device looks that often for what it waits for before it
// sleeps, which takes some 50 µs, and lets others run now and then.
const (
	pollSpins = 1024
	pollYield = 64
)

// spinFor drives a polled device for a while and reports whether there is now
// what someone waits for. On others it does nothing.
func (d *Device) spinFor(there func() bool) bool {
	if !d.polled {
		return false
	}
	for i := range pollSpins {
		if there() {
			return true
		}
		d.Progress()
		if i%pollYield == pollYield-1 {
			runtime.Gosched()
		}
	}
	return false
}

// wait blocks until ready says so, and until then calls it whenever signal
// yields a token. It fails with the context's error, or with ErrClosed when
// done is closed or the device is; then too ready is asked first.
//
// On a polled device the waiters do the work. One of them at a time is the
// driver: it handles what there is and sleeps at the port when there is
// nothing. The others sleep until their signal comes or the driver leaves.
func (d *Device) wait(ctx context.Context, signal, done <-chan struct{}, ready func() bool) error {
	var driver chan<- struct{} // nil blocks: nobody drives
	if d.polled {
		driver = d.driver
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
			return over(ErrClosed)
		case <-d.done:
			return over(ErrClosed)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		select {
		case driver <- struct{}{}:
			d.drive(ctx, done, ready)
			<-d.driver
		case <-signal:
		case <-done:
		case <-d.done:
		case <-ctx.Done():
		}
	}
}

// portNap is how long the driver of a polled device sleeps at most if the
// device has several ports: it can sleep at one of them only.
const portNap = time.Millisecond

// drive does what there is to do and, if that was nothing, sleeps at the first
// port until there is something, or it is nudged: done may be closed.
func (d *Device) drive(ctx context.Context, done <-chan struct{}, ready func() bool) {
	for d.Progress() {
		if ready() || ctx.Err() != nil || isClosed(done) {
			return
		}
	}
	s := d.shards[0]
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, s.port.Wake)
		defer stop()
	}
	// Whoever makes ready true or closes done from now on calls nudge.
	d.napping.Store(true)
	defer d.napping.Store(false)
	nap := s.sleep()
	defer s.awake()
	if len(d.shards) > 1 && (nap < 0 || nap > portNap) {
		nap = portNap
	}
	if isClosed(done) {
		return
	}
	if ready() || s.rest(nap) {
		return
	}
	select { // the port is closed before the device is done
	case <-d.done:
	case <-ctx.Done():
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

// nudge ends the sleep of the driver of a polled device, because something
// happened that a waiter may be waiting for, other than a packet or a timer.
func (d *Device) nudge() {
	if d.napping.Load() {
		d.shards[0].port.Wake()
	}
}
