//go:build linux

package main

import (
	"context"
	"slices"
	"time"
)

// Which kernels run which cases.
//
// A case mostly tests this stack, for which one kernel is enough. So without -all each case runs on
// one kernel, chosen by the kind of the case:
//
//   - the newest kernel runs the cases of rocectl on a network without faults, and the tests inside the guest;
//   - the kernel before it runs the cases of a network that loses, duplicates, reorders or marks packets;
//   - the oldest kernel runs the cases of rdma-core's programs on a network without faults, and those in which a
//     program fails or several processes share an address.
//
// The cases of zero copy need a card, which only the guests of some kernels have.
//
// In addition every kernel runs the cases of the list everywhere: a program for each operation, service and
// way to connect, as server and as client; or instead a more difficult case of the same program and role.
// With fewer than three kernels, one kernel runs several of these groups. Some cases run with -all only: see
// spares.
const (
	oldest = iota
	before
	newest
)

// everywhere are the tools whose plain cases run on every kernel: rdma_cm over IPv4 and IPv6, SEND with
// deep queues and from shared receive queues, WRITE, READ, atomics, UC, UD, many connections.
var everywhere = []*tool{rping, rcPingpong, srqPingpong, ucPingpong, udPingpong, writeBW, readBW, fetchAdd, ucmatose}

// plain reports whether the case is a basic one of its tool: there are no faults, the MTU is the default,
// and our side is rocectl over raw sockets, or rdma-core's program if rocectl does not have the tool.
func (c testCase) plain() bool {
	return c.scenario.name == "" && c.impair.name == clean.name && c.mtu == defaultMTU && c.link == "" && !c.inGo &&
		(!c.program || c.tool == ucmatose)
}

// kernel returns the place of the kernel that runs the case.
func (c testCase) kernel() int {
	switch {
	case c.scenario.name != "":
		return oldest
	case c.impair.name != clean.name:
		return before
	case c.program:
		return oldest
	}
	return newest
}

// has reports whether a kernel runs the case.
func (o *options) has(kernel string, c testCase) bool {
	if c.onCard() {
		return hasCards(kernel)
	}
	if c.tested.peer != "" && !o.all {
		return kernel == o.at(before)
	}
	if c.between.rules != "" {
		return kernel == o.at(before) // one kernel only, because the case needs a second guest
	}
	if o.all || kernel == o.at(c.kernel()) {
		return true
	}
	return slices.Contains(everywhere, c.tool) && c.plain() && !o.covered(kernel, c)
}

// covered reports whether a kernel runs another case of the same tool, role and IP version with a transfer.
func (o *options) covered(kernel string, c testCase) bool {
	return slices.ContainsFunc(allCases(), func(x testCase) bool {
		return x.tool == c.tool && x.linux == c.linux && x.v6 == c.v6 && x.scenario.name == "" && !x.plain() && !x.onCard() &&
			x.between.rules == "" && x.tested.peer == "" && o.wants(x) && kernel == o.at(x.kernel())
	})
}

// wants reports whether a case runs on any kernel.
func (o *options) wants(c testCase) bool {
	switch {
	case c.between.rules != "":
		return o.between || c.between.brief
	case c.repairedAgain():
		return o.all || o.repaired
	}
	return o.all || !c.spare()
}

// hasHost reports whether a kernel runs tests inside its guest.
func (o *options) hasHost(kernel string, c hostCase) bool {
	if c.onCards() {
		return hasCards(kernel)
	}
	return o.all || kernel == o.at(newest)
}

// at returns the kernel at a place, among those in -kernel.
func (o *options) at(place int) string {
	return o.kernels[max(0, place-newest+len(o.kernels)-1)]
}

// job is a case of either kind: a testCase or a hostCase.
type job interface {
	name() string
	usual() time.Duration // how long the job usually takes while others run
	run(context.Context, *bed) result
}

// jobs returns cases of both kinds as one list.
func jobs(cases []testCase, hosts []hostCase) (all []job) {
	for _, c := range cases {
		all = append(all, c)
	}
	for _, c := range hosts {
		all = append(all, c)
	}
	return all
}

// casesOf returns the chosen cases that a kernel runs.
func (o *options) casesOf(kernel string, chosen []testCase) (cases []testCase, hosts []hostCase) {
	for _, c := range chosen {
		if o.has(kernel, c) {
			cases = append(cases, c)
		}
	}
	for _, c := range o.hosts {
		if o.hasHost(kernel, c) {
			hosts = append(hosts, c)
		}
	}
	return cases, hosts
}
