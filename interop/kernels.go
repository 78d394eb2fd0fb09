//go:build linux

package main

import "slices"

// Which kernels run which cases.
//
// What a case checks is mostly this stack, and one kernel shows that. So without -all each case runs on
// one kernel, chosen by what harms it:
//
//   - the last kernel, the newest, has the cases of rocectl on a sound network, and the tests inside the guest;
//   - the one before has those of a network that loses, duplicates, reorders or marks packets;
//   - the first, the oldest, has those of rdma-core's programs on a sound network, and those in which a
//     program fails or several processes share an address.
//
// The cases of zero copy need a card, which only the guests of some kernels have.
//
// Every kernel has the cases of the list everywhere: a program for each operation, service and way to
// connect, as server and as client; or others of the same program and role, in which more can fail.
// Of fewer kernels one has the cases of several of these rows. Some cases run with -all only: see spares.
const (
	oldest = iota
	before
	newest
)

// everywhere are the tools whose plain cases run on every kernel: rdma_cm over IPv4 and IPv6, SEND with
// deep queues and from shared receive queues, WRITE, READ, atomics, UC, UD, many connections.
var everywhere = []*tool{rping, rcPingpong, srqPingpong, ucPingpong, udPingpong, writeBW, readBW, fetchAdd, ucmatose}

// plain reports whether the case is one of a tool's first: nothing is harmed, the MTU is usual, and our side
// is rocectl over raw sockets, or the program where rocectl has none of that name.
func (c testCase) plain() bool {
	return c.scenario.name == "" && c.impair.name == clean.name && c.mtu == defaultMTU && c.link == "" && !c.inGo &&
		(!c.program || c.tool == ucmatose)
}

// kernel says whose the case is.
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
		return kernel == o.at(before) // one kernel: it needs a guest more
	}
	if o.all || kernel == o.at(c.kernel()) {
		return true
	}
	return slices.Contains(everywhere, c.tool) && c.plain() && !o.covered(kernel, c)
}

// covered reports whether a kernel has another case of the same tool, role and IP version that transfers.
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

// at returns the kernel at a place, of those that were asked for.
func (o *options) at(place int) string {
	return o.kernels[max(0, place-newest+len(o.kernels)-1)]
}

// casesOf returns what a kernel runs of the chosen cases.
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
