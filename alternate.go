package roce

import (
	"context"
	"net/netip"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/gsi"
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

// AnyAlternate, as OnAlternate, takes any alternate path that the peer proposes and
// the device can use: the device has the address, and finds the way. The peer thus
// chooses the address that the queue pair sends to after a migration.
func AnyAlternate(PathRecord) APStatus { return cm.APLoaded }

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
	if c.closed.Load() {
		return ErrClosed
	}
	if err := c.end.cm.LoadAlternate(ctx, gsi.AlternatePath(p)); err != nil {
		return errs.New("load alternate path", err, "to %v", p.Remote)
	}
	return nil
}

// Alternate returns the alternate path that both ends have loaded, false without
// one; there is none after a migration.
func (c *Conn) Alternate() (PathRecord, bool) { return c.end.cm.Alternate() }

// alternateRoute finds the way of an alternate path that is to be proposed.
func (d *Device) alternateRoute(ctx context.Context, p *AlternatePath) (*gsi.Route, error) {
	if p == nil {
		return nil, nil
	}
	r, err := d.cm.Route(ctx, p.Local, p.Remote, p.TrafficClass)
	if err != nil {
		return nil, errs.New("alternate path", err, "to %v", p.Remote)
	}
	r.FlowLabel = p.FlowLabel
	return r, nil
}

// LoadAlternate gives an RC or UC queue pair that is connected an alternate
// path to its peer (ibv_modify_qp with IBV_QP_ALT_PATH): usually from another
// of the device's addresses to another of the peer's. The peer must load the
// same path from its end. Nothing goes over it until the queue pair migrates;
// see [QP.Rearm]. It has the timeout of the primary path.
//
// A migration uses the alternate path up. It may be loaded again in any
// migration state, also to replace one.
func (q *QP) LoadAlternate(ctx context.Context, a AHAttr) error {
	now, _ := q.Query()
	path, err := q.resolve(ctx, a, now.DestQPN)
	if err != nil {
		return err
	}
	return q.Modify(&Attr{AltAV: path, AltPort: 1, AltTimeout: now.Timeout}, qp.AttrAltPath)
}

// Rearm says that the queue pair is ready to migrate to the alternate path it
// has loaded (IBV_MIG_REARM). Once the peer has said so too, and a packet of it
// has arrived, the migration state is ARMED. Then the queue pair migrates by
// itself when its transport retries are used up, and follows when the peer
// does: both ends raise [EventPathMig].
//
// After a migration, re-arm when both ends have migrated and what was under way
// has arrived, for instance after an exchange of messages.
func (q *QP) Rearm() error {
	return q.Modify(&Attr{PathMigState: qp.Rearm}, qp.AttrPathMigState)
}

// Migrate changes over to the alternate path now (IBV_MIG_MIGRATED). The
// migration state must be ARMED; in MIGRATED nothing happens. The peer follows
// with the next packet it gets.
func (q *QP) Migrate() error {
	return q.Modify(&Attr{PathMigState: qp.Migrated}, qp.AttrPathMigState)
}

// Path returns where the queue pair sends: ah_attr of ibv_query_qp. A migration changes it.
// SGIDIndex is 0 if the device has lost the address since. False: the queue pair has no path,
// because it is not in RTR yet or is a UD one.
func (q *QP) Path() (AHAttr, bool) {
	var p *frame.Path
	q.nic.View(func(e *qp.QP) { p = e.Path() })
	if p == nil {
		return AHAttr{}, false
	}
	c := p.Config()
	index, _ := q.dev.nic.Routes().GIDs().Index(c.Src)
	return AHAttr{DGID: c.Dst, SGIDIndex: index, FlowLabel: c.FlowLabel, TrafficClass: c.TrafficClass, HopLimit: c.HopLimit, Port: 1}, true
}

// MigState returns the path migration state.
func (q *QP) MigState() (s qp.MigState) {
	q.nic.View(func(e *qp.QP) { s = e.MigState() })
	return s
}
