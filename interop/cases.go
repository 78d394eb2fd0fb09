//go:build linux

package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type role int

const (
	server role = iota
	client
)

// impairment is a set of faults in both directions: netem for the guest's outgoing packets, the
// fault flags of rocectl for ours.
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

	// madeGood loses some datagrams and duplicates others, so that more arrive than were sent. A program that
	// waits for a number of datagrams then ends, although the service does not repeat lost ones. Messages of the
	// CM (QP 1) pass, because rdma-core's server does not answer a repeated request.
	madeGood = impairment{name: "loss10dup50", faults: []string{"--loss", "10%", "--dup", "50%", "--fault", "pass,qpn=1"}, lossy: true}

	// The repaired impairments run with --recovery at our end.
	repairedLoss    = impairment{name: "repaired-loss4", netem: "loss 4%", faults: []string{"--recovery", "all", "--loss", "tx=4%"}, lossy: true}
	repairedDup     = impairment{name: "repaired-dup20", netem: "duplicate 20%", faults: []string{"--recovery", "all", "--dup", "tx=20%"}}
	repairedReorder = impairment{name: "repaired-reorder", netem: "delay 300us 200us", faults: []string{"--recovery", "all", "--reorder", "tx=20%", "--reorder-time", "300us"}, lossy: true}

	// marked is congestion to which only our end reacts: rxe drops CNPs.
	marked = impairment{name: "marked", faults: []string{"--dcqcn=10", "--ecn", "30%"}}
)

// scenario is the procedure of a case.
type scenario struct {
	name  string
	run   func(*caseRun) error
	limit time.Duration // for a command; 0 means what the impairment needs
}

var (
	transfer   = scenario{run: (*caseRun).transfer}
	noListener = scenario{name: "nobody-listens", run: (*caseRun).noListener}
	rejected   = scenario{name: "rejected", run: (*caseRun).rejected}
	killed     = scenario{name: "server-killed", run: (*caseRun).serverKilled, limit: deadLimit}
	stopped    = scenario{name: "server-stopped", run: (*caseRun).serverStopped, limit: deadLimit}
	resolved   = scenario{name: "resolve", run: (*caseRun).resolve}
	noServer   = scenario{name: "no-server", run: (*caseRun).noServer}
	repeated   = scenario{name: "repeated", run: (*caseRun).repeated}
	compared   = scenario{name: "compared", run: (*caseRun).compared}
	shared     = scenario{name: "shared", run: (*caseRun).shared}
	bereaved   = scenario{name: "shared-killed", run: (*caseRun).sharedKilled, limit: deadLimit}
)

// testCase is one row of the matrix. linux is the role of rdma-core or, with zeroCopyHost, of rocectl on our side
// of the tap.
type testCase struct {
	tool     *tool
	v6       bool
	linux    role
	impair   impairment
	scenario scenario
	mtu      int
	link     string // of our side; empty: raw
	program  bool   // our side is rdma-core's program on our libraries instead of rocectl
	between  between
	tested   tested
	inGo     bool // our side is the example of this module that corresponds to the tool
}

func (c testCase) name() string {
	parts := []string{c.tool.name}
	if c.v6 {
		parts[0] += "6"
	}
	other := "linux"
	if c.link == zeroCopyHost {
		other = "raw"
	}
	parts = append(parts, other+[2]string{"-server", "-client"}[c.linux])
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
	switch {
	case c.tested.peer != "":
		return "conform/" + c.tested.peer
	case c.between.rules != "":
		name := "impair/" + c.tool.name + "/" + c.between.rules
		if c.between.inside {
			name += "/one-interface"
		}
		return name
	case c.program:
		parts[0] = "program/" + parts[0]
	case c.inGo:
		parts[0] = "go/" + parts[0]
	}
	return strings.Join(parts, "/")
}

const (
	defaultMTU = 1500
	jumboMTU   = 4200
)

