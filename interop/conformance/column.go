//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/conformance/ours"
	"github.com/goroce/roce/interop/conformance/suite"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
)

// column is a pairing with its roles: one column of the table.
type column struct {
	name    string // as on the command line and in the output
	heading string // of the table
	// The second column of a pairing leaves out tests of one side only, which the first column
	// has run.
	second bool
	asks   func(suite.Test) bool // whether the column runs the test; nil: all
	usual  time.Duration         // how long a test usually takes while other columns run
	// open makes the two sides of a test.
	open func(suite.Test) (requester, responder verbs.Node, err error)
}

// run runs one test on two new sides.
func (c *column) run(test suite.Test) suite.Result {
	if test.Single && c.second || c.asks != nil && !c.asks(test) {
		return suite.Result{Verdict: notApplicable}
	}
	requester, responder, err := c.open(test)
	if err != nil {
		return suite.Result{Verdict: suite.Fail, Notes: []string{fmt.Sprintf("the two sides could not be opened: %v", err)}}
	}
	return suite.Run(test, requester, responder)
}

// notApplicable is the verdict of a test that a column leaves out.
const notApplicable suite.Verdict = -1

// pairOf opens two sides with one function each.
func pairOf(requester, responder suite.Opener) func(suite.Test) (verbs.Node, verbs.Node, error) {
	return func(test suite.Test) (verbs.Node, verbs.Node, error) { return suite.Both(test, requester, responder) }
}

// memColumn is roce and roce over a switch in the process.
func memColumn() column {
	return column{name: "mem", heading: "mem", usual: testUsual, open: func(test suite.Test) (verbs.Node, verbs.Node, error) {
		s := ours.NewSwitch()
		open := func(last byte) suite.Opener {
			return func(suite.Test) (verbs.Node, error) { return s.Open(last, nil) }
		}
		return suite.Both(test, open(1), open(2))
	}}
}

// faults are the faults of the raw pairing's network in each direction.
var faults = fault.Rates{Loss: 0.01, Dup: 0.02, Reorder: 0.02}

// harm are the faults between roce and rxe with -harm. The rates are higher, because most tests
// have few packets.
var harm = fault.Rates{Loss: 0.05, Dup: 0.05, Reorder: 0.05}

// unfaulty is a network without faults.
var unfaulty fault.Config

// namespace runs a function in a network namespace.
type namespace func(f func() error) error

// ourInterface opens roce on an interface of a namespace, with faults unless the
// test asks for none.
func ourInterface(in namespace, name string, network fault.Config) suite.Opener {
	return ourDevice(in, name, roce.InterfaceConfig{}, network)
}

// ourTarget opens roce exclusively on an interface of a namespace, by a driver. On a shared
// interface the kernel would drop packets that are for no process, without counting them.
func ourTarget(in namespace, name, driver string) suite.Opener {
	return ourDevice(in, name, roce.InterfaceConfig{Driver: driver, Exclusive: true}, unfaulty)
}

func ourDevice(in namespace, name string, c roce.InterfaceConfig, network fault.Config) suite.Opener {
	return func(test suite.Test) (n verbs.Node, err error) {
		c := c
		if !test.Clean && network.Enabled() {
			c.Wrap = func(p link.Port) (link.Port, error) { return fault.Wrap(p, network) }
		}
		err = in(func() error {
			n, err = ours.Open(roce.OpenInterface(name, c))
			return err
		})
		return n, err
	}
}

// rawColumn is roce and roce over packet sockets on the two ends of a veth pair.
func rawColumn(a, b namespace, ifA, ifB string) column {
	return column{name: "raw", heading: "raw", usual: testRawUsual, open: pairOf(ourInterface(a, ifA, fault.Config{Seed: 1, Tx: faults}), ourInterface(b, ifB, fault.Config{Seed: 2, Tx: faults}))}
}
