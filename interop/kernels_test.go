//go:build linux

package main

import (
	"slices"
	"testing"
)

// TestEveryCaseRuns: however many kernels there are, each case runs on one at least, on all with -all,
// and each kernel has every kind of operation and way to connect, as server and as client.
func TestEveryCaseRuns(t *testing.T) {
	for _, kernels := range [][]string{{"7"}, {"6.12", "7"}, {"6.1", "6.12", "7"}, {"6.1", "6.6", "6.12", "7"}} {
		o := &options{kernels: kernels, hosts: hostCases()}
		ran := make(map[string]int)
		for _, k := range kernels {
			cases, hosts := o.casesOf(k, allCases())
			for _, c := range cases {
				ran[c.name()]++
			}
			for _, c := range hosts {
				ran[c.name]++
			}
			for _, tool := range everywhere {
				for _, as := range []role{server, client} {
					if !slices.ContainsFunc(cases, func(c testCase) bool { return c.tool == tool && c.linux == as && c.plain() }) {
						t.Errorf("of %v, %s has no plain case of %s with Linux as %s", kernels, k, tool.name, [2]string{"server", "client"}[as])
					}
				}
			}
		}
		for _, c := range allCases() {
			if ran[c.name()] == 0 {
				t.Errorf("of %v none runs %s", kernels, c.name())
			}
		}
		for _, c := range hostCases() {
			if ran[c.name] == 0 {
				t.Errorf("of %v none runs %s", kernels, c.name)
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

func count[T any](all []T, is func(T) bool) (n int) {
	for _, v := range all {
		if is(v) {
			n++
		}
	}
	return n
}

// TestKernelOfCase: what harms a case says where it runs.
func TestKernelOfCase(t *testing.T) {
	o := &options{kernels: []string{"6.1", "6.12", "7"}}
	byName := make(map[string]testCase)
	for _, c := range allCases() {
		byName[c.name()] = c
	}
	for name, want := range map[string][]string{
		"rping/linux-server/clean":               {"6.1", "6.12", "7"},
		"rping6/linux-client/clean":              {"6.1", "6.12", "7"},
		"program/ucmatose/linux-client/clean":    {"6.1", "6.12", "7"},
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
