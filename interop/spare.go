//go:build linux

package main

import (
	"slices"
	"strings"
)

// spares are the cases that run with -all only. What each tests, other cases test together: a case joins a program, a way of
// ours to send and receive, and a network, and fails if one of them fails. So a program is tried in both roles where the
// roles differ on the wire, and a driver and a network with programs whose packets differ.
var spares = []struct {
	are string
	has func(testCase) bool
}{
	{"recovery under more than one condition for each tool and role (-repaired)", testCase.repairedAgain},
	{"perftest's options and latencies in the second role: rocectl perf has UC, UD, rdma_cm and events in both, and the cases " +
		"without an option all operations; the options of the library alone are make programs'", func(c testCase) bool {
		return c.program && c.linux == client && c.sound() && strings.Contains(c.tool.program(server), "ib_") && (c.link != "" || c.mtu != defaultMTU || !c.tool.elementary())
	}},
	{"pingpongs and connections of programs on other drivers and MTUs in the second role: rocectl has the drivers, the case without one the role", func(c testCase) bool {
		return c.program && c.linux == client && c.sound() && (c.link != "" || c.mtu != defaultMTU) && c.tool != mckey
	}},
	{"programs of one connection on a bad network: rocectl has the same operations there, and the programs with many connections are there", func(c testCase) bool {
		return c.program && c.impair.name != clean.name && slices.Contains([]*tool{rping, rcPingpong, writeBW, readBW}, c.tool)
	}},
	{"tools whose ends both send, without a copy, in the second role for each MTU", func(c testCase) bool {
		return c.link == inPlace && (c.linux == client) == (c.mtu == defaultMTU)
	}},
	{"cards as the client of rocectl and the server of rxe: they are that of the other one", func(c testCase) bool {
		return c.scenario.name == "" && (c.link == zeroCopy && c.linux == client || c.link == zeroCopyHost && c.linux == server)
	}},
	{"processes that share an address in the second role: over raw sockets with IPv4 the clients, over UDP sockets the servers, with IPv6 the other way round", func(c testCase) bool {
		return c.scenario.name == shared.name && (c.linux == client) == (c.link == "") != c.v6
	}},
	{"of READ and the pingpong of RC over other drivers the role in which our end sends what it sends in other cases", func(c testCase) bool {
		return !c.program && (c.link == "udp" || c.link == "xdp") && (c.tool == readBW && c.linux == server || c.tool == rcPingpong && c.linux == client)
	}},
	{"pingpongs over IPv6, with a large MTU and marked packets in the second role: both ends send the same", func(c testCase) bool {
		return !c.program && !c.onCard() && c.link == "" && c.linux == client && (c.v6 || c.mtu != defaultMTU || c.impair.name == marked.name) &&
			slices.Contains([]*tool{rcPingpong, srqPingpong, ucPingpong, udPingpong}, c.tool)
	}},
}

// spare reports whether a case runs with -all only.
func (c testCase) spare() bool {
	for _, s := range spares {
		if s.has(c) {
			return true
		}
	}
	return false
}

// repairedAgain reports whether a case is one of recovery for whose tool and role there is another one.
func (c testCase) repairedAgain() bool {
	usual := map[role]string{server: repairedLoss.name, client: repairedReorder.name}
	return strings.HasPrefix(c.impair.name, "repaired-") && c.tool != rping && c.impair.name != usual[c.linux]
}

// sound reports whether the case transfers over a network that harms nothing.
func (c testCase) sound() bool { return c.scenario.name == "" && c.impair.name == clean.name }

// elementary reports whether perftest's tool is one operation without an option, measured by its rate.
func (t *tool) elementary() bool {
	return slices.Contains([]*tool{sendBW, writeBW, readBW, fetchAdd, cmpSwap}, t)
}
