// Package acceptor takes connection requests and does their handshakes in the background. So Accept returns
// connections that are ready to use.
package acceptor

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce"
)

const (
	defaultBacklog = 128

	// handshakeTime is how long the oldest handshake may take while other requests wait for its
	// place. An answering peer needs one round trip.
	handshakeTime = time.Second
)

// Handshake answers a request. Before it fails it rejects the request and releases everything.
// It returns soon after its context has ended.
type Handshake[C any] func(context.Context, *roce.ConnRequest) (C, error)

// Acceptor does the handshakes of a listener, each on its own goroutine so that a
// slow peer delays no other. C is the type of the connections.
//
// A place holds a handshake in progress or a connection that waits for Accept. The number of places is the
// backlog. If all places are taken, requests wait in the queue of the listener, which has the same length; more
// requests are dropped. If a request waits and the oldest handshake has taken a second, the acceptor aborts that
// handshake: so peers that do not finish cannot keep others out for longer.
type Acceptor[C any] struct {
	listener  *roce.Listener
	handshake Handshake[C]
	discard   func(C)

	places   chan struct{} // one token for each place taken
	accepted chan C        // connections that wait for Accept; capacity: all places
	stop     context.CancelFunc
	done     chan struct{} // closed when no more connections come
	err      error         // the reason, valid after done
	running  sync.WaitGroup
	closed   atomic.Bool

	mu       sync.Mutex
	attempts []*attempt // handshakes in progress, oldest first
}

// attempt is a handshake in progress.
type attempt struct {
	began  time.Time
	ctx    context.Context
	cancel context.CancelFunc
}

// Listen takes requests to an address of the device, as [roce.Device.Listen]. backlog 0
// is 128. discard ends a connection that Accept did not return, without waiting for its peer.
func Listen[C any](d *roce.Device, addr string, backlog int, handshake Handshake[C], discard func(C)) (*Acceptor[C], error) {
	if backlog <= 0 {
		backlog = defaultBacklog
	}
	ctx, stop := context.WithCancel(context.Background())
	l, err := d.Listen(ctx, addr, roce.ListenConfig{Backlog: backlog})
	if err != nil {
		stop()
		return nil, err
	}
	a := &Acceptor[C]{listener: l, handshake: handshake, discard: discard, stop: stop, done: make(chan struct{}),
		places: make(chan struct{}, backlog), accepted: make(chan C, backlog)}
	a.running.Go(func() { a.serve(ctx) })
	return a, nil
}

// serve takes requests until the listener ends.
func (a *Acceptor[C]) serve(ctx context.Context) {
	defer close(a.done)
	for {
		request, err := a.listener.Accept(ctx)
		if err == nil {
			err = a.takePlace(ctx)
			if err != nil {
				request.Reject(nil)
			}
		}
		if err != nil {
			a.err = err
			return
		}
		t := a.begin(ctx)
		a.running.Go(func() {
			c, err := a.handshake(t.ctx, request)
			a.end(t)
			if err != nil {
				<-a.places
				return
			}
			a.accepted <- c
		})
	}
}

// takePlace waits for a place. Meanwhile it aborts handshakes that take too long.
func (a *Acceptor[C]) takePlace(ctx context.Context) error {
	for {
		select {
		case a.places <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(a.evict()):
		}
	}
}

// evict aborts the oldest handshake if all places are taken and its time is over. It returns the delay until the
// next call.
func (a *Acceptor[C]) evict() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.places) < cap(a.places) || len(a.attempts) == 0 {
		return handshakeTime
	}
	if left := handshakeTime - time.Since(a.attempts[0].began); left > 0 {
		return left
	}
	a.attempts[0].cancel() // the handshake ends soon and frees its place
	a.attempts = a.attempts[1:]
	return handshakeTime
}

// begin adds a handshake to attempts.
func (a *Acceptor[C]) begin(ctx context.Context) *attempt {
	t := &attempt{began: time.Now()}
	t.ctx, t.cancel = context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts = append(a.attempts, t)
	return t
}

// end removes a handshake.
func (a *Acceptor[C]) end(t *attempt) {
	t.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts = slices.DeleteFunc(a.attempts, func(o *attempt) bool { return o == t })
}

// Accept waits for the next connection. After Close it returns net.ErrClosed. If the listener has ended because its
// device was closed, it returns that error.
func (a *Acceptor[C]) Accept(ctx context.Context) (c C, err error) {
	select {
	case <-a.done:
		return c, a.reason()
	default:
	}
	select {
	case c = <-a.accepted:
		<-a.places
		return c, nil
	case <-a.done:
		return c, a.reason()
	case <-ctx.Done():
		return c, ctx.Err()
	}
}

// reason says why no more connections come.
func (a *Acceptor[C]) reason() error {
	if a.closed.Load() {
		return net.ErrClosed
	}
	return a.err
}

// Addr returns the address and port of the listener.
func (a *Acceptor[C]) Addr() netip.AddrPort { return a.listener.Addr() }

// Close ends listening, aborts the handshakes in progress and ends the connections that wait for Accept.
// Connections that Accept has returned stay. A second call returns net.ErrClosed.
func (a *Acceptor[C]) Close() error {
	if !a.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	err := a.listener.Close()
	a.stop()
	a.running.Wait()
	for {
		select {
		case c := <-a.accepted:
			a.discard(c)
		default:
			return err
		}
	}
}
