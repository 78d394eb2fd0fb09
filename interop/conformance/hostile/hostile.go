// Package hostile plays the scripts that control their peer (package script/library) against any device that does the verbs
// of package verbs, so that roce and rxe can be seen side by side. Most of them send packets that no well-behaved peer
// sends.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/script/library"
)

// Case is one row: a script, and what has to come of it.
type Case struct {
	Name   string
	Rule   string   // why it has to: the section of the specification, or the attack it comes from
	Want   string   // what a device that keeps to the specification does
	Others []string // what it may do as well
	Script *script.Script
}

// Panic is the outcome of a case that kills the kernel.
const Panic = "**the kernel panics**"

// us is the peer that keeps to the specification.
var us = script.Peer{Kind: "us"}

// peerOf is the peer of a kernel, "" for roce.
func peerOf(kernel string) script.Peer {
	if kernel == "" {
		return us
	}
	return script.Peer{Kind: "rxe", Series: []string{kernel}}
}

// Expected returns what may come of the case on a kernel, "" for roce.
func (c *Case) Expected(kernel string) []string {
	p := peerOf(kernel)
	if c.Script.Kills(p) {
		return []string{Panic}
	}
	return expected(c.Script, p)
}

// Right reports whether an outcome keeps to the specification.
func (c *Case) Right(outcome string) bool {
	return outcome == c.Want || slices.Contains(c.Others, outcome)
}

// expected lists the outcomes of a script for a peer. A script without one has done if its packets came.
func expected(s *script.Script, p script.Peer) []string {
	if o := s.Expected(p); o != nil {
		return o
	}
	return []string{"as the script says"}
}

// series are the kernels that variants can name.
var series = []string{"6.1", "6.12", "7"}

// Differs reports whether rxe of some kernel does not do what Want says.
func (c *Case) Differs() bool {
	for _, k := range series {
		if departs, _ := c.Script.Departs(peerOf(k)); departs {
			return true
		}
	}
	return false
}

// Why says in words how rxe differs, if it does.
func (c *Case) Why() string {
	for _, k := range series {
		if departs, why := c.Script.Departs(peerOf(k)); departs {
			return why
		}
	}
	return ""
}

// groups are the folders of the library in the order of the table.
var groups = []string{"headers", "sequence", "lengths", "keys", "duplicates", "responses", "unreliable"}

// All lists the cases in the order of the table.
func All() (all []Case) {
	add := func(s *script.Script) {
		right := expected(s, us)
		all = append(all, Case{Name: s.Title, Rule: s.Rule, Want: right[0], Others: right[1:], Script: s})
	}
	listed := map[string]bool{}
	for _, g := range groups {
		listed[g] = true
		for _, s := range library.All() {
			if strings.HasPrefix(s.Name, g+"/") && s.Controlled() {
				add(s)
			}
		}
	}
	for _, s := range library.All() { // those of other folders
		if g, _, _ := strings.Cut(s.Name, "/"); s.Controlled() && !listed[g] {
			add(s)
		}
	}
	return all
}

// Attacker is the wire from which cases are played, and the way in which their packets are sent.
type Attacker struct {
	script.Wire
	Way script.Way
}

// Close releases the port.
func (a *Attacker) Close() error { return a.Port.Close() }

// Result is what came of a case.
type Result struct {
	Got  string
	Err  error // the test could not be made, or the target does not answer any more
	Took time.Duration

	Complaints []string // what the target's kernel printed about itself
}

// RunCase injects a case into a new device context. The attacker is shared by all.
func RunCase(c Case, target verbs.Node, a *Attacker) Result {
	return run(c, a, script.Options{Peer: peerOf(target.Kernel()), Target: NewTarget(target)})
}

// run plays the script of a case.
func run(c Case, a *Attacker, o script.Options) (r Result) {
	played := script.Run(context.Background(), c.Script, &a.Wire, o)
	r = Result{Got: played.Outcome, Err: played.Err, Took: played.Took}
	if r.Got == "" {
		r.Got = "as the script says"
	}
	if m, other := errors.AsType[*script.Mismatch](r.Err); other && m.Outcome {
		r.Err = nil // Check compares it
	} else if r.Err != nil {
		var b strings.Builder
		played.Ladder(&b)
		r.Err = fmt.Errorf("%w\n%s", r.Err, b.String())
	}
	return r
}

// Check compares a result with what is expected of the target, and explains the difference.
func Check(c Case, r Result, kernel string) error {
	if r.Err != nil {
		return r.Err
	}
	want := c.Expected(kernel)
	if len(r.Complaints) > 0 && !c.Script.Warns(peerOf(kernel)) {
		return fmt.Errorf("the kernel complains: %s", strings.Join(r.Complaints, "; "))
	}
	if slices.Contains(want, r.Got) {
		return nil
	}
	text := fmt.Sprintf("came of it: %s\n   expected: %s", r.Got, strings.Join(want, " or "))
	if kernel != "" && c.Right(r.Got) {
		text += "\nwhich is what the specification wants: the difference that is expected is gone"
	}
	return errors.New(text)
}