// allCases is the matrix: every tool in both roles, clean and impaired, then cases with provoked
// failures. Our side is rocectl if rocectl checks the data or only rocectl has the tool;
// otherwise it is rdma-core's program on our libraries.
func allCases() []testCase {
	var all []testCase
	// one adds a case in its role, add adds a case in both roles for each tool.
	one := func(c testCase) {
		c.mtu = cmp.Or(c.mtu, defaultMTU)
		if c.impair.name == "" {
			c.impair = clean
		}
		if c.scenario.run == nil {
			c.scenario = transfer
		}
		all = append(all, c)
	}
	add := func(c testCase, tools ...*tool) {
		for _, c.tool = range tools {
			for _, c.linux = range []role{server, client} {
				if c.program && c.tool.deaf && c.linux == client {
					continue
				}
				one(c)
			}
		}
	}
	for _, imp := range []impairment{clean, dup, loss} {
		add(testCase{impair: imp, v6: true}, rping)
		add(testCase{impair: imp}, rping, rcPingpong, srqPingpong, fetchAdd, cmpSwap, sendBW, writeBW, readBW, rstream, riostream, fiPingpong)
	}
	for _, imp := range []impairment{repairedLoss, repairedDup, repairedReorder} {
		add(testCase{impair: imp}, rping, rcPingpong, srqPingpong, fetchAdd, cmpSwap, sendBW, writeBW, readBW)
	}
	add(testCase{}, sendLat, writeLat, readLat, atomicLat)
	add(testCase{impair: loss}, sendLat, readLat, atomicLat) // not write_lat: its ends do not wait for each other at the end
	add(testCase{}, perfOptions...)
	add(testCase{impair: marked}, rping, rcPingpong, ucPingpong, writeBW, readBW)
	add(testCase{impair: marked, v6: true}, rping)
	add(testCase{v6: true}, rstream, srqPingpong, ucPingpong, udPingpong)
	add(testCase{}, ucPingpong, udPingpong)
	add(testCase{mtu: jumboMTU}, rping, rstream, rcPingpong, srqPingpong, ucPingpong, udPingpong)
	add(testCase{scenario: noListener}, rping)
	one(testCase{tool: rping, linux: server, scenario: rejected})
	one(testCase{tool: ucmatose, linux: client, scenario: rejected})
	one(testCase{tool: udaddy, linux: client, scenario: rejected})
	add(testCase{link: "xdp"}, rping, rcPingpong, writeBW, readBW)
	add(testCase{link: "xdp", v6: true}, rping)
	add(testCase{link: "xdp", impair: loss}, rping)
	// Our end sends payload in place. In these tools both ends send.
	add(testCase{link: inPlace}, rping, rcPingpong, sendBoth, writeBoth)
	add(testCase{link: inPlace, mtu: jumboMTU}, rping, rcPingpong, sendBoth, writeBoth)
	add(testCase{link: inPlace, v6: true}, rping)
	// rocectl runs in the guest with zero copy, so the card accesses rocectl's memory. The peer is rxe, or
	// rocectl over raw sockets.
	for _, link := range []string{zeroCopy, zeroCopyHost} {
		add(testCase{link: link}, rping, rcPingpong, udPingpong, fetchAdd, writeBW, readBW)
		add(testCase{link: link, v6: true}, rping)
		add(testCase{link: link, impair: loss}, rping, writeBW, readBW)
		add(testCase{link: link, mtu: cardMTU}, rping, rcPingpong)
	}
	add(testCase{link: zeroCopy, scenario: killed}, rping)
	// With UDP sockets our kernel writes the headers; rxe must accept the ICRC.
	add(testCase{link: "udp"}, rping, rcPingpong, writeBW, readBW)
	add(testCase{link: "udp", v6: true}, rping)
	add(testCase{link: "udp", impair: loss}, rping)
	add(testCase{link: "udp", mtu: jumboMTU}, writeBW)
	// rdma-core's own programs on our libraries.
	for _, imp := range []impairment{clean, dup, loss} {
		add(testCase{program: true, impair: imp}, rping, rcPingpong, rdmaClient, ucmatose)
	}
	for _, imp := range []impairment{clean, loss} {
		add(testCase{program: true, impair: imp}, udpong)
	}
	add(testCase{program: true}, srqPingpong, ucPingpong, udPingpong, cmtime, udaddy, mckey)
	add(testCase{program: true}, sendBW, writeBW, readBW, fetchAdd, cmpSwap, sendLat, writeLat, readLat, atomicLat)
	add(testCase{program: true}, perftestOptions...)
	add(testCase{program: true}, examples...)
	add(testCase{inGo: true, link: "udp"}, examples...)
	add(testCase{program: true, impair: loss}, writeBW, readBW, cmtime)
	add(testCase{program: true, impair: dup}, udaddyOne, mckey)
	add(testCase{program: true, impair: madeGood}, udaddyOne)
	add(testCase{program: true, impair: dup, scenario: resolved}, udaddy)
	add(testCase{program: true, impair: heavy, scenario: resolved}, udaddy)
	add(testCase{program: true, impair: heavy, scenario: repeated}, mckeyOne)
	add(testCase{program: true, scenario: noServer}, udaddy)
	add(testCase{program: true, scenario: noListener}, rdmaClient, ucmatose)
	one(testCase{program: true, tool: cmtime.with(func(t *tool) { t.conns = 200 }), linux: server, scenario: compared})
	add(testCase{program: true, v6: true}, rping, srqPingpong, udaddy, udpong)
	add(testCase{program: true, mtu: jumboMTU}, rcPingpong, writeBW, udaddy, mckey)
	add(testCase{program: true, link: "udp"}, rping, rcPingpong, ucmatose, mckey)
	add(testCase{program: true, link: "xdp"}, rcPingpong, writeBW, ucmatose)
	// Several processes of this stack on one address, each with its own port.
	for _, link := range []string{"", "udp"} {
		add(testCase{link: link, scenario: shared}, rping)
		add(testCase{link: link, scenario: shared, v6: true}, rping)
		add(testCase{link: link, scenario: shared, impair: loss}, rping)
		one(testCase{tool: rping, linux: client, link: link, scenario: bereaved})
	}
	// Of rdma-core's clients only rping ends after a disconnect in mid-transfer.
	add(testCase{scenario: killed}, rping)
	add(testCase{scenario: stopped}, rping)
	return slices.Concat(all, betweenCases(), conformCases())
}

// usual returns more for a case that loses packets: it waits for timers.
func (c testCase) usual() time.Duration {
	switch {
	case c.tested.peer != "":
		return 30 * time.Second
	case c.impair.lossy:
		return 3 * time.Second
	}
	return time.Second
}

// kernelLogUsual is how long the last case of a kernel usually takes.
const kernelLogUsual = 100 * time.Millisecond

// Time limits, generous because the guest is emulated and a lost packet costs rxe
// an acknowledgement timeout of up to 2 s.
const (
	bootLimit     = 2 * time.Minute
	cleanLimit    = 60 * time.Second
	impairedLimit = 150 * time.Second
	deadLimit     = 120 * time.Second
)
