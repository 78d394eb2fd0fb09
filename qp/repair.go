package qp

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// Recovery is what RC and XRC queue pairs do when packets are lost or reordered.
type Recovery uint8

// The kinds of recovery. The ends negotiate nothing: a peer of another
// kind, or of an older version, sees packets that the standard allows.
const (
	// RecoverDefault is RecoverGoBack.
	RecoverDefault Recovery = iota

	// RecoverGoBack has the requester send everything behind a loss again, as the standard
	// describes it.
	RecoverGoBack

	// RecoverReads has the requester keep READ responses that arrive behind a missing one and
	// ask for the missing one alone.
	RecoverReads

	// RecoverAll is RecoverReads, and the responder holds requests that arrive behind a
	// missing one, and the requester sends the missing one alone to a peer that holds.
	RecoverAll
)

var recoveryNames = map[Recovery]string{RecoverDefault: "default", RecoverGoBack: "go-back", RecoverReads: "reads", RecoverAll: "all"}

func (r Recovery) String() string { return name(recoveryNames, r, "Recovery") }

// ParseRecovery returns the Recovery of a name. ok is false if there is none.
func ParseRecovery(s string) (r Recovery, ok bool) {
	for r, n := range recoveryNames {
		if n == s {
			return r, true
		}
	}
	return RecoverDefault, false
}

// Valid reports whether r is one of the constants.
func (r Recovery) Valid() bool { return r <= RecoverAll }

// Repair is the memory that the queue pairs of one owner share to repair losses one packet at a time. Like a queue
// pair, it is not safe for concurrent use.
type Repair struct {
	reads  []*readRepair // free
	holds  []*hold       // free
	single bool          // requesters send single requests to a peer that holds
	budget int           // limit of the bytes of all holds, in use or free
	made   int           // bytes of all holds
	packet frame.Packet  // the held request that is executed
}

// NewRepair returns the memory that a recovery needs: nil if the queue pairs go back.
func NewRepair(r Recovery) *Repair {
	if r == RecoverDefault || r == RecoverGoBack {
		return nil
	}
	return NewRepairWithin(r, DefaultHoldBudget)
}

// NewRepairWithin is NewRepair for a budget of bytes that responders may hold.
func NewRepairWithin(r Recovery, budget int) *Repair {
	p := new(Repair)
	if r == RecoverAll {
		p.budget, p.single = budget, true
	}
	return p
}

// Lent returns how many bytes are lent to responders that hold at present.
func (r *Repair) Lent() int {
	n := r.made
	for _, h := range r.holds {
		n -= len(h.mem)
	}
	return n
}

// repairBy sets the shared memory with which a new queue pair repairs losses. With nil it goes back, and needs no
// memory for what repairs learn.
func (q *QP) repairBy(r *Repair) {
	if q.repair = r; r != nil {
		q.requester.learnt, q.requester.single, q.responder.learnt = new(learnt), new(single), new(peerHabits)
	}
}

// dueRepair has emitRepairs look for missing responses that may be asked for.
func (r *requester) dueRepair() { r.repairDue, r.repairing = true, true }

// emitRepairs sends the next packet of a repair, no faster than congestion control allows. others reports whether
// there are requests that are not repairs, and whether they may follow.
func (q *QP) emitRepairs(now mono.Time, sink frame.Sink) (res emission, others bool) {
	r := &q.requester
	if q.cc != nil && (r.single.due || r.repairDue) && q.cc.hold() {
		return idle, false
	}
	if r.single.on {
		if r.single.due {
			if res = q.emitSingle(now, sink); res != idle || q.state == Err {
				return res, false
			}
		}
		if r.single.peer == trial {
			return idle, false
		}
	}
	if r.repairDue {
		if res = q.emitMissing(now, sink); res != idle {
			return res, false
		}
	}
	r.repairing = r.single.on
	return idle, q.sq.cur != q.sq.tail || r.probe
}

// repaired counts and pays for a request that a repair has sent again.
func (q *QP) repaired(repairs *uint64) {
	q.cnt.SentPkts++
	q.cnt.RetransPkts++
	q.incidents().Retransmitted++
	*repairs++
	if q.cc != nil {
		q.cc.spend()
	}
}

// repairTimeouts handles the deadlines of repairs and of gaps that have been reached.
func (q *QP) repairTimeouts(now mono.Time) {
	if !now.Before(q.requester.repairAt) {
		q.requester.repairAt = mono.Never
		q.requester.dueRepair()
	}
	if !now.Before(q.requester.single.wakeAt) {
		q.singleTimeout(now)
	}
	if !now.Before(q.responder.gapDue) {
		q.gapTimeout(now)
	}
}
