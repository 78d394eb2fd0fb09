// Package hostile plays the scripts that control their peer (package script/library) against any device that
// implements package verbs, so that roce and rxe can be compared. Most of the scripts send packets that no
// well-behaved peer sends.
package hostile

import (
	"cmp"
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

// Case is one row: a script, and its expected outcome.
type Case struct {
	Name   string
	Rule   string   // the reason for Want: the section of the specification, or the attack from which the case comes
	Want   string   // the outcome with a device that keeps to the specification
	Others []string // other outcomes that the specification allows
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

// Expected returns the expected outcomes of the case on a kernel, "" for roce.
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

// expected lists the expected outcomes of a script for a peer. A script without an outcome passes if its expected
// packets have arrived.
func expected(s *script.Script, p script.Peer) []string {
	if o := s.Expected(p); o != nil {
		return o
	}
	return []string{"as the script says"}
}

// series are the kernels that variants can name.
var series = []string{"6.1", "6.12", "7"}

// Differs reports whether rxe of some kernel departs from Want.
func (c *Case) Differs() bool {
	departs, _ := c.departure()
	return departs
}

// Why describes the departure of rxe, if there is one.
func (c *Case) Why() string {
	_, why := c.departure()
	return why
}

func (c *Case) departure() (departs bool, why string) {
	for _, k := range series {
		if departs, why = c.Script.Departs(peerOf(k)); departs {
			return true, why
		}
	}
	return false, ""
}

// groups are the folders of the library in the order of the table. Scripts of other folders come after them.
var groups = []string{"headers", "sequence", "lengths", "keys", "duplicates", "responses", "unreliable"}

// All lists the cases in the order of the table.
func All() (all []Case) {
	for _, s := range library.All() {
		if s.Controlled() {
			right := expected(s, us)
			all = append(all, Case{Name: s.Title, Rule: s.Rule, Want: right[0], Others: right[1:], Script: s})
		}
	}
	group := func(c Case) uint { return uint(slices.Index(groups, folder(c.Script))) } // -1 becomes the largest number
	slices.SortStableFunc(all, func(a, b Case) int { return cmp.Compare(group(a), group(b)) })
	return all
}

// Attacker is the wire for playing cases, and the way in which their packets are sent.
type Attacker struct {
	script.Wire
	Way script.Way
}

// Close releases the port.
func (a *Attacker) Close() error { return a.Port.Close() }

// Result is the result of a case.
type Result struct {
	Got  string
	Err  error // the case could not run, or the target does not answer any more
	Took time.Duration

	Complaints []string // what the target's kernel printed about itself
}

// RunCase runs a case against a new device context. All cases share one attacker.
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
		r.Err = nil // Check compares the outcome
	} else if r.Err != nil {
		var b strings.Builder
		played.Ladder(&b)
		r.Err = fmt.Errorf("%w\n%s", r.Err, b.String())
	}
	return r
}

// Check compares a result with the expected outcomes of the target, and returns the difference as an error.
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
	text := fmt.Sprintf("outcome:  %s\nexpected: %s", r.Got, strings.Join(want, " or "))
	if kernel != "" && c.Right(r.Got) {
		text += "\nThis is the outcome of the specification: the expected departure has gone."
	}
	return errors.New(text)
}
