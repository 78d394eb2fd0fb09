//go:build linux

package main

import (
	"strconv"
	"strings"
	"time"
)

type role int

const (
	server role = iota
	client
)

// impairment harms packets in both directions: netem on the guest's way out, the
// fault link of rocectl on ours.
type impairment struct {
	name   string
	netem  string
	faults []string
	lossy  bool
}

var (
	clean = impairment{name: "clean"}
	loss  = impairment{name: "loss4", netem: "loss 4%", faults: []string{"--loss", "tx=4%"}, lossy: true}
	dup   = impairment{name: "dup20", netem: "duplicate 20%", faults: []string{"--dup", "tx=20%"}}
	heavy = impairment{name: "loss20", netem: "loss 20%", faults: []string{"--loss", "tx=20%"}, lossy: true}

	// madeGood loses some datagrams and copies others, so that more arrive than were sent:
	// a program that counts those of a service that repeats none ends. Messages of the CM
	// (QP 1) pass: rdma-core's server leaves a repeated request unanswered.
	madeGood = impairment{name: "loss10dup50", faults: []string{"--loss", "10%", "--dup", "50%", "--fault", "pass,qpn=1"}, lossy: true}

	// marked is congestion that only our end reacts to: rxe drops its notifications.
	marked = impairment{name: "marked", faults: []string{"--dcqcn=10", "--ecn", "30%"}}
)

// scenario is what happens in a case.
type scenario struct {
	name  string
	run   func(*caseRun) error
	limit time.Duration // for a command; 0 means what the impairment needs
}

var (
	transfer = scenario{run: (*caseRun).transfer}
	nobody   = scenario{name: "nobody-listens", run: (*caseRun).nobodyListens}
	rejected = scenario{name: "rejected", run: (*caseRun).rejected}
	killed   = scenario{name: "server-killed", run: (*caseRun).serverKilled, limit: deadLimit}
	stopped  = scenario{name: "server-stopped", run: (*caseRun).serverStopped, limit: deadLimit}
	resolved = scenario{name: "resolve", run: (*caseRun).resolve}
	noServer = scenario{name: "no-server", run: (*caseRun).noServer}
	tooMany  = scenario{name: "too-many", run: (*caseRun).tooMany}
	repeated = scenario{name: "repeated", run: (*caseRun).repeated}
	compared = scenario{name: "compared", run: (*caseRun).compared}
)

// testCase is one row. linux is the role that rdma-core plays.
type testCase struct {
	tool     *tool
	v6       bool
	linux    role
	impair   impairment
	scenario scenario
	mtu      int
	link     string // of rocectl; empty: raw
}

func (c testCase) name() string {
	parts := []string{c.tool.name}
	if c.v6 {
		parts[0] += "6"
	}
	parts = append(parts, [2]string{"linux-server", "linux-client"}[c.linux])
	if c.scenario.name != "" {
		parts = append(parts, c.scenario.name)
	}
	if c.scenario.name == "" || c.impair.name != clean.name {
		parts = append(parts, c.impair.name)
	}
	if c.mtu != defaultMTU {
		parts = append(parts, "mtu"+strconv.Itoa(c.mtu))
	}
	if c.link != "" {
		parts = append(parts, c.link)
	}
	return strings.Join(parts, "/")
}

const (
	defaultMTU = 1500
	jumboMTU   = 4200
)

