package roce

import (
	"context"

	"github.com/goroce/roce/qp"
)

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

// Path returns the path in use, or nil before RTR. A migration changes it.
func (q *QP) Path() *AH {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return q.engine.Path()
}

// MigState returns the path migration state.
func (q *QP) MigState() qp.MigState {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return q.engine.MigState()
}
