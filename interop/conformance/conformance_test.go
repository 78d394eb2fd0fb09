//go:build linux

package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/interop/conformance/hostile"
	"github.com/goroce/roce/interop/conformance/suite"
)

// runTests runs the whole suite in a column, with one subtest for each test.
func runTests(t *testing.T, c column) {
	for _, test := range suite.All() {
		t.Run(strings.TrimPrefix(test.Name, "Test"), func(t *testing.T) {
			r := c.run(test)
			switch r.Verdict {
			case suite.Fail:
				t.Errorf("%s: %s\n%s", c.name, test.Checks, strings.Join(r.Notes, "\n"))
			case suite.NotOffered:
				t.Log(r.Notes[0])
			}
		})
	}
}

// TestMem is the pairing mem.
func TestMem(t *testing.T) { runTests(t, memColumn()) }

// TestRaw is the pairing raw.
func TestRaw(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for i, s := range []*netlab.Side{a, b} { // for path migration
		if err := s.AddAddr(netip.AddrFrom4([4]byte{10, 88, 1, byte(i + 1)}), 24); err != nil {
			t.Fatal(err)
		}
	}
	in := func(s *netlab.Side) namespace {
		return func(f func() error) (err error) {
			s.Do(t, func() { err = f() })
			return err
		}
	}
	runTests(t, rawColumn(in(a), in(b), a.Interface, b.Interface))
	attackAll(t, rawVictim(in(a), in(b), a.Interface, b.Interface, a.IP4.String(), b.IP4.String()))
}

// attackAll runs all hostile cases against a target, with one subtest for each case.
func attackAll(t *testing.T, v victim) {
	for _, c := range hostile.All() {
		t.Run("hostile/"+c.Name, func(t *testing.T) {
			if _, err := v.attack(t.Context(), c); err != nil {
				t.Errorf("%s: %v", v.name, err)
			}
		})
	}
}

// TestHostile injects all hostile packets into roce.
func TestHostile(t *testing.T) { attackAll(t, memVictim()) }

// TestNames: every row has a unique name, and a text about what it checks.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, test := range suite.All() {
		if seen[test.Name] || !strings.HasPrefix(test.Name, "Test") || test.Checks == "" || test.Run == nil {
			t.Errorf("%q: no proper row, or twice", test.Name)
		}
		seen[test.Name] = true
	}
}

// TestWanted: the last kernel runs all tests, the others only those in which kernels differ.
func TestWanted(t *testing.T) {
	o := &options{kernels: []string{"6.1", "6.12", "7"}}
	tests, cases := suite.All(), hostile.All()
	count := func(kernel string) (asked map[string]bool, n, attacks int) {
		asks, wants := o.wanted(kernel, tests)
		asked = make(map[string]bool)
		for _, test := range tests {
			if asks == nil || asks(test) {
				asked[test.Name] = true
			}
		}
		for _, c := range cases {
			if wants(c) {
				attacks++
			}
		}
		return asked, len(asked), attacks
	}
	if _, n, attacks := count("7"); n != len(tests) || attacks != len(cases) {
		t.Errorf("the last kernel is asked %d tests of %d and %d hostile cases of %d", n, len(tests), attacks, len(cases))
	}
	asked, n, attacks := count("6.1")
	if n == 0 || n > len(tests)/2 || attacks == 0 || attacks > len(cases)/2 {
		t.Errorf("the first kernel is asked %d tests of %d and %d hostile cases of %d", n, len(tests), attacks, len(cases))
	}
	for name, want := range map[string]bool{
		"TestQP/RCLocalBadLKey": true, // kernels report it in different ways
		"TestQPEx/RCFlush":      true, // some have none
		"TestMR/RegNotOffered":  true,
		"TestQPEx/RCSend":       false,
		"TestQP/RCPingPong":     false,
	} {
		if asked[name] != want {
			t.Errorf("the first kernel is asked %s: %v, want %v", name, asked[name], want)
		}
	}
	o.all = true
	if _, n, attacks := count("6.1"); n != len(tests) || attacks != len(cases) {
		t.Errorf("with -all the first kernel is asked %d tests of %d and %d hostile cases of %d", n, len(tests), attacks, len(cases))
	}
}
