package qp

import "github.com/goroce/roce/bth"

// MigState is the path migration state of an RC or UC queue pair, with the
// values of enum ibv_mig_state.
type MigState uint8

const (
	Migrated MigState = iota // packets use the only path there is; the state of a new queue pair
	Rearm                    // an alternate path is loaded, the peer has not confirmed yet
	Armed                    // both ends are ready to change over to the alternate path
)

var migStateNames = map[MigState]string{Migrated: "MIGRATED", Rearm: "REARM", Armed: "ARMED"}

func (s MigState) String() string { return name(migStateNames, s, "MigState") }

// migration is the path migration of a queue pair.
type migration struct {
	state MigState
	bit   bth.BTHFlags // M bit of what is sent: set in state MIGRATED only
}

// reset is the state of a new queue pair.
func (m *migration) reset() { *m = migration{state: Migrated, bit: bth.MigReq} }
