package rdmacm

import (
	"context"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
)

// LoadAlternate agrees with the peer on an alternate path for an established
// connection, loads the path into the queue pair and re-arms the queue pair;
// the peer does the same. librdmacm has no such call; ib_send_cm_lap in the
// kernel corresponds to it. It waits for the peer in either mode; there is no
// event. See [roce.Conn.LoadAlternate] for the errors and the effect.
func (id *ID) LoadAlternate(ctx context.Context, p roce.AlternatePath) error {
	const op = "load alternate path"
	conn, _, err := id.connection(op)
	if err != nil {
		return err
	}
	if err := conn.LoadAlternate(ctx, gsi.AlternatePath(p)); err != nil {
		return id.fail(op, err, "to %v", p.Remote)
	}
	return nil
}

// Alternate returns the alternate path that both ends have agreed on or, for
// a request, that the peer proposes. It returns false if there is none.
func (id *ID) Alternate() (cm.Path, bool) {
	conn, _, err := id.connection("alternate path")
	if err != nil {
		return cm.Path{}, false
	}
	return conn.Alternate()
}

// OnAlternate sets f, which is called on any goroutine when the peer proposes an
// alternate path; f must not wait. [roce.AnyAlternate] accepts any path that the
// device can use. Without f, or without a queue pair, an ID accepts none. The ID of
// a request begins with the f of its listener.
func (id *ID) OnAlternate(f func(cm.Path) cm.APStatus) {
	id.locked(func() { id.opts.onAlternate = f })
}

// mayLoad asks the program whether to accept an alternate path. No lock is held.
func (id *ID) mayLoad(p cm.Path) cm.APStatus {
	if f := id.snapshot().opts.onAlternate; f != nil {
		return f(p)
	}
	return cm.APUnsupported
}

// alternateRoute finds the route of the path that p proposes, or returns nil
// if there is none.
func (id *ID) alternateRoute(ctx context.Context, op string, p ConnParam) (*gsi.Route, error) {
	if p.Alternate == nil {
		return nil, nil
	}
	route := id.snapshot().route
	if route == nil {
		return nil, id.fail(op, syscall.EINVAL, "the route is not resolved")
	}
	a := p.Alternate
	r, err := agentOf(route.dev).Route(ctx, a.Local, a.Remote, a.TrafficClass)
	if err != nil {
		return nil, id.fail(op, err, "alternate path to %v", a.Remote)
	}
	r.FlowLabel = a.FlowLabel
	return r, nil
}
