package roce

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// AlternatePath is a second path of a connection, for both ends to change over
// to when the first fails: usually from another address of the device to another
// one of the peer.
type AlternatePath struct {
	Local  netip.Addr // of the device. Invalid: one that fits
	Remote netip.Addr // of the peer. Required

	TrafficClass uint8
	FlowLabel    uint32 // the UDP source port follows from it. 0: that of the primary path
}

// AlternateError says that the peer of a connection did not take an alternate
// path. It wraps ECONNREFUSED; the connection stays.
type AlternateError struct {
	Status      cm.APStatus
	Info        []byte // what would do, if the peer has said so
	PrivateData []byte
}

// Error implements error.
func (e *AlternateError) Error() string {
	return fmt.Sprintf("the peer did not load the alternate path: %v (%d)", e.Status, uint8(e.Status))
}

// Unwrap makes errors.Is(err, syscall.ECONNREFUSED) true.
func (e *AlternateError) Unwrap() error { return syscall.ECONNREFUSED }

// AnyAlternate, as OnAlternate, takes any alternate path that the peer proposes and
// the device can use: the device has the address, and finds the way. The peer thus
// chooses the address that the queue pair sends to after a migration.
func AnyAlternate(cm.Path) cm.APStatus { return cm.APLoaded }

// LoadAlternate agrees with the peer on an alternate path (a LAP and its APR,
// which librdmacm has no call for), loads it into the queue pair and re-arms that;
// the peer does the same. It replaces a path that is there. The queue pair is ARMED
// at both ends once there is traffic both ways; see [QP.Rearm] for what then
// happens. After a migration the connection manager takes the new path, too, and
// another alternate path may be loaded.
//
// A refusal is an *[AlternateError] (ECONNREFUSED), a peer that does not answer
// ETIMEDOUT, after more than a minute: Linux ignores LAPs on RoCE. It is EINVAL
// when the connection is not established, has no queue pair, or is busy with
// another path. If ctx ends first the exchange goes on in the background.
func (c *Conn) LoadAlternate(ctx context.Context, p AlternatePath) error {
	if err := c.end.cm.LoadAlternate(ctx, p); err != nil {
		return fmt.Errorf("load alternate path to %v: %w", p.Remote, err)
	}
	return nil
}

// Alternate returns the alternate path that both ends have loaded, false without
// one; there is none after a migration.
func (c *Conn) Alternate() (cm.Path, bool) { return c.end.cm.Alternate() }

// alternates is what a CMConn does about alternate paths.
type alternates struct {
	way     *way      // where datagrams go after a migration; guarded by the first shard
	propose *Route    // with the REQ
	pending *proposal // LAP under way; guarded by CMConn.mu
}

// proposal is a LAP under way and who waits for its end.
type proposal struct {
	path   *frame.Path // for the queue pair
	signal chan struct{}
	done   bool // guarded by CMConn.mu, as err is
	err    error
}

// alternateTimeout bounds the search for the neighbour on a path that a peer
// proposes. It repeats itself for much longer.
const alternateTimeout = 10 * time.Second

// ProposeAlternate names the alternate path that Connect proposes with the REQ,
// nil for none. The peer need not take it: see [cm.Conn.Alternate]. The route must
// not be that of Connect.
func (c *CMConn) ProposeAlternate(r *Route) { c.alt.propose = r }

// proposal fills in what the REQ says of an alternate path. Called with the
// first shard locked.
func (c *CMConn) proposal(p *cm.ConnectParam) {
	r := c.alt.propose
	if r == nil {
		return
	}
	p.Alternate = &cm.AlternatePath{Local: r.local, Remote: r.DGID, TrafficClass: r.TrafficClass, FlowLabel: r.FlowLabel}
	c.rely(r)
}

// rely keeps the way that datagrams will take after a migration. Called with the
// first shard locked.
func (c *CMConn) rely(r *Route) {
	g := c.dev.gsi
	g.release(c.alt.way)
	g.remember(r.key(), r.path)
	c.alt.way = g.hold(r.key())
}

