// Package acceptor takes connection requests and does their handshakes in the
// background, for listeners whose connections are ready to use when Accept returns
// them.
package acceptor

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/goroce/roce"
)

// Acceptor does the handshakes of a listener, each on its own goroutine so that a
// slow peer holds up nobody. C is what comes of them.
type Acceptor[C any] struct {
	listener  *roce.Listener
	handshake func(context.Context, *roce.ConnRequest) (C, error)
	discard   func(context.Context, C)

	accepted chan C
	stop     context.CancelFunc // ends the handshakes under way
	done     chan struct{}
	running  sync.WaitGroup
	closing  sync.Once
}

// Listen takes requests to an address of the device, as [roce.Device.Listen].
// handshake answers one, and has told the peer if it fails; discard ends what
// nobody accepted.
func Listen[C any](d *roce.Device, addr string, handshake func(context.Context, *roce.ConnRequest) (C, error),
	discard func(context.Context, C)) (*Acceptor[C], error) {
	ctx, stop := context.WithCancel(context.Background())
	l, err := d.Listen(ctx, addr, nil)
	if err != nil {
		stop()
		return nil, err
	}
	a := &Acceptor[C]{listener: l, handshake: handshake, discard: discard, accepted: make(chan C), stop: stop, done: make(chan struct{})}
	a.running.Go(func() { a.serve(ctx) })
	return a, nil
}

func (a *Acceptor[C]) serve(ctx context.Context) {
	for {
		request, err := a.listener.Accept(ctx)
		if err != nil {
			return
		}
		a.running.Go(func() {
			c, err := a.handshake(ctx, request)
			if err != nil {
				return
			}
			select {
			case a.accepted <- c:
			case <-a.done:
				a.discard(ctx, c)
			}
		})
	}
}

// Accept waits for the next connection. net.ErrClosed after Close.
func (a *Acceptor[C]) Accept(ctx context.Context) (c C, err error) {
	select {
	case c = <-a.accepted:
		return c, nil
	case <-a.done:
		return c, net.ErrClosed
	case <-ctx.Done():
		return c, ctx.Err()
	}
}

// Addr returns the address and port that is listened on.
func (a *Acceptor[C]) Addr() netip.AddrPort { return a.listener.Addr() }

// Close takes no more connections and waits until all handshakes are over; what
// Accept returned stays. net.ErrClosed the second time.
func (a *Acceptor[C]) Close() error {
	err := net.ErrClosed
	a.closing.Do(func() {
		close(a.done)
		err = a.listener.Close()
		a.stop()
		a.running.Wait()
	})
	return err
}