// allCases is the matrix: every tool in both roles, clean and impaired, then what
// goes wrong on purpose.
func allCases() []testCase {
	var all []testCase
	add := func(c testCase) {
		if c.mtu == 0 {
			c.mtu = defaultMTU
		}
		if c.impair.name == "" {
			c.impair = clean
		}
		for _, c.linux = range []role{server, client} {
			all = append(all, c)
		}
	}
	transfers := []struct {
		tool *tool
		v6   bool
	}{{rping, false}, {rping, true}, {rcPingpong, false}, {srqPingpong, false}, {rdmaClient, false}, {ucmatose, false},
		{fetchAdd, false}, {cmpSwap, false}, {sendBW, false}, {writeBW, false}, {readBW, false}, {rstream, false}, {riostream, false}, {fiPingpong, false}}
	for _, imp := range []impairment{clean, dup, loss} {
		for _, t := range transfers {
			add(testCase{tool: t.tool, v6: t.v6, impair: imp, scenario: transfer})
		}
	}
	for _, t := range []*tool{sendLat, writeLat, readLat, atomicLat} {
		add(testCase{tool: t, scenario: transfer})
	}
	for _, t := range []*tool{sendLat, readLat, atomicLat} { // each end of write_lat leaves as it pleases
		add(testCase{tool: t, impair: loss, scenario: transfer})
	}
	for _, t := range perftestOptions {
		add(testCase{tool: t, scenario: transfer})
	}
	for _, t := range []*tool{rping, rcPingpong, ucPingpong, writeBW, readBW} {
		add(testCase{tool: t, impair: marked, scenario: transfer})
	}
	add(testCase{tool: rping, v6: true, impair: marked, scenario: transfer})
	add(testCase{tool: rstream, v6: true, scenario: transfer})
	add(testCase{tool: rping, scenario: transfer, mtu: jumboMTU})
	add(testCase{tool: rstream, scenario: transfer, mtu: jumboMTU})
	add(testCase{tool: rcPingpong, scenario: transfer, mtu: jumboMTU})
	add(testCase{tool: srqPingpong, scenario: transfer, mtu: jumboMTU})
	add(testCase{tool: srqPingpong, v6: true, scenario: transfer})
	for _, mtu := range []int{defaultMTU, jumboMTU} {
		add(testCase{tool: ucPingpong, scenario: transfer, mtu: mtu})
		add(testCase{tool: udPingpong, scenario: transfer, mtu: mtu})
	}
	add(testCase{tool: ucPingpong, v6: true, scenario: transfer})
	add(testCase{tool: udPingpong, v6: true, scenario: transfer})
	add(testCase{tool: cmtime, scenario: transfer})
	add(testCase{tool: cmtime, impair: loss, scenario: transfer})
	all = append(all, testCase{tool: cmtime.with(func(t *tool) { t.conns = 200 }), linux: server, impair: clean, scenario: compared, mtu: defaultMTU})
	add(testCase{tool: udaddy, scenario: transfer})
	add(testCase{tool: udaddy, v6: true, scenario: transfer})
	add(testCase{tool: udaddy, scenario: transfer, mtu: jumboMTU})
	add(testCase{tool: udaddyOne, impair: dup, scenario: transfer})
	add(testCase{tool: udaddyOne, impair: madeGood, scenario: transfer})
	for _, imp := range []impairment{dup, heavy} {
		add(testCase{tool: udaddy, impair: imp, scenario: resolved})
	}
	add(testCase{tool: udaddy, scenario: noServer})
	add(testCase{tool: mckey, scenario: transfer})
	add(testCase{tool: mckey, scenario: transfer, mtu: jumboMTU})
	add(testCase{tool: mckey, impair: dup, scenario: transfer})
	add(testCase{tool: mckeyOne, impair: heavy, scenario: repeated})
	for _, t := range []*tool{rping, rdmaClient, ucmatose} {
		add(testCase{tool: t, scenario: nobody})
	}
	all = append(all,
		testCase{tool: rping, linux: server, impair: clean, scenario: rejected, mtu: defaultMTU},
		testCase{tool: ucmatose, linux: client, impair: clean, scenario: rejected, mtu: defaultMTU},
		testCase{tool: udaddy, linux: client, impair: clean, scenario: tooMany, mtu: defaultMTU})
	for _, t := range []*tool{rping, rcPingpong, writeBW, readBW, ucmatose} {
		add(testCase{tool: t, scenario: transfer, link: "xdp"})
	}
	add(testCase{tool: rping, v6: true, scenario: transfer, link: "xdp"})
	add(testCase{tool: rping, impair: loss, scenario: transfer, link: "xdp"})
	// Nor may it matter that the payload is sent from where it lies: here both ends send.
	for _, t := range []*tool{rping, rcPingpong, sendBoth, writeBoth} {
		add(testCase{tool: t, scenario: transfer, link: inPlace})
		add(testCase{tool: t, scenario: transfer, link: inPlace, mtu: jumboMTU})
	}
	add(testCase{tool: rping, v6: true, scenario: transfer, link: inPlace})
	// What UDP sockets send, rxe must find right, though the kernel makes the headers.
	for _, t := range []*tool{rping, rcPingpong, writeBW, readBW, mckey} {
		add(testCase{tool: t, scenario: transfer, link: "udp"})
	}
	add(testCase{tool: rping, v6: true, scenario: transfer, link: "udp"})
	add(testCase{tool: rping, impair: loss, scenario: transfer, link: "udp"})
	add(testCase{tool: writeBW, scenario: transfer, mtu: jumboMTU, link: "udp"})
	// Of rdma-core's clients only rping's heeds a disconnect in mid-transfer.
	for _, s := range []scenario{killed, stopped} {
		add(testCase{tool: rping, scenario: s})
	}
	return all
}

// usual is how long a case takes beside others: one that loses packets waits for timers.
func (c testCase) usual() time.Duration {
	if c.impair.lossy {
		return 3 * time.Second
	}
	return time.Second
}

// kernelLogUsual is that of the last case of a kernel.
const kernelLogUsual = 100 * time.Millisecond

// Time limits, generous because the guest is emulated and a lost packet costs rxe
// an acknowledgement timeout of up to 2 s.
const (
	bootLimit     = 2 * time.Minute
	cleanLimit    = 60 * time.Second
	impairedLimit = 150 * time.Second
	deadLimit     = 120 * time.Second
)