// AlternateOffer finds out what to answer to the alternate path of a request
// (cm.AcceptParam.Failover): FailoverAccepted if the device can take it, or there
// is none. It may wait for the neighbour's answer.
func (c *CMConn) AlternateOffer(ctx context.Context) cm.Failover {
	path, ok := c.Alternate()
	if !ok {
		return cm.FailoverAccepted
	}
	switch status := c.takeable(ctx, path); status {
	case cm.APLoaded:
		return cm.FailoverAccepted
	case cm.APUnsupported:
		return cm.FailoverUnsupported
	}
	return cm.FailoverRejected
}

// takeable finds the way for a path that the peer proposes, and asks the program.
func (c *CMConn) takeable(ctx context.Context, p cm.Path) cm.APStatus {
	if c.queuePair() == nil {
		return cm.APUnsupported
	}
	if _, ok := c.dev.gidIndex(p.LocalGID); !ok {
		return cm.APInvalidGID
	}
	ask := c.getHandler().Alternate
	if ask == nil {
		return cm.APUnsupported
	}
	if status := ask(p); status != cm.APLoaded {
		return status
	}
	r, err := c.dev.CM().Route(ctx, p.LocalGID.Addr(), p.RemoteGID.Addr(), p.TrafficClass)
	if err != nil {
		return cm.APInvalidGID
	}
	err = c.try(func(mono.Time) error {
		if _, there := c.dev.gsi.conns[c]; !there {
			return errOverMeanwhile
		}
		c.rely(r)
		return nil
	})
	if err != nil {
		return cm.APReject
	}
	return cm.APLoaded
}

// Alternate returns the alternate path: [cm.Conn.Alternate].
func (c *CMConn) Alternate() (p cm.Path, ok bool) {
	c.try(func(mono.Time) error { p, ok = c.conn.Alternate(); return nil })
	return p, ok
}

// LoadAlternate agrees with the peer on an alternate path and loads it: see
// [Conn.LoadAlternate]. It waits, so a handler must not call it.
func (c *CMConn) LoadAlternate(ctx context.Context, p AlternatePath) error {
	if c.queuePair() == nil {
		return fail("alternate path", syscall.EINVAL, "the connection has no queue pair")
	}
	attr, err := c.QPAttr()
	if err != nil {
		return err
	}
	r, err := c.dev.CM().Route(ctx, p.Local, p.Remote, p.TrafficClass)
	if err != nil {
		return err
	}
	if r.FlowLabel = p.FlowLabel; r.FlowLabel == 0 {
		r.FlowLabel = attr.FlowLabel
	}
	x := &proposal{signal: make(chan struct{}, 1)}
	if x.path, err = c.dev.resolve(ctx, r.AHAttr, frame.SourcePort(r.FlowLabel)); err != nil {
		return err
	}
	err = c.try(func(now mono.Time) error {
		err := c.conn.LoadAlternate(now, cm.AlternatePath{Local: r.local, Remote: r.DGID, TrafficClass: r.TrafficClass, FlowLabel: r.FlowLabel}, nil)
		if err != nil {
			return err
		}
		c.rely(r)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.alt.pending = x
		return nil
	})
	if err != nil {
		return err
	}
	err = c.dev.wait(ctx, x.signal, nil, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return x.done
	})
	if err != nil {
		return err
	}
	return x.err
}

func (c *CMConn) queuePair() *QP {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.qp
}

// alternate takes the events about alternate paths. No lock is held.
func (c *CMConn) alternate(ev cm.Event) {
	switch ev.Kind {
	case cm.AlternateRequest:
		if c.getHandler().Alternate == nil || !c.dev.gsi.spawn(func(ctx context.Context) { c.answer(ctx, *ev.Alternate) }) {
			c.answerAlternate(cm.APUnsupported)
		}
	case cm.AlternateResponse:
		switch x := c.proposed(); {
		case x == nil:
		case ev.Err != nil:
			c.conclude(x, ev.Err)
		case ev.AP != cm.APLoaded:
			c.conclude(x, &AlternateError{ev.AP, ev.Info, ev.Private})
		default:
			c.conclude(x, c.arm(x.path, ev.Alternate.AckTimeout))
		}
	}
}

