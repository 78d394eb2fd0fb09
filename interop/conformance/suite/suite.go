// Package suite holds the conformance tests: what a verbs program may rely on, with
// the names of rdma-core's own tests where one checks the same. A test is a
// function on two sides, the requester and the responder; which they are is the
// runner's choice.
package suite

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/interop/conformance/verbs"
)

// Test is one row of the table.
type Test struct {
	Name   string        // Test…/…
	Checks string        // what it checks, in a few words
	Needs  verbs.Feature // of both sides

	NeedsRequester, NeedsResponder verbs.Feature // of one

	// Probe shows that a side does not offer what Needs names: its error counts,
	// EOPNOTSUPP or EINVAL. Nil: Needs is about the test equipment.
	Probe func(n verbs.Node) error
	// Single tests look at one side only, the requester.
	Single bool
	// Clean tests need a network that loses nothing: datagrams, UC, counted retries.
	Clean bool
	Run   func(t *T)
}

// All lists the tests in the order of the table.
func All() []Test {
	return slices.Concat(objectTests, qpTests, postTests, trafficTests, readWriteTests, atomicTests, errorTests, datagramTests, ucTests, stateTests,
		srqTests, notifyTests, windowTests, extendedTests, crossTests, dcTests)
}

// Verdict is the outcome of a test.
type Verdict int

// The verdicts. Only Fail is bad.
const (
	Pass     Verdict = iota
	Deviates         // passed; a side departed from the standard, just as expected
	NotOffered
	Fail
)

// Result is what came of a test on two sides.
type Result struct {
	Verdict Verdict
	Notes   []string // deviations, who does not offer it, or what failed
	Took    time.Duration

	// Known: the test knows a deviation of rxe, of whatever kernel; whoever the sides are.
	Known bool

	// Refused: a side has to answer with a NAK of an error. It goes to ERR and answers nothing more, so if a network loses
	// the NAK, the other side never learns the reason.
	Refused bool
}

// Run runs a test. A responder of nil is for Single tests. The sides are the
// caller's to close.
func Run(test Test, requester, responder verbs.Node) (r Result) {
	start := time.Now()
	t := &T{requester: requester, responder: responder}
	defer func() { r.Took, r.Known, r.Refused = time.Since(start), t.known, t.refused }()
	for _, side := range []struct {
		n     verbs.Node
		needs verbs.Feature
	}{{requester, test.Needs | test.NeedsRequester}, {responder, test.Needs | test.NeedsResponder}} {
		n := side.n
		if n == nil || n.Offers()&side.needs == side.needs {
			continue
		}
		if test.Probe == nil {
			return Result{Verdict: NotOffered, Notes: []string{"not offered by " + n.Label()}}
		}
		switch err := test.Probe(n); {
		case err == nil:
			return Result{Verdict: Fail, Notes: []string{n.Label() + " is said not to offer this, but does"}}
		case verbs.Errno(err) == errUnsupported || verbs.Errno(err) == errInvalid:
			return Result{Verdict: NotOffered, Notes: []string{"not offered by " + n.Label()}}
		default:
			return Result{Verdict: Fail, Notes: []string{"asking for what is not offered: " + err.Error()}}
		}
	}
	t.run(test.Run)
	switch {
	case len(t.failures) > 0:
		return Result{Verdict: Fail, Notes: t.failures}
	case len(t.deviations) > 0:
		return Result{Verdict: Deviates, Notes: t.deviations}
	}
	return Result{Verdict: Pass}
}

// T is a test that runs.
type T struct {
	requester, responder verbs.Node
	failures, deviations []string
	known                bool // some deviation of rxe
	refused              bool // a request, by a NAK
	nextID               uint64
}

// abandon ends a test by panicking: it has said why.
type abandon struct{}

func (t *T) run(f func(*T)) {
	defer func() {
		p := recover()
		if _, ended := p.(abandon); p != nil && !ended {
			t.errorf("the test panicked: %v\n%s", p, debug.Stack())
		}
	}()
	f(t)
}

// errorf records a failure.
func (t *T) errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// fatalf records a failure and ends the test.
func (t *T) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	panic(abandon{})
}

// must ends the test if a call failed that has to work.
func (t *T) must(err error) {
	if err != nil {
		t.fatalf("%v", err)
	}
}

// must1 is must for a call with a result.
func must1[V any](v V, err error) func(*T) V {
	return func(t *T) V {
		t.must(err)
		return v
	}
}

// deviation is how a kernel departs from the standard.
type deviation[V any] struct {
	kernels []string // series; nil: any
	value   V
}

// rxe says what rxe does instead, whatever the kernel.
func rxe[V any](v V) deviation[V] { return deviation[V]{value: v} }

// The others say what rxe of some kernels does instead: of Linux 6.1, from 6.12 on, and up to 6.12.
func rxe61[V any](v V) deviation[V]    { return deviation[V]{[]string{"6.1"}, v} }
func since612[V any](v V) deviation[V] { return deviation[V]{[]string{"6.12", "7"}, v} }
func until612[V any](v V) deviation[V] { return deviation[V]{[]string{"6.1", "6.12"}, v} }

// expect compares what a side did with the standard, and with the deviations that
// are known of it: one that is gone is a failure, too.
func expect[V comparable](t *T, n verbs.Node, what string, got, want V, known ...deviation[V]) {
	t.known = t.known || len(known) > 0
	if n.Kernel() != "" {
		for _, d := range known {
			if d.kernels != nil && !slices.Contains(d.kernels, n.Kernel()) {
				continue
			}
			switch {
			case got == d.value:
				t.deviation(fmt.Sprintf("%s: %v instead of %v", what, show(got), show(want)), d.kernels...)
			case got == want:
				t.errorf("%s: %s: %v, as the standard has it; the deviation that is expected (%v) is gone", n.Label(), what, show(got), show(d.value))
			default:
				t.errorf("%s: %s: %v, expected %v, or %v by the standard", n.Label(), what, show(got), show(d.value), show(want))
			}
			return
		}
	}
	if got != want {
		t.errorf("%s: %s: %v, want %v", n.Label(), what, show(got), show(want))
	}
}

// deviation notes one, of some kernels or of any.
func (t *T) deviation(s string, kernels ...string) {
	if len(kernels) > 0 {
		s += " (" + strings.Join(kernels, ", ") + ")"
	}
	if !slices.Contains(t.deviations, s) {
		t.deviations = append(t.deviations, s)
	}
}

// refused checks the errno of a call that must not work; an expected deviation of 0
// is one that works.
func refused(t *T, n verbs.Node, what string, err error, want errno, known ...deviation[errno]) {
	var broken *verbs.Error
	if err != nil && !errors.As(err, &broken) && n.Kernel() != "" {
		t.fatalf("%v", err) // the line to the agent, no errno of a verb
	}
	expect(t, n, what, errno(verbs.Errno(err)), want, known...)
}

// is reports whether a side runs one of the kernels named, any if none is.
func is(n verbs.Node, kernels ...string) bool {
	return n.Kernel() != "" && (len(kernels) == 0 || slices.Contains(kernels, n.Kernel()))
}

// show prints a value for a message.
func show(v any) string {
	s := fmt.Sprint(v)
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strings.ReplaceAll(s, "\n", " ")
}
