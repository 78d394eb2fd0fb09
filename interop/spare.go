//go:build linux

package main

import (
	"slices"
	"strings"
)

// spares are the cases that run with -all only, because other cases together test the same parts. A case combines a
// program, a driver and a network, and fails if one of them fails. So without -all a program is tested in both roles
// only if the roles differ on the wire, and each driver and network is tested with programs whose packets differ.
var spares = []struct {
	are string
	has func(testCase) bool
}{
	{"recovery under more than one condition for each tool and role (-repaired)", testCase.repairedAgain},
	{"perftest's options and latencies in the second role: the cases of rocectl perf cover UC, UD, rdma_cm and events in both roles, and the cases " +
		"without an option cover all operations; make programs tests the options that only the libraries have", func(c testCase) bool {
		return c.program && c.linux == client && c.sound() && strings.Contains(c.tool.program(server), "ib_") && (c.link != "" || c.mtu != defaultMTU || !c.tool.elementary())
	}},
	{"pingpongs and connections of programs on other drivers and MTUs in the second role: cases of rocectl cover the drivers, the case on the default driver covers the role", func(c testCase) bool {
		return c.program && c.linux == client && c.sound() && (c.link != "" || c.mtu != defaultMTU) && c.tool != mckey
	}},
	{"programs with one connection on an impaired network: rocectl has cases with the same operations there, and programs with many connections have cases, too", func(c testCase) bool {
		return c.program && c.impair.name != clean.name && slices.Contains([]*tool{rping, rcPingpong, writeBW, readBW}, c.tool)
	}},
	{"datagram rsockets over IPv6 and with losses in the second role: the cases over IPv4 without losses cover both roles", func(c testCase) bool {
		return c.tool == udpong && c.linux == client && (c.v6 || c.impair.lossy)
	}},
	{"payload in place, in the second role for each MTU: both ends of these tools send", func(c testCase) bool {
		return c.link == inPlace && (c.linux == client) == (c.mtu == defaultMTU)
	}},
	{"cards as the client of rocectl and as the server of rxe: they are the client of rxe and the server of rocectl", func(c testCase) bool {
		return c.scenario.name == "" && (c.link == zeroCopy && c.linux == client || c.link == zeroCopyHost && c.linux == server)
	}},
	{"processes that share an address in the second role: over raw sockets with IPv4 the clients, over UDP sockets the servers, with IPv6 the other way round", func(c testCase) bool {
		return c.scenario.name == shared.name && (c.linux == client) == (c.link == "") != c.v6
	}},
	{"READ and the RC pingpong over other drivers, in the role in which our end sends the same kind of packets as in other cases", func(c testCase) bool {
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

// repairedAgain reports whether a case is one with recovery, and there is another one for its tool and role.
func (c testCase) repairedAgain() bool {
	usual := map[role]string{server: repairedLoss.name, client: repairedReorder.name}
	return strings.HasPrefix(c.impair.name, "repaired-") && c.tool != rping && c.impair.name != usual[c.linux]
}

// sound reports whether the case is a transfer over a network without faults.
func (c testCase) sound() bool { return c.scenario.name == "" && c.impair.name == clean.name }

// elementary reports whether the tool is a bandwidth program of perftest for one operation, without options.
func (t *tool) elementary() bool {
	return slices.Contains([]*tool{sendBW, writeBW, readBW, fetchAdd, cmpSwap}, t)
}
