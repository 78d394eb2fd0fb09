package ofi

import (
	"context"
	"net/netip"
	"sync"
	"syscall"

	"github.com/goroce/roce"
)

// PassiveEndpoint listens for connection requests (struct fid_pep).
type PassiveEndpoint struct {
	info    Info
	eq      *EQ
	context any

	mu       sync.Mutex
	backlog  int
	listener *roce.Listener
	stop     context.CancelFunc
	running  sync.WaitGroup
	closed   bool
}

// OpenPassive makes a passive endpoint that reports to an event queue
// (fi_passive_ep, fi_pep_bind). [PassiveEndpoint.Context] returns ctx.
func (f *Fabric) OpenPassive(i *Info, eq *EQ, ctx any) (*PassiveEndpoint, error) {
	if i == nil || i.Device == nil || eq == nil {
		return nil, fail("passive_ep", syscall.EINVAL, "an info with a device and an event queue are required")
	}
	return &PassiveEndpoint{info: *i, eq: eq, context: ctx}, nil
}

// Context returns the ctx of [Fabric.OpenPassive].
func (p *PassiveEndpoint) Context() any { return p.context }

// SetBacklog limits the requests that wait behind the request in the event queue (fi_control with
// FI_BACKLOG). Further requests are dropped, and their senders repeat them. Call it before Listen.
// 0: 128.
func (p *PassiveEndpoint) SetBacklog(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || n < 0 {
		return fail("control", syscall.EINVAL, "a backlog of %d, and an endpoint that listens: %v", n, p.listener != nil)
	}
	p.backlog = n
	return nil
}

// Listen starts to take requests (fi_listen): each is a [ConnRequest] event. The event queue has
// one at a time; the others wait in the backlog, which drops them if their senders give up.
func (p *PassiveEndpoint) Listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return fail("listen", roce.ErrClosed, "the endpoint is closed")
	case p.listener != nil:
		return fail("listen", syscall.EINVAL, "the endpoint listens already")
	}
	at := p.info.Src
	if !at.IsValid() {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	ctx, stop := context.WithCancel(context.Background())
	l, err := p.info.Device.Listen(ctx, at.String(), roce.ListenConfig{Backlog: p.backlog})
	if err != nil {
		stop()
		return err
	}
	p.listener, p.stop = l, stop
	p.running.Go(func() {
		for {
			r, err := l.Accept(ctx)
			if err != nil {
				return
			}
			p.offer(ctx, r)
		}
	})
	return nil
}

// offer reports a request and waits until the program has read it. If the endpoint is closed before, offer
// rejects the request.
func (p *PassiveEndpoint) offer(ctx context.Context, r *roce.ConnRequest) {
	i := p.info
	i.Src, i.Dest = r.LocalAddr(), r.RemoteAddr()
	i.Request = &ConnReq{r}
	e := &entry{Event: Event{Type: ConnRequest, Passive: p, Info: &i, Data: unwrapPrivate(r.PrivateData())}, taken: make(chan struct{})}
	if !p.eq.entries.Put(e) {
		r.Reject(nil)
		return
	}
	select {
	case <-e.taken:
	case <-ctx.Done():
		if len(p.eq.entries.Remove(func(o *entry) bool { return o == e })) > 0 {
			r.Reject(nil)
		}
	}
}

// Name returns the address of the listener (fi_getname).
func (p *PassiveEndpoint) Name() netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return p.info.Src
	}
	return p.listener.Addr()
}

// Close ends listening and rejects unread requests. A second call returns net.ErrClosed.
func (p *PassiveEndpoint) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fail("close", roce.ErrClosed, "the endpoint is closed already")
	}
	if p.closed = true; p.listener == nil {
		return nil
	}
	p.stop()
	err := p.listener.Close()
	p.running.Wait()
	return err
}

// ConnReq is a request to connect (fi_info->handle). Answer it with
// [Endpoint.Accept] or Reject.
type ConnReq struct{ request *roce.ConnRequest }

// Reject refuses the request (fi_reject), with up to [MaxPrivateData] bytes for
// the peer.
func (r *ConnReq) Reject(data []byte) error {
	private, err := wrapPrivate("reject", data)
	if err != nil {
		return err
	}
	return r.request.Reject(private)
}

// wrapPrivate puts the length in front of private data.
func wrapPrivate(op string, data []byte) ([]byte, error) {
	if len(data) > MaxPrivateData {
		return nil, fail(op, syscall.EINVAL, "%d bytes of private data, the limit is %d", len(data), MaxPrivateData)
	}
	return append([]byte{byte(len(data))}, data...), nil
}

// unwrapPrivate removes the length. If the length is too large, it returns all bytes.
func unwrapPrivate(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[1:][:min(int(b[0]), len(b)-1)]
}
