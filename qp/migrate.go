package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// MigState is the path migration state of an RC or UC queue pair, with the
// values of enum ibv_mig_state.
//
// A queue pair is MIGRATED until the program loads an alternate path and sets REARM. The two ends agree by the M bit
// (MigReq) of the BTH. It is 1 in packets that a MIGRATED queue pair sends, and 0 in others. A packet with M=0 that
// arrives in REARM means that the peer has re-armed too, and leads to ARMED. In ARMED the queue pair changes over to
// the alternate path and is MIGRATED again when the program requests it, when its transport retries are used up, or
// when a packet with M=1 arrives over the alternate path, which means that the peer has changed over. (IBTA 17.2.8,
// 10.4.)
type MigState uint8

const (
	Migrated MigState = iota // no migration is prepared; the state of a new queue pair
	Rearm                    // an alternate path is loaded, the peer has not confirmed yet
	Armed                    // both ends are ready to change over to the alternate path
)

var migStateNames = map[MigState]string{Migrated: "MIGRATED", Rearm: "REARM", Armed: "ARMED"}

func (s MigState) String() string { return name(migStateNames, s, "MigState") }

// migration is the path migration of a queue pair.
type migration struct {
	state   MigState
	bit     bth.BTHFlags // M bit of sent packets: set in MIGRATED, and while unheard
	watch   bool         // packets over the primary path may change the state, too
	unheard bool         // we changed over, and no packet has come over the new path since
	refused bool         // PATH_MIG_ERR has been raised since ARMED was entered
	timeout uint8        // local ACK timeout code on the alternate path

	others *otherPaths // nil: none was ever loaded, as in most queue pairs
}

// otherPaths are the paths of a queue pair beside its primary one.
type otherPaths struct {
	alt     *frame.Path // the alternate path; nil: none
	altEnds ends
	late    ends // of the path before the last migration; zero: none
}

// ends are the addresses of packets that arrive over a path.
type ends struct{ peer, own bth.GID }

func endsOf(p *frame.Path) ends {
	c := p.Config()
	return ends{peer: c.Dst, own: c.Src}
}

// match reports whether a packet came over the path.
func (e *ends) match(p *frame.Packet) bool { return p.Src == e.peer && p.Dst == e.own }

// alternate returns the alternate path; nil: none is loaded.
func (m *migration) alternate() *frame.Path {
	if m.others == nil {
		return nil
	}
	return m.others.alt
}

// fromAlternate reports whether a packet came over the path that was loaded last.
func (m *migration) fromAlternate(p *frame.Packet) bool {
	return m.others != nil && m.others.altEnds.match(p)
}

// fromLate reports whether a packet came over the path before the last migration.
func (m *migration) fromLate(p *frame.Packet) bool { return m.others != nil && m.others.late.match(p) }

// dropLate ends the acceptance of packets over the path before the last migration.
func (m *migration) dropLate() {
	if m.others != nil {
		m.others.late = ends{}
	}
}

// reset sets the state of a new queue pair.
func (m *migration) reset() {
	*m = migration{}
	m.enter(Migrated)
}

func (m *migration) enter(s MigState) {
	m.state, m.refused = s, false
	if s == Armed {
		m.dropLate() // it may be the alternate path now
	}
	m.update()
}

// hear notes that the peer uses the new path.
func (m *migration) hear() {
	m.unheard = false
	m.update()
}

// forget drops what belongs to the path before a migration: the program has set
// a new primary path.
func (m *migration) forget() {
	m.dropLate()
	m.hear()
}

// update computes watch and bit from state and unheard. After a migration, the peer may not know of it until its
// first packet arrives over the new path. It learns it from the M bit. So M stays 1 until then, even if the program
// sets REARM at once. The packet that caused the migration does not count: it may be an old one.
func (m *migration) update() {
	m.watch, m.bit = m.state != Migrated || m.unheard, 0
	if m.state == Migrated || m.unheard {
		m.bit = bth.MigReq
	}
}

// loadAlternate sets the alternate path.
func (q *QP) loadAlternate(p *frame.Path, timeout uint8) {
	q.mig.load(p, timeout)
	if q.cc != nil {
		q.cc.alt = q.cc.ecnPaths(p)
	}
}

// load sets the alternate path.
func (m *migration) load(path *frame.Path, timeout uint8) {
	if m.others == nil {
		m.others = new(otherPaths)
	}
	m.others.alt, m.others.altEnds, m.timeout = path, endsOf(path), timeout
}

// MigState returns the path migration state.
func (q *QP) MigState() MigState { return q.mig.state }

// migRequest is a change of the migration state that the program asks for.
type migRequest struct{ from, to MigState }

// migRefusals says why a change of the migration state is refused (IBTA
// 17.2.8: the only ones a program may ask for are MIGRATED to REARM and ARMED
// to MIGRATED). Setting what is set already does nothing, as in Linux rdmavt.
var migRefusals = map[migRequest]string{
	{Rearm, Migrated}: "the peer has not confirmed REARM yet, so it would refuse the alternate path",
	{Armed, Rearm}:    "it is ARMED already",
	{Migrated, Armed}: "only a packet of the peer leads to ARMED; ask for REARM",
	{Rearm, Armed}:    "only a packet of the peer leads to ARMED",
	{Armed, Armed}:    "only a packet of the peer leads to ARMED",
}

