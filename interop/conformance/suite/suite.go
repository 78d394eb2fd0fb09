// Package suite has the conformance tests: they check what a verbs program may rely on. A test has
// the name of the corresponding test of rdma-core, if there is one. A test is a
// function of two sides, the requester and the responder. The caller chooses the implementation
// of each side.
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
	Needs  verbs.Feature // features that both sides need

	NeedsRequester, NeedsResponder verbs.Feature // features that one side needs

	// Probe tries the feature on a side that does not offer it, and must return
	// EOPNOTSUPP or EINVAL. Nil: Needs is a feature of the test equipment.
	Probe func(n verbs.Node) error
	// Single tests use one side only, the requester.
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

// Opener makes a new device context for one side of a test.
type Opener func(Test) (verbs.Node, error)

// Both opens both sides of a test.
func Both(test Test, requester, responder Opener) (a, b verbs.Node, err error) {
	if a, err = requester(test); err != nil {
		return nil, nil, err
	}
	if b, err = responder(test); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// Verdict is the outcome of a test.
type Verdict int

// The verdicts. Only Fail is bad.
const (
	Pass     Verdict = iota
	Deviates         // passed, with an expected deviation of a side from the standard
	NotOffered
	Fail
)

// Result is the result of a test on two sides.
type Result struct {
	Verdict Verdict
	Notes   []string // deviations, the side that does not offer the feature, or failures
	Took    time.Duration

	// Known: the test has an expected deviation of rxe of some kernel. It does not depend on the
	// sides.
	Known bool

	// Refused: a side answers with a NAK of an error. It then goes to ERR and sends no more
	// answers, so if the network loses the NAK, the other side never learns the reason.
	Refused bool
}

// Run runs a test and closes the sides. A Single test gets only the requester.
func Run(test Test, requester, responder verbs.Node) Result {
	var errs []error
	if test.Single {
		errs = append(errs, responder.Close())
		responder = nil
	}
	r := run(test, requester, responder)
	for _, n := range []verbs.Node{requester, responder} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		r.Verdict = Fail
		r.Notes = append(r.Notes, fmt.Sprintf("closing the sides: %v", err))
	}
	return r
}

func run(test Test, requester, responder verbs.Node) (r Result) {
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
			return Result{Verdict: Fail, Notes: []string{n.Label() + " offers this, but is not listed with it"}}
		case verbs.Errno(err) == errUnsupported || verbs.Errno(err) == errInvalid:
			return Result{Verdict: NotOffered, Notes: []string{"not offered by " + n.Label()}}
		default:
			return Result{Verdict: Fail, Notes: []string{"probing a feature that is not offered: " + err.Error()}}
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

// T is a running test.
type T struct {
	requester, responder verbs.Node
	failures, deviations []string
	known                bool // the test has an expected deviation of rxe
	refused              bool // a side answers a request with a NAK of an error
	nextID               uint64
}

// abandon is the panic that ends a test after it has recorded a failure.
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

// must ends the test if a call has failed.
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

// rxe is a deviation of rxe of every kernel.
func rxe[V any](v V) deviation[V] { return deviation[V]{value: v} }

// rxe61, since612 and until612 are deviations of rxe of some kernels: of Linux 6.1, of 6.12 and
// later, and up to 6.12.
func rxe61[V any](v V) deviation[V]    { return deviation[V]{[]string{"6.1"}, v} }
func since612[V any](v V) deviation[V] { return deviation[V]{[]string{"6.12", "7"}, v} }
func until612[V any](v V) deviation[V] { return deviation[V]{[]string{"6.1", "6.12"}, v} }

// expect compares a value of a side with the standard, and with the known deviations of
// the side. It is a failure, too, if an expected deviation does not occur.
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
				t.errorf("%s: %s: %v, as in the standard; the expected deviation (%v) has gone", n.Label(), what, show(got), show(d.value))
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

// deviation records a deviation, of some kernels or of all.
func (t *T) deviation(s string, kernels ...string) {
	if len(kernels) > 0 {
		s += " (" + strings.Join(kernels, ", ") + ")"
	}
	if !slices.Contains(t.deviations, s) {
		t.deviations = append(t.deviations, s)
	}
}

// refused checks the errno of a call that must fail. A known deviation with value success means
// that the call succeeds there.
func refused(t *T, n verbs.Node, what string, err error, want errno, known ...deviation[errno]) {
	if _, verb := errors.AsType[*verbs.Error](err); err != nil && !verb && n.Kernel() != "" {
		t.fatalf("%v", err) // an error of the connection to the agent, not of a verb
	}
	expect(t, n, what, errno(verbs.Errno(err)), want, known...)
}

// is reports whether a side is rxe of one of the given kernels, or of any kernel if none is given.
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
