//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
)

// TestEveryCaseRuns: with any number of kernels, each case that is not spare runs on at least one, with -all each case
// runs on all, and each kernel runs every kind of operation and way to connect, as server and as client.
func TestEveryCaseRuns(t *testing.T) {
	for _, kernels := range [][]string{{"7"}, {"6.12", "7"}, {"6.1", "6.12", "7"}, {"6.1", "6.6", "6.12", "7"}} {
		o := &options{kernels: kernels, hosts: hostCases()}
		ran := make(map[string]int)
		usual := slices.DeleteFunc(allCases(), func(c testCase) bool { return !o.wants(c) })
		for _, k := range kernels {
			cases, hosts := o.casesOf(k, usual)
			for _, c := range cases {
				ran[c.name()]++
			}
			for _, c := range hosts {
				ran[c.name()]++
			}
			for _, tool := range everywhere {
				for _, as := range []role{server, client} {
					if !slices.ContainsFunc(cases, func(c testCase) bool { return c.tool == tool && c.linux == as && c.scenario.name == "" }) {
						t.Errorf("of %v, %s has no case of %s with Linux as %s", kernels, k, tool.name, [2]string{"server", "client"}[as])
					}
				}
			}
		}
		for _, c := range usual {
			if ran[c.name()] == 0 {
				t.Errorf("of %v none runs %s", kernels, c.name())
			}
		}
		for _, c := range hostCases() {
			if ran[c.name()] == 0 {
				t.Errorf("of %v none runs %s", kernels, c.name())
			}
		}
		o.all = true
		for _, k := range kernels {
			cases, hosts := o.casesOf(k, allCases())
			want, wantHosts := len(allCases()), len(o.hosts)
			if !hasCards(k) {
				want -= count(allCases(), testCase.onCard)
				wantHosts -= count(o.hosts, hostCase.onCards)
			}
			if k != o.at(before) {
				want -= count(allCases(), func(c testCase) bool { return c.between.rules != "" })
			}
			if len(cases) != want || len(hosts) != wantHosts {
				t.Errorf("with -all, %s has %d cases of %d and %d tests inside of %d", k, len(cases), want, len(hosts), wantHosts)
			}
		}
	}
}

// TestSpares: each reason applies to some case, and for each spare case other cases test the same parts.
func TestSpares(t *testing.T) {
	for _, s := range spares {
		if count(allCases(), s.has) == 0 {
			t.Errorf("no case is spare because of %s", s.are)
		}
	}
	o := new(options)
	var usual []testCase
	for _, c := range allCases() {
		if o.wants(c) {
			usual = append(usual, c)
		}
	}
	network := func(c testCase) string {
		if strings.HasPrefix(c.impair.name, "repaired-") {
			return "repaired"
		}
		return c.impair.name + c.scenario.name
	}
	driver := func(c testCase) string { return strings.TrimSuffix(c.link, "-raw") } // rocectl is on a card
	for _, c := range allCases() {
		for what, same := range map[string]func(testCase) bool{
			"tool with this driver": func(x testCase) bool { return driver(x) == driver(c) && x.program == c.program },
			"role with this driver": func(x testCase) bool {
				return driver(x) == driver(c) && x.linux == c.linux && x.scenario.name == c.scenario.name
			},
			"tool with this MTU":     func(x testCase) bool { return x.mtu == c.mtu },
			"tool with this IP":      func(x testCase) bool { return x.v6 == c.v6 },
			"tool with this network": func(x testCase) bool { return network(x) == network(c) },
		} {
			if c.between.rules == "" && !slices.ContainsFunc(usual, func(x testCase) bool {
				return (x.tool.name == c.tool.name || strings.HasPrefix(what, "role")) && same(x)
			}) {
				t.Errorf("%s is spare, and no other case has its %s", c.name(), what)
			}
		}
	}
}

func count[T any](all []T, is func(T) bool) (n int) {
	for _, v := range all {
		if is(v) {
			n++
		}
	}
	return n
}

// TestKernelOfCase: the kind of a case determines the kernels that run it.
func TestKernelOfCase(t *testing.T) {
	o := &options{kernels: []string{"6.1", "6.12", "7"}}
	byName := make(map[string]testCase)
	for _, c := range allCases() {
		byName[c.name()] = c
	}
	for name, want := range map[string][]string{
		"rping/linux-server/clean":               {"7"},         // the other kernels run cases with programs and with an impaired network
		"ud_pingpong/linux-client/clean":         {"6.12", "7"}, // 6.1 runs the case of rdma-core's program
		"ud_pingpong6/linux-server/clean":        {"6.1", "6.12", "7"},
		"program/ucmatose/linux-client/clean":    {"6.1", "7"},
		"rstream/linux-server/clean":             {"7"},
		"rping/linux-server/clean/udp":           {"7"},
		"program/rc_pingpong/linux-server/clean": {"6.1"},
		"rping/linux-server/loss4":               {"6.12"},
		"program/ucmatose/linux-client/dup20":    {"6.12"},
		"rping/linux-client/loss4/zero-copy":     {"7"},
		"rping/linux-client/server-killed":       {"6.1"},
	} {
		c, ok := byName[name]
		if !ok {
			t.Errorf("there is no case %s", name)
			continue
		}
		var got []string
		for _, k := range o.kernels {
			if o.has(k, c) {
				got = append(got, k)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s runs on %v, want %v", name, got, want)
		}
	}
}