// giveUp tells whoever waits that there will be no answer.
func (c *CMConn) giveUp(why error) {
	if x := c.proposed(); x != nil {
		c.conclude(x, why)
	}
}

// errOverMeanwhile is a connection that ended while its alternate path was
// talked about.
var errOverMeanwhile = &Error{"alternate path", "the connection is over", syscall.ENOTCONN}

// proposed takes the LAP under way.
func (c *CMConn) proposed() *proposal {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.alt.pending
	c.alt.pending = nil
	return x
}

// conclude tells whoever waits.
func (c *CMConn) conclude(x *proposal, err error) {
	c.mu.Lock()
	x.done, x.err = true, err
	c.mu.Unlock()
	select {
	case x.signal <- struct{}{}:
	default:
	}
	c.dev.nudge()
}

// answer answers a peer that proposes a path, which may mean to wait for a
// neighbour: it has a goroutine.
func (c *CMConn) answer(ctx context.Context, p cm.Path) {
	ctx, cancel := context.WithTimeout(ctx, alternateTimeout)
	defer cancel()
	status := c.takeable(ctx, p)
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
	c.dev.nudge()
}

func (c *CMConn) answerAlternate(status cm.APStatus) {
	c.try(func(now mono.Time) error { return c.conn.AnswerAlternate(now, cm.AlternateAnswer{Status: status}) })
}

// maxAnswering is how many proposed paths are looked for at a time; the others are
// refused.
const maxAnswering = 16

// spawn runs f on a goroutine that [Device.Close] waits for, and whose context it
// ends. It reports false if there are too many already. No lock is held.
func (g *gsi) spawn(f func(ctx context.Context)) (began bool) {
	g.do(func(mono.Time) {
		if g.answering == maxAnswering {
			return
		}
		began = true
		g.answering++
		g.dev.running.Go(func() {
			f(g.background)
			g.do(func(mono.Time) { g.answering-- })
		})
	})
	return began
}

// resolveAlternate makes the path of a queue pair.
func (c *CMConn) resolveAlternate(ctx context.Context, p *cm.Path) (*frame.Path, error) {
	index, ok := c.dev.gidIndex(p.LocalGID)
	if !ok {
		return nil, fail("alternate path", syscall.EADDRNOTAVAIL, "%v is not an address of the device", p.LocalGID.Addr())
	}
	return c.dev.resolveAgain(ctx, AHAttr{DGID: p.RemoteGID, SGIDIndex: index, FlowLabel: p.FlowLabel, TrafficClass: p.TrafficClass},
		frame.SourcePort(p.FlowLabel))
}

// arm loads a path into the queue pair and re-arms that, unless it is armed.
func (c *CMConn) arm(path *frame.Path, timeout uint8) error {
	q := c.queuePair()
	if q == nil {
		return fail("alternate path", syscall.EINVAL, "the connection has no queue pair")
	}
	mask := qp.AttrAltPath
	if q.MigState() == qp.Migrated {
		mask |= qp.AttrPathMigState
	}
	c.follow(q)
	return q.Modify(&Attr{AltAV: path, AltPort: 1, AltTimeout: timeout, PathMigState: qp.Rearm}, mask)
}

// follow has the connection follow the migrations of the queue pair.
func (c *CMConn) follow(q *QP) {
	q = q.core()
	q.shard.mu.Lock()
	q.follower = c
	q.shard.mu.Unlock()
}

// migrated says that the queue pair has changed over. No lock is held.
func (c *CMConn) migrated() {
	c.try(func(now mono.Time) error {
		err := c.conn.Migrated(now)
		if err == nil {
			c.way, c.alt.way = c.alt.way, c.way
		}
		return err
	})
}

// alternateRoute finds the way of an alternate path that is to be proposed.
func (d *Device) alternateRoute(ctx context.Context, p *AlternatePath) (*Route, error) {
	if p == nil {
		return nil, nil
	}
	r, err := d.CM().Route(ctx, p.Local, p.Remote, p.TrafficClass)
	if err != nil {
		return nil, fmt.Errorf("alternate path to %v: %w", p.Remote, err)
	}
	r.FlowLabel = p.FlowLabel
	return r, nil
}
