package suite

import (
	"fmt"
	"strings"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
)

// watched are the counters that tell what two sides do that do not get on: nothing, or
// the same again and again. rxe and roce have the same names for them.
var watched = []string{"sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request", "rcvd_seq_err", "rcvd_rnr_err", "send_rnr_err",
	"completer_retry_err", "ack_deferred", "send_err"}

// stoodStill is the deviation of a kernel whose requester another doorbell woke.
const stoodStill = "its requester stood still until its doorbell was rung once more"

// wakeUp is for a completion that did not come. rxe's requester sleeps until an answer
// comes or enough of its packets have left, and can miss that: it looks whether it has to
// wait, and only then says that it does. Another doorbell has it look again and does nothing
// else; if that helps it is noted. Otherwise the test fails, with what both sides did
// meanwhile.
func (e *end) wakeUp(c verbs.CQ, what string) []cq.WC {
	seen := e.activity(time.Second)
	if wcs := must1(e.Poll(c.H, 1, 0))(e.t); len(wcs) > 0 {
		return wcs // it was only slow
	}
	for _, s := range []*end{e, e.peer} {
		if s == nil {
			continue
		}
		d, ok := s.Node.(verbs.Doorbell)
		if !ok {
			continue
		}
		e.t.must(d.Doorbell(s.qp.H))
		if wcs := must1(e.Poll(c.H, 1, time.Second))(e.t); len(wcs) > 0 {
			e.t.deviation(stoodStill, s.Kernel())
			return wcs
		}
	}
	e.t.fatalf("%s: no completion: %s (queue pair in %v); %s", e.Label(), what, e.state(), seen)
	return nil
}

// wakeUpEvent is for an event that did not come. The requester of rxe 6.1 raises SQ_DRAINED
// when it looks and nothing is under way, and does not look again when the last answer
// comes at the moment of the change to SQD.
func (e *end) wakeUpEvent(typ eventType, late error) verbs.Event {
	if d, ok := e.Node.(verbs.Doorbell); ok && e.qp.H != 0 {
		e.t.must(d.Doorbell(e.qp.H))
		if v, err := e.NextEvent(time.Second); err == nil {
			e.t.deviation(stoodStill, e.Kernel())
			return v
		}
	}
	e.t.fatalf("%s: event %v did not come: %v", e.Label(), typ, late)
	return verbs.Event{}
}

// activity says what both sides counted within some time.
func (e *end) activity(d time.Duration) string {
	sides := []*end{e}
	if e.peer != nil {
		sides = append(sides, e.peer)
	}
	look := func() (counts [][]uint64) {
		for _, s := range sides {
			var c []uint64
			for _, name := range watched {
				c = append(c, must1(s.Counter(name))(e.t))
			}
			counts = append(counts, c)
		}
		return counts
	}
	before := look()
	time.Sleep(d)
	after := look()
	var b strings.Builder
	fmt.Fprintf(&b, "within %v", d)
	for i, s := range sides {
		fmt.Fprintf(&b, ", %s:", s.Label())
		idle := true
		for k, name := range watched {
			if n := after[i][k] - before[i][k]; n > 0 {
				fmt.Fprintf(&b, " %s %d", name, n)
				idle = false
			}
		}
		if idle {
			b.WriteString(" nothing")
		}
	}
	return b.String()
}
