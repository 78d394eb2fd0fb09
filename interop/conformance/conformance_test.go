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

// runTests runs the whole suite in a column, one subtest each.
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

// attackAll injects all hostile packets, one subtest each.
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

// TestNames: every row is named and explained once.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, test := range suite.All() {
		if seen[test.Name] || !strings.HasPrefix(test.Name, "Test") || test.Checks == "" || test.Run == nil {
			t.Errorf("%q: no proper row, or twice", test.Name)
		}
		seen[test.Name] = true
	}
}
