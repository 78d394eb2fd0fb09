package hostile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/script"
)

// delivered is the outcome of a SEND in order.
const delivered = "ACK +0 msn 1; recv SUCCESS 100 B"

// differs has the outcomes that differ with a driver, by names of driver and case: xdp cannot distinguish a wrong UDP
// checksum from one that the kernel has not completed yet, and clears it.
var differs = map[string]map[string]string{"xdp": {"wrong UDP checksum": delivered}}

// WantIn returns the expected outcomes of a case in a way: a stranger's packets have none, unless they are datagrams;
// good packets before and after change nothing. once is the outcome of the case with each packet sent eight times, one
// by one, see [RunOnce]; a run of equal packets must have that outcome. A case with several right outcomes depends on the
// time that passes between packets: it may have any of them in a run.
func (c *Case) WantIn(w script.Way, driver, once string) []string {
	d, other := differs[driver][c.Name]
	switch {
	case w.Origin != script.FromPeer && !strings.HasPrefix(c.Name, "UD:"):
		return []string{"nothing"}
	case other:
		return []string{d}
	case w.Mode == script.InRun && len(c.Others) == 0:
		return []string{once}
	}
	want := append([]string{c.Want}, c.Others...)
	if w.Mode == script.InRun {
		want = append(want, once)
	}
	return want
}

// InWays reports whether the case can be sent in other ways: its script only sends packets, and does not wait for
// packets in between.
func (c *Case) InWays() bool {
	return slices.Contains(groups, folder(c.Script)) && !c.Script.Interacts()
}

func folder(s *script.Script) string {
	f, _, _ := strings.Cut(s.Name, "/")
	return f
}

// RunOnce sends the packets of a case eight times each, one by one.
func RunOnce(c Case, target verbs.Node, a *Attacker) Result {
	defer func(w script.Way) { a.Way = w }(a.Way)
	a.Way = script.Way{Mode: script.Each}
	return RunWay(c, target, a)
}

// RunWay runs a case in the way of the attacker, against a device context that other cases use, too. The outcome leaves
// out repeated parts.
func RunWay(c Case, target verbs.Node, a *Attacker) (r Result) {
	return run(c, a, script.Options{Peer: us, Target: NewTarget(target), Way: a.Way, Silence: true, Free: true})
}

// CheckWay compares a result with the expected outcomes of the case in a way.
func CheckWay(c Case, w script.Way, r Result, driver, once string) error {
	if r.Err != nil {
		return r.Err
	}
	want := c.WantIn(w, driver, once)
	for i := range want {
		want[i] = script.Once(want[i])
	}
	if !slices.Contains(want, r.Got) {
		return fmt.Errorf("outcome:  %s\nexpected: %s", r.Got, strings.Join(want, " or "))
	}
	return nil
}
