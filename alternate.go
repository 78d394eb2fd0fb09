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

// AlternatePath is a second path of a connection, to which both ends migrate
// when the first fails: usually from another address of the device to another
// address of the peer.
type AlternatePath struct {
	Local  netip.Addr // of the device. Invalid: the device chooses
	Remote netip.Addr // of the peer. Required

	TrafficClass uint8
	FlowLabel    uint32 // determines the UDP source port. 0: that of the primary path
}

// AnyAlternate is a function for OnAlternate. It accepts any alternate path that
// the device can use: the device has the address, and finds a route. The peer thus
// chooses the address to which the queue pair sends after a migration.
func AnyAlternate(PathRecord) APStatus { return cm.APLoaded }

// LoadAlternate agrees with the peer on an alternate path (by a LAP and its APR,
// for which librdmacm has no call), loads the path into the queue pair and re-arms
// the queue pair; the peer does the same. The path replaces an existing alternate
// path. Both queue pairs are ARMED once there is traffic in both directions; see
// [QP.Rearm] for the effect. After a migration the connection manager uses the new
// path, too, and the program may load another alternate path.
//
// If the peer refuses, the error is an *[AlternateError] (ECONNREFUSED). If the
// peer does not answer, it is ETIMEDOUT after more than a minute: Linux ignores
// LAPs on RoCE. It is EINVAL if the connection is not established, has no queue
// pair, or is busy with another path. If ctx ends first, the exchange continues
// in the background.
func (c *Conn) LoadAlternate(ctx context.Context, p AlternatePath) error {
	if c.closed.Load() {
		return ErrClosed
	}
	if err := c.end.cm.LoadAlternate(ctx, gsi.AlternatePath(p)); err != nil {
		return errs.New("load alternate path", err, "to %v", p.Remote)
	}
	return nil
}

// Alternate returns the alternate path that both ends have loaded. It returns
// false if there is none, as after a migration.
func (c *Conn) Alternate() (PathRecord, bool) { return c.end.cm.Alternate() }

// alternateRoute finds the route of an alternate path before the device
// proposes it.
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

// LoadAlternate gives a connected RC or UC queue pair an alternate path to
// its peer (ibv_modify_qp with IBV_QP_ALT_PATH): usually from another of the
// device's addresses to another of the peer's. The peer must load the same
// path from its end. No packet uses the path until the queue pair migrates;
// see [QP.Rearm]. The path has the timeout of the primary path.
//
// After a migration there is no alternate path. The program may load one in
// any migration state, also to replace another.
func (q *QP) LoadAlternate(ctx context.Context, a AHAttr) error {
	now, _ := q.Query()
	path, err := q.resolve(ctx, a, now.DestQPN)
	if err != nil {
		return err
	}
	return q.Modify(&Attr{AltAV: path, AltPort: 1, AltTimeout: now.Timeout}, qp.AttrAltPath)
}

// Rearm makes the queue pair ready to migrate to its alternate path
// (IBV_MIG_REARM). When the peer has re-armed, too, and a packet of the peer
// has arrived, the migration state is ARMED. Then the queue pair migrates when
// its transport retries are used up, or when the peer migrates: both ends raise
// [EventPathMig].
//
// After a migration, re-arm when both ends have migrated and all packets in
// flight have arrived, for instance after an exchange of messages.
func (q *QP) Rearm() error {
	return q.Modify(&Attr{PathMigState: qp.Rearm}, qp.AttrPathMigState)
}

// Migrate migrates to the alternate path now (IBV_MIG_MIGRATED). The migration
// state must be ARMED; in MIGRATED nothing happens. The peer migrates when it
// receives the next packet.
func (q *QP) Migrate() error {
	return q.Modify(&Attr{PathMigState: qp.Migrated}, qp.AttrPathMigState)
}

// Path returns the destination of the queue pair: ah_attr of ibv_query_qp. A migration
// changes it. SGIDIndex is 0 if the device has lost the source address. Path returns false if
// the queue pair has no path, because it is not in RTR yet or is a UD queue pair.
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
