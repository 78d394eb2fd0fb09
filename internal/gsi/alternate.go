package gsi

import (
	"cmp"
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// AlternatePath is a second path of a connection; see package roce.
type AlternatePath struct {
	Local, Remote netip.Addr
	TrafficClass  uint8
	FlowLabel     uint32
}

// alternates is the state of a Conn for alternate paths.
type alternates struct {
	path    *cachedPath // for datagrams after a migration; guarded by the first shard
	propose *Route      // proposed with the REQ
	pending *proposal   // LAP in progress; guarded by Conn.mu
}

// proposal is a LAP in progress, for which LoadAlternate waits.
type proposal struct {
	path *frame.Path   // for the queue pair
	done chan struct{} // closed when there is an answer, or when there can be none
	err  error         // valid after done
}

// alternateTimeout bounds the search for the neighbour on a proposed path. The peer repeats its
// LAP for much longer.
const alternateTimeout = 10 * time.Second

// ProposeAlternate sets the alternate path that Connect proposes with the REQ, nil
// for none. The peer may refuse the path: see [cm.Conn.Alternate]. The route must
// not be that of Connect.
func (c *Conn) ProposeAlternate(r *Route) { c.alt.propose = r }

// proposal sets the fields of the alternate path in the REQ. The caller has
// locked the first shard.
func (c *Conn) proposal(p *cm.ConnectParam) {
	r := c.alt.propose
	if r == nil {
		return
	}
	p.Alternate = &cm.AlternatePath{Local: r.local, Remote: r.DGID, TrafficClass: r.TrafficClass, FlowLabel: r.FlowLabel}
	c.keepAlternate(r)
}

// keepAlternate keeps the path of datagrams after a migration. The first shard is locked.
func (c *Conn) keepAlternate(r *Route) {
	g := c.agent
	g.paths.release(c.alt.path)
	g.remember(r.key(), r.path)
	c.alt.path = g.retain(r.key())
}

// AlternateOffer returns the answer to the alternate path of a request
// (cm.AcceptParam.Failover): FailoverAccepted if the device can use the path, or
// if there is none. It may wait for the neighbour's answer.
func (c *Conn) AlternateOffer(ctx context.Context) cm.Failover {
	path, ok := c.Alternate()
	if !ok {
		return cm.FailoverAccepted
	}
	switch status := c.examine(ctx, path); status {
	case cm.APLoaded:
		return cm.FailoverAccepted
	case cm.APUnsupported:
		return cm.FailoverUnsupported
	}
	return cm.FailoverRejected
}

// examine checks whether the device can use a proposed path, and asks the program.
func (c *Conn) examine(ctx context.Context, p cm.Path) cm.APStatus {
	if c.queuePair() == nil {
		return cm.APUnsupported
	}
	if _, ok := c.agent.nic.Routes().GIDs().Index(p.LocalGID); !ok {
		return cm.APInvalidGID
	}
	ask := c.getHandler().Alternate
	if ask == nil {
		return cm.APUnsupported
	}
	if status := ask(p); status != cm.APLoaded {
		return status
	}
	r, err := c.agent.Route(ctx, p.LocalGID.Addr(), p.RemoteGID.Addr(), p.TrafficClass)
	if err != nil {
		return cm.APInvalidGID
	}
	err = c.try(func(mono.Time) error {
		if _, there := c.agent.conns[c]; !there {
			return errOverMeanwhile
		}
		c.keepAlternate(r)
		return nil
	})
	if err != nil {
		return cm.APReject
	}
	return cm.APLoaded
}

// Alternate returns the alternate path: [cm.Conn.Alternate].
func (c *Conn) Alternate() (p cm.Path, ok bool) {
	c.try(func(mono.Time) error { p, ok = c.conn.Alternate(); return nil })
	return p, ok
}

// LoadAlternate agrees with the peer on an alternate path and loads the path:
// see Conn.LoadAlternate of package roce. It waits, so a handler must not
// call it.
func (c *Conn) LoadAlternate(ctx context.Context, p AlternatePath) error {
	if c.queuePair() == nil {
		return errs.New("alternate path", syscall.EINVAL, "the connection has no queue pair")
	}
	attr, err := c.QPAttr()
	if err != nil {
		return err
	}
	r, err := c.agent.Route(ctx, p.Local, p.Remote, p.TrafficClass)
	if err != nil {
		return err
	}
	r.FlowLabel = cmp.Or(p.FlowLabel, attr.FlowLabel)
	x := &proposal{done: make(chan struct{})}
	if x.path, err = c.agent.nic.Routes().Resolve(ctx, r.Way, frame.SourcePort(r.FlowLabel)); err != nil {
		return err
	}
	err = c.try(func(now mono.Time) error {
		err := c.conn.LoadAlternate(now, cm.AlternatePath{Local: r.local, Remote: r.DGID, TrafficClass: r.TrafficClass, FlowLabel: r.FlowLabel}, nil)
		if err != nil {
			return err
		}
		c.keepAlternate(r)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.alt.pending = x
		return nil
	})
	if err != nil {
		return err
	}
	err = c.agent.nic.Wait(ctx, x.done, nil, func() bool { return notify.Closed(x.done) })
	if err != nil {
		return err
	}
	return x.err
}

func (c *Conn) queuePair() *nic.QP {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.qp
}

// alternate handles the events about alternate paths. No lock is held.
func (c *Conn) alternate(ev cm.Event) {
	switch ev.Kind {
	case cm.AlternateRequest:
		if c.getHandler().Alternate == nil || !c.agent.spawn(func(ctx context.Context) { c.answer(ctx, *ev.Alternate) }) {
			c.answerAlternate(cm.APUnsupported)
		}
	case cm.AlternateResponse:
		switch x := c.proposed(); {
		case x == nil:
		case ev.Err != nil:
			c.conclude(x, ev.Err)
		case ev.AP != cm.APLoaded:
			c.conclude(x, &cm.AlternateError{Status: ev.AP, Info: ev.Info, PrivateData: ev.Private})
		default:
			c.conclude(x, c.arm(x.path, ev.Alternate.AckTimeout))
		}
	}
}

// abandonProposal ends a waiting LoadAlternate, because there will be no
// answer.
func (c *Conn) abandonProposal(why error) {
	if x := c.proposed(); x != nil {
		c.conclude(x, why)
	}
}

// errOverMeanwhile is the error if the connection ended during the agreement on an
// alternate path.
var errOverMeanwhile = errs.New("alternate path", syscall.ENOTCONN, "the connection is over")

// proposed takes the LAP in progress and returns it, or returns nil.
func (c *Conn) proposed() *proposal {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.alt.pending
	c.alt.pending = nil
	return x
}

// conclude ends the waiting LoadAlternate.
func (c *Conn) conclude(x *proposal, err error) {
	x.err = err
	close(x.done)
	c.agent.nic.Nudge()
}

// answer answers a peer that proposes a path. It may wait for a neighbour, so it runs on a
// separate goroutine.
func (c *Conn) answer(ctx context.Context, p cm.Path) {
	ctx, cancel := context.WithTimeout(ctx, alternateTimeout)
	defer cancel()
	status := c.examine(ctx, p)
	if status == cm.APLoaded {
		path, err := c.resolveAlternate(ctx, &p)
		if err == nil {
			err = c.arm(path, p.AckTimeout)
		}
		if err != nil {
			status = cm.APReject
		}
	}
	c.answerAlternate(status)
	c.agent.nic.Nudge()
}

func (c *Conn) answerAlternate(status cm.APStatus) {
	c.try(func(now mono.Time) error { return c.conn.AnswerAlternate(now, cm.AlternateAnswer{Status: status}) })
}

// maxExamining is the number of proposed paths that the agent examines at a time; it
// refuses others.
const maxExamining = 16

// spawn runs f on a goroutine. Closing the device ends f's context and waits for
// the goroutine. spawn returns false if there are too many already. No lock is
// held.
func (g *Agent) spawn(f func(ctx context.Context)) (began bool) {
	g.do(func(mono.Time) {
		if g.examining == maxExamining {
			return
		}
		began = true
		g.examining++
		g.nic.Go(func() {
			f(g.background)
			g.do(func(mono.Time) { g.examining-- })
		})
	})
	return began
}

// resolveAlternate makes the path of a queue pair.
func (c *Conn) resolveAlternate(ctx context.Context, p *cm.Path) (*frame.Path, error) {
	index, ok := c.agent.nic.Routes().GIDs().Index(p.LocalGID)
	if !ok {
		return nil, errs.New("alternate path", syscall.EADDRNOTAVAIL, "%v is not an address of the device", p.LocalGID.Addr())
	}
	return c.agent.nic.Routes().ResolveAgain(ctx, route.Way{DGID: p.RemoteGID, SGIDIndex: index, FlowLabel: p.FlowLabel, TrafficClass: p.TrafficClass},
		frame.SourcePort(p.FlowLabel))
}

// arm loads a path into the queue pair and re-arms the queue pair, unless it
// is armed.
func (c *Conn) arm(path *frame.Path, timeout uint8) error {
	q := c.queuePair()
	if q == nil {
		return errs.New("alternate path", syscall.EINVAL, "the connection has no queue pair")
	}
	mask := qp.AttrAltPath
	var state qp.MigState
	q.View(func(e *qp.QP) { state = e.MigState() })
	if state == qp.Migrated {
		mask |= qp.AttrPathMigState
	}
	c.follow(q)
	return q.Modify(q, &qp.Attr{AltAV: qp.NewAH(path), AltPort: 1, AltTimeout: timeout, PathMigState: qp.Rearm}, mask)
}

// follow makes the connection follow the migrations of the queue pair.
func (c *Conn) follow(q *nic.QP) { q.OnMigrate(c, c.migrated) }

// migrated records that the queue pair has migrated. No lock is held.
func (c *Conn) migrated() {
	c.try(func(now mono.Time) error {
		err := c.conn.Migrated(now)
		if err == nil {
			c.path, c.alt.path = c.alt.path, c.path
		}
		return err
	})
}
