package suite

import (
	"fmt"
	"strings"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
)

// watched are the counters that show the activity of two sides whose transfer does not make
// progress. They may do nothing, or repeat the same packets. rxe and roce have the same names for
// these counters.
var watched = []string{"sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request", "rcvd_seq_err", "rcvd_rnr_err", "send_rnr_err",
	"completer_retry_err", "ack_deferred", "send_err"}

// stoodStill is the deviation of a kernel whose requester continued only after another doorbell.
const stoodStill = "its requester stood still until its doorbell was rung once more"

// wakeUp is called when a completion has not come. rxe's requester sleeps until an answer arrives
// or enough of its packets have left, and can miss that wake-up, because it checks whether it must
// wait before it sets the flag that it is waiting. Another doorbell makes it check again, and has
// no other effect. If that helps, wakeUp records the deviation. Otherwise the test fails, with the
// activity of both sides in the message.
func (e *end) wakeUp(c verbs.CQ, what string) []cq.WC {
	seen := e.activity(time.Second)
	if wcs := must1(e.Poll(c.H, 1, 0))(e.t); len(wcs) > 0 {
		return wcs // the completion was only late
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

// wakeUpEvent is called when an event has not come. The requester of rxe 6.1 raises SQ_DRAINED
// if nothing is in flight when it checks. It does not check again if the last answer
// arrives during the change to SQD.
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

// activity returns how much the watched counters of both sides have increased within the time d.
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