// checkMigration returns why Modify cannot make the requested change of the migration state, or "". to is the state
// that the queue pair enters.
func (q *QP) checkMigration(a *Attr, mask AttrMask, to State) string {
	if mask&AttrPathMigState == 0 {
		return ""
	}
	want := a.PathMigState
	why, bad := migRefusals[migRequest{q.mig.state, want}]
	switch {
	case bad:
	case want > Armed:
		why = "there is no such state"
	case want == Rearm && to != RTS:
		why = "the queue pair must be in RTS"
	case want == Rearm && q.mig.alternate() == nil && mask&AttrAltPath == 0:
		why = "no alternate path is loaded; set ALT_PATH first, or with it"
	case want == Migrated && to != RTS && to != SQD:
		why = "the queue pair must be in RTS or SQD"
	default:
		return ""
	}
	return "path migration state " + q.mig.state.String() + " to " + want.String() + ": " + why
}

// setMigState makes a change that checkMigration has accepted.
func (q *QP) setMigState(want MigState) {
	switch m := &q.mig; {
	case want == Rearm:
		m.enter(Rearm)
	case m.state == Armed:
		q.migrate()
	}
}

// setPath makes a path the primary one.
func (q *QP) setPath(p *frame.Path) {
	e := endsOf(p)
	if q.cc != nil {
		p = q.cc.setPath(p)
	}
	q.path, q.ownGID, q.peerGID, q.idents = p, e.own, e.peer, idents{}
	q.pass.Revoke()
}

// migrate changes over to the alternate path. Retries start over: those that were used say nothing about the new
// path. Outstanding packets were sent over the old path; if they are lost, the requester goes back. A later REARM
// needs a new alternate path.
func (q *QP) migrate() {
	m, r := &q.mig, &q.requester
	m.others.late = ends{peer: q.peerGID, own: q.ownGID}
	q.setPath(m.others.alt)
	m.others.alt = nil
	if q.reliable() {
		r.setTimeout(m.timeout)
	}
	r.retryLeft = r.retryCnt
	m.unheard = true
	m.enter(Migrated)
	q.cnt.PathMigrations++
	q.event(EventPathMig)
}

// exhausted is called when the transport retries are used up (IBTA
// 17.2.8): an armed queue pair tries its alternate path instead of failing.
func (q *QP) exhausted() (migrated bool) {
	if q.mig.state != Armed {
		return false
	}
	q.migrate()
	return true
}

// admit decides whether to accept a packet that did not come over the path of the queue pair, or that arrives while
// the migration state is not MIGRATED. It also changes the migration state according to the M bit (IBTA 9.6.1.5,
// 17.2.8).
//
//   - REARM, primary path, M=0, in order: the peer has re-armed: ARMED. A
//     packet that comes too late, or before others, proves nothing.
//   - ARMED, alternate path, M=1: the peer has changed over, and so does this
//     queue pair. In REARM too, for a packet in order: the peer can have changed
//     over only if it was ARMED, so its packet with M=0 was lost.
//   - ARMED, M=1 over any other path: the peer has changed over to a path that
//     this queue pair does not have. PATH_MIG_ERR, once until the state changes.
//   - The path before the migration, M=0, not ARMED again yet: a packet that was
//     in flight when the peer changed over, or sent before it knew. The standard
//     lets us refuse it. Accepting it saves RC a retransmission and UC a loss. UC
//     does not accept one that others have overtaken, to keep messages in order.
//
// Packets over the primary path are accepted whatever their M bit is: rxe does not set it.
func (q *QP) admit(p *frame.Packet) bool {
	m := &q.mig
	primary := p.Src == q.peerGID && p.Dst == q.ownGID
	moved, at := p.MigReq(), q.position(p)
	if primary && m.unheard && at != tooLate {
		m.hear()
	}
	switch {
	case q.state == Reset || q.state == Init || q.state == Err:
		// In these states the M bit means nothing.
	case !moved && !primary && m.fromLate(p) && (q.reliable() || at != tooLate):
		q.cnt.LatePath++
		return true
	case m.state == Migrated:
	case !moved && primary && m.state == Rearm && at == inOrder:
		m.enter(Armed)
	case moved && m.fromAlternate(p) && (m.state == Armed || !primary && at == inOrder):
		q.migrate()
		return true
	case moved && m.state == Armed && (!primary || at == inOrder):
		q.refuseMigration()
	}
	if !primary {
		q.cnt.WrongPeer++
	}
	return primary
}

// refuseMigration reports that the peer has changed over to a path that is not
// our alternate one.
func (q *QP) refuseMigration() {
	q.cnt.PathMigRefused++
	if m := &q.mig; !m.refused {
		m.refused = true
		q.event(EventPathMigErr)
	}
}

// position compares the PSN of a packet with the expected ones.
type position uint8

const (
	tooLate   position = iota // executed or acknowledged already, or never requested
	inOrder                   // the next one
	premature                 // some before it are missing
)

func (q *QP) position(p *frame.Packet) position {
	psn := p.PSN()
	if p.Info.Flags&bth.Request == 0 {
		if r := &q.requester; psn.Less(r.acked) || !psn.Less(r.max) {
			return tooLate
		}
		return inOrder
	}
	switch d := psn.Sub(q.responder.expect); {
	case d < 0:
		return tooLate
	case d > 0:
		return premature
	}
	return inOrder
}
