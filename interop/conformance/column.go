//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/conformance/ours"
	"github.com/goroce/roce/interop/conformance/suite"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
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
	if test.Single {
		err = responder.Close()
		responder = nil
	}
	r := suite.Run(test, requester, responder)
	for _, n := range []verbs.Node{requester, responder} {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	if err != nil {
		r.Verdict = suite.Fail
		r.Notes = append(r.Notes, fmt.Sprintf("closing the sides: %v", err))
	}
	return r
}

// notApplicable is the verdict of a test that a column leaves out.
const notApplicable suite.Verdict = -1

// opener makes one side of a test.
type opener func(suite.Test) (verbs.Node, error)

// pairOf opens two sides with one function each.
func pairOf(requester, responder opener) func(suite.Test) (verbs.Node, verbs.Node, error) {
	return func(test suite.Test) (verbs.Node, verbs.Node, error) {
		a, err := requester(test)
		if err != nil {
			return nil, nil, err
		}
		b, err := responder(test)
		if err != nil {
			a.Close()
			return nil, nil, err
		}
		return a, b, nil
	}
}

// memMTU makes the path MTU 1024, as on Ethernet.
const memMTU = 1500

// memColumn is roce and roce over a switch in the process.
func memColumn() column {
	return column{name: "mem", heading: "mem", usual: testUsual, open: func(test suite.Test) (verbs.Node, verbs.Node, error) {
		hub := mem.NewHub(mem.Config{MTU: memMTU})
		macs := roce.Neighbours{}
		open := func(addr, second string) opener {
			return func(suite.Test) (verbs.Node, error) {
				a, b := netip.MustParseAddr(addr), netip.MustParseAddr(second)
				macs[a], macs[b] = roce.DerivedMAC(a), roce.DerivedMAC(a)
				port, err := hub.Port(addr, macs[a])
				if err != nil {
					return nil, err
				}
				return ours.Open(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{a, b}, Options: roce.Options{Resolver: macs}}))
			}
		}
		return pairOf(open("10.0.0.1", "10.0.1.1"), open("10.0.0.2", "10.0.1.2"))(test)
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
func ourInterface(in namespace, name string, network fault.Config) opener {
	return ourDevice(in, name, roce.InterfaceConfig{}, network)
}

// ourTarget opens roce exclusively on an interface of a namespace, by a driver. On a shared
// interface the kernel would drop packets that are for no process, without counting them.
func ourTarget(in namespace, name, driver string) opener {
	return ourDevice(in, name, roce.InterfaceConfig{Driver: driver, Exclusive: true}, unfaulty)
}

func ourDevice(in namespace, name string, c roce.InterfaceConfig, network fault.Config) opener {
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
