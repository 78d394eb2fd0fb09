// Package hostile injects packets that no well-behaved peer sends, one by one, into
// a device with a connected queue pair, and records what comes of each: the
// answers, the completions, the memory, the state. Any device that does the verbs
// can be the target, so that roce and rxe can be seen side by side.
package hostile

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/qp"
)

// Case is one row: what is injected, and what has to come of it.
type Case struct {
	Name string
	Rule string // why it has to: the section of the specification, or the attack it comes from
	Type qp.Type
	Recv int // receives of 2048 bytes that are posted
	Set  func(c *config)
	Do   func(x *exchange)

	Want string // what a device that keeps to the specification does
}

// Panic is the outcome of a case that kills the kernel.
const Panic = "**the kernel panics**"

// Expected returns what has to come of the case on a kernel, "" for roce.
func (c *Case) Expected(kernel string) string {
	if kernel != "" {
		for _, k := range []string{kernel, every} {
			if s, ok := differences[c.Name].rxe[k]; ok {
				return s
			}
		}
	}
	return c.Want
}

// Differs reports whether rxe of some kernel does not do what Want says.
func (c *Case) Differs() bool { return len(differences[c.Name].rxe) > 0 }

// Why says in words how rxe differs, if it does.
func (c *Case) Why() string { return differences[c.Name].why }

// All lists the cases in the order of the table.
func All() []Case {
	return slices.Concat(headerCases, sequenceCases, lengthCases, keyCases, duplicateCases, responseCases, unreliableCases)
}

// Result is what came of a case.
type Result struct {
	Got  string
	Err  error // the test could not be made, or the target does not answer any more
	Took time.Duration

	Complaints []string // what the target's kernel printed about itself
}

// RunCase injects a case into a new device context. The attacker is shared by all.
func RunCase(c Case, target verbs.Node, a *Attacker) Result {
	return run(c, target, a, (*exchange).outcome)
}

// run injects a case and has what came of it described.
func run(c Case, target verbs.Node, a *Attacker, outcome func(*exchange) string) (r Result) {
	start := time.Now()
	defer func() {
		r.Took = time.Since(start)
		switch p := recover().(type) {
		case nil:
		case broken:
			r.Err = p.err
		default:
			r.Err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	x := newExchange(c, target, a)
	c.Do(x)
	x.settle()
	return Result{Got: outcome(x)}
}

// broken ends a case by panicking.
type broken struct{ err error }

func must(err error) {
	if err != nil {
		panic(broken{err})
	}
}

func must1[V any](v V, err error) V {
	must(err)
	return v
}

func giveUp(format string, args ...any) { panic(broken{fmt.Errorf(format, args...)}) }

// Check compares a result with what is expected of the target, and explains the
// difference.
func Check(c Case, r Result, kernel string) error {
	if r.Err != nil {
		return r.Err
	}
	want := c.Expected(kernel)
	if len(r.Complaints) > 0 && !differences[c.Name].warns {
		return fmt.Errorf("the kernel complains: %s", strings.Join(r.Complaints, "; "))
	}
	if r.Got == want {
		return nil
	}
	var known []string
	if kernel != "" && r.Got == c.Want {
		known = append(known, "which is what the specification wants: the difference that is expected is gone")
	}
	return errors.New(strings.Join(append([]string{fmt.Sprintf("came of it: %s\n   expected: %s", r.Got, want)}, known...), "\n"))
}
