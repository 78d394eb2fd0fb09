package main

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// testCase is one measurement and its number of rounds.
type testCase struct {
	name   string
	spec   harness.Spec
	rounds int
}

// scale has the numbers and durations of the measurements.
type scale struct {
	sizes  []int
	qps    []int
	rounds int // of each case
	pairs  int // of each case in a comparison: READ with WRITE, lossy with lossless
	key    int // of each case with a target

	warmup, duration       time.Duration
	keyDuration            time.Duration
	alternating            time.Duration // of READs and WRITEs; twice that outside smallAlternating to largeAlternating
	latency, connect, loss time.Duration
	busyDuration           time.Duration
	surfaceDuration        time.Duration
	memoryQPs, idleQPs     int
	iperf                  time.Duration

	programRounds int  // of each case with programs, in a run of all cases
	programShare  int  // programs send their number of messages divided by this
	everyProgram  bool // also those that a run of all cases leaves out
}

var (
	full = scale{
		sizes:  []int{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 8 << 20},
		qps:    []int{1, 16, 1000, 10_000},
		rounds: 3, pairs: 3, key: 7,
		warmup: 80 * time.Millisecond, duration: 150 * time.Millisecond, keyDuration: 300 * time.Millisecond,
		alternating: 320 * time.Millisecond,
		latency:     250 * time.Millisecond, connect: 400 * time.Millisecond, loss: 170 * time.Millisecond,
		busyDuration: 178 * time.Millisecond, surfaceDuration: 200 * time.Millisecond,
		memoryQPs: 10_000, idleQPs: 100_000, iperf: time.Second,
		programRounds: 2, programShare: 1,
	}
	quick = scale{
		sizes:  []int{64, 64 << 10, 1 << 20},
		qps:    []int{1, 16, 1000},
		rounds: 1, pairs: 1, key: 1,
		warmup: 10 * time.Millisecond, duration: 30 * time.Millisecond, keyDuration: 30 * time.Millisecond,
		alternating: 30 * time.Millisecond,
		latency:     30 * time.Millisecond, connect: 50 * time.Millisecond, loss: 14 * time.Millisecond,
		busyDuration: 10 * time.Millisecond, surfaceDuration: 20 * time.Millisecond,
		memoryQPs: 1000, idleQPs: 1000, iperf: time.Second,
		programRounds: 1, programShare: 25,
	}
)

// setUpTime is about the time in which a measurement opens devices and connects them.
const setUpTime = 100 * time.Millisecond

// pmtus are the path MTUs of streams.
var pmtus = []int{1024, 4096}

// Slots of READs and WRITEs vary most up to smallAlternating, where the two load the processors
// differently. From largeAlternating on a slot is longer, so that there are fewer.
const (
	smallAlternating = 1 << 10
	largeAlternating = 8 << 20
)

// cases lists all cases. Compared cases are next to each other.
func (s scale) cases(links []string) (all []testCase) {
	add := func(rounds int, name string, spec harness.Spec) {
		if spec.Warmup == 0 {
			spec.Warmup = s.warmup
		}
		if spec.Duration == 0 {
			spec.Duration = s.duration
		}
		all = append(all, testCase{name, spec, rounds})
	}
	for _, pmtu := range pmtus {
		for _, size := range s.sizes {
			stream := func(op, link string, rounds int) {
				spec := harness.Spec{Kind: result.Stream, Link: link, Op: op, Size: size, PMTU: pmtu}
				if isKey(spec) {
					rounds, spec.Duration = s.key, s.keyDuration
				}
				add(rounds, streamName(spec), spec)
			}
			for _, link := range links {
				stream("SEND", link, s.rounds)
			}
			if size == result.SmallSize {
				s.ceilings(add, links, pmtu, result.SmallSize, false)
				s.ceilings(add, links, pmtu, result.SmallSize, true)
			}
			for _, link := range links {
				stream("WRITE", link, s.rounds)
				if size == result.TargetSize { // soon after WRITE: the speed of the machine may change
					s.ceilings(add, []string{link}, pmtu, pmtu, false)
				}
				stream("READ", link, s.rounds)
				spec := harness.Spec{Kind: result.Alternating, Link: link, Op: result.ReadToWrite, Size: size, PMTU: pmtu, Warmup: s.warmup / 2, Duration: s.alternating}
				if size <= smallAlternating || size >= largeAlternating {
					spec.Duration *= 2
				}
				add(s.pairs, fmt.Sprintf("contest/%s/%s/%d", link, result.SizeName(size, ""), pmtu), spec)
			}
			if size == result.TargetSize {
				s.ceilings(add, links, pmtu, pmtu, true)
				s.tcp(add, result.InterfaceMTU(pmtu))
			}
		}
	}
	s.split(add, links)
	s.latencies(add, links)
	for _, link := range links {
		for _, qps := range s.qps {
			add(s.rounds, fmt.Sprintf("scaling/%s/%d", link, qps), harness.Spec{Kind: result.Scaling, Link: link, Op: "SEND", Size: result.SmallSize, PMTU: 1024,
				QPs: qps, Burst: 16, SRQ: true, Duration: s.keyDuration})
		}
	}
	s.losses(add, links)
	s.processes(add, links)
	s.busy(add, links)
	s.surfaces(add, links)
	s.idle(add, links)
	for _, link := range links {
		add(s.rounds, "connect/"+link, harness.Spec{Kind: result.Connect, Link: link, PMTU: 1024, Duration: s.connect})
	}
	add(s.rounds, "connect/tcp", harness.Spec{Kind: result.TCPConnect, Link: "tcp", PMTU: 1024, Duration: s.connect})
	add(1, "memory", harness.Spec{Kind: result.Memory, Link: "raw", PMTU: 1024, QPs: s.memoryQPs})
	add(s.key, "engine", harness.Spec{Kind: result.Engine})
	s.programs(add, links)
	return all
}

// losses adds streams over links that lose packets, each without recovery and then with recovery.
func (s scale) losses(add adder, links []string) {
	for _, link := range links {
		for _, op := range []string{"WRITE", "READ"} {
			if op == "READ" && link != links[0] {
				continue // the link makes no difference between the two
			}
			for _, loss := range []float64{0, 0.001, 0.01, 0.05} {
				spec := harness.Spec{Kind: result.Loss, Link: link, Op: op, Size: result.TargetSize, PMTU: 4096, Loss: loss, Warmup: s.warmup / 2, Duration: s.loss}
				name := fmt.Sprintf("loss/%s/%s/%g%%", link, op, loss*100)
				rounds := min(s.pairs, 2)
				add(rounds, name, spec)
				spec.Recovery = true
				add(rounds, name+"/recovery", spec)
			}
		}
	}
}

// processes adds streams of several processes on one interface, of one process that has the
// interface exclusively, of two processes with a core each, and of one process with two shards on both cores.
func (s scale) processes(add adder, links []string) {
	if !slices.Contains(links, "udp") {
		return
	}
	for _, op := range []harness.Spec{{Op: "SEND", Size: result.SmallSize, PMTU: 1024}, {Op: "WRITE", Size: result.TargetSize, PMTU: 4096}} {
		for _, c := range []struct {
			name   string
			rounds int
			spec   harness.Spec
		}{
			{"exclusive", s.key, harness.Spec{Processes: 1}},
			{"1", s.key, harness.Spec{Processes: 1, Shared: true}}, // it is compared with the exclusive one
			{"2", s.rounds, harness.Spec{Processes: 2, Shared: true}},
			{"4", s.rounds, harness.Spec{Processes: 4, Shared: true}},
			{"8", s.rounds, harness.Spec{Processes: 8, Shared: true}},
			{"2-cores", min(s.key, 5), harness.Spec{Processes: 2, Shared: true, Apart: true}},
			{"2-shards", min(s.key, 5), harness.Spec{Processes: 1, Shared: true, Shards: 2}},
		} {
			c.spec.Kind, c.spec.Link, c.spec.Wait, c.spec.Duration = result.Processes, "udp", true, s.keyDuration
			c.spec.Op, c.spec.Size, c.spec.PMTU = op.Op, op.Size, op.PMTU
			add(c.rounds, fmt.Sprintf("processes/udp/%s/%s/%s", op.Op, result.SizeName(op.Size, ""), c.name), c.spec)
		}
	}
}

// busy adds streams and round trips while other programs compute. Each is next to TCP under the same load.
func (s scale) busy(add adder, links []string) {
	if !slices.Contains(links, "udp") {
		return
	}
	each := func(rounds int, place harness.Spec) {
		for _, spec := range []harness.Spec{{Kind: result.Busy, Op: "WRITE", Size: 64 << 10, PMTU: 4096}, {Kind: result.BusyTrips, Size: result.SmallSize, PMTU: 1024}} {
			spec.Loops, spec.Free, spec.Quota, spec.Procs, spec.Duration = place.Loops, place.Free, place.Quota, place.Procs, s.busyDuration
			if spec.Quota > 0 {
				spec.Duration *= 2 // several periods of the quota
			}
			for _, mode := range busyModes {
				spec.Link, spec.Wait, spec.Background = mode.link, mode.wait, mode.background
				add(rounds, busyName(spec, mode.name), spec)
			}
			// Starting the C programs takes longer than their measurement. So a run of all cases has few of them.
			if spec.Quota == 0 && spec.Procs == 0 && spec.Loops == 2 {
				spec = s.busyPerftest(spec)
				add(1, busyName(spec, spec.By), spec)
			}
		}
	}
	for _, free := range []bool{false, true} {
		for _, loops := range []int{0, 1, 2, 4} {
			each(min(s.rounds, 2), harness.Spec{Loops: loops, Free: free})
		}
	}
	each(1, harness.Spec{Quota: 0.5})
	each(1, harness.Spec{Free: true, Procs: 8}) // goroutines run on more threads than there are cores
}

// busyModes are the contenders on a busy machine: TCP, and the ways to drive a device.
var busyModes = []struct {
	name, link       string
	wait, background bool
}{{"tcp", "tcp", false, false}, {"background", "udp", true, false}, {"polling", "udp", false, true}, {"polled", "udp", false, false}}

// busyPerftest returns the same measurement of a C program that polls without a pause.
func (s scale) busyPerftest(spec harness.Spec) harness.Spec {
	spec.By, spec.Op, spec.Count = result.ByPerftest, "write_bw", 3000
	if spec.Kind == result.BusyTrips {
		spec.Op, spec.Count = "send_lat", 5000
	}
	spec.Count, spec.Duration = max(1, spec.Count/s.programShare), programTime
	return spec
}

func busyName(s harness.Spec, mode string) string {
	what, where := "goodput", "pinned"
	if s.Kind == result.BusyTrips {
		what = "latency"
	}
	switch {
	case s.Procs > 0:
		where = fmt.Sprintf("free-%d threads", s.Procs)
	case s.Free:
		where = "free"
	case s.Quota > 0:
		where = fmt.Sprintf("quota of %g", s.Quota)
	}
	return fmt.Sprintf("busy/%s/%s/%d-%s", what, mode, s.Loops, where)
}

type adder = func(rounds int, name string, spec harness.Spec)

// ceilings adds the blasts, by sockets or by our drivers.
func (s scale) ceilings(add adder, links []string, pmtu, size int, port bool) {
	by := ""
	if port {
		by = "-port"
	}
	for _, link := range links {
		add(s.key, fmt.Sprintf("blast/%s%s/%s/%d", link, by, result.SizeName(size, ""), pmtu),
			harness.Spec{Kind: result.Blast, Link: link, Size: size, PMTU: pmtu, Port: port, Duration: s.keyDuration})
	}
}

func (s scale) tcp(add adder, mtu int) {
	for _, how := range []string{"offloads", "plain"} {
		add(s.key, fmt.Sprintf("tcp/%s/%d", how, mtu), harness.Spec{Kind: result.IPerf, Link: "tcp", Op: how, PMTU: mtu, Duration: s.iperf})
	}
}

// split adds WRITEs that are sent as messages of one packet each. It does so where that makes a difference: on links
// with super-packets, with sizes of some packets.
func (s scale) split(add adder, links []string) {
	for _, pmtu := range pmtus {
		for _, size := range []int{4 << 10, 16 << 10} {
			for _, link := range links {
				if size == pmtu || link == "xdp" {
					continue
				}
				spec := harness.Spec{Kind: result.Stream, Link: link, Op: result.SplitWrite, Size: size, PMTU: pmtu}
				add(s.rounds, streamName(spec), spec)
			}
		}
	}
}

func (s scale) latencies(add adder, links []string) {
	one := func(name, kind, link string, spec harness.Spec) {
		spec.Kind, spec.Link, spec.Size, spec.PMTU, spec.Duration = kind, link, result.SmallSize, 1024, s.latency
		add(s.key, name, spec)
	}
	for _, link := range links {
		one("latency/"+link+"/polled", result.Latency, link, harness.Spec{})
		one("latency/"+link+"/polling", result.Latency, link, harness.Spec{Background: true})
		one("ping/"+link, result.Ping, link, harness.Spec{})
		if link == "udp" {
			one("ping/udp-"+result.Unconnected, result.Ping, link, harness.Spec{Op: result.Unconnected})
		}
		one("ping/"+link+"-port", result.Ping, link, harness.Spec{Port: true})
	}
	for _, link := range links {
		one("latency/"+link+"/background", result.Latency, link, harness.Spec{Wait: true})
		one("latency/"+link+"/sleeping", result.Latency, link, harness.Spec{Wait: true, Sleep: true})
	}
	one("latency/tcp", result.TCPLatency, "tcp", harness.Spec{})
}

// isKey reports whether this stream has a target.
func isKey(s harness.Spec) bool {
	return s.Size == result.TargetSize && s.Op == "WRITE" || s.Size == result.SmallSize && s.Op == "SEND" && s.PMTU == 1024
}

func streamName(s harness.Spec) string {
	return fmt.Sprintf("goodput/%s/%s/%s/%d", s.Link, s.Op, result.SizeName(s.Size, ""), s.PMTU)
}

// choose returns the cases that match, with the given rounds unless these are 0.
func choose(all []testCase, run *regexp.Regexp, rounds int) []testCase {
	all = slices.DeleteFunc(all, func(c testCase) bool { return !run.MatchString(c.name) })
	if rounds > 0 {
		for i := range all {
			all[i].rounds = rounds
		}
	}
	return all
}

// step is one round of a case.
type step struct {
	point int // index of the case
	round int
}

// schedule orders the rounds: all cases once, then once more from the last to the first, and so on. A longer disturbance
// of the machine then affects all cases of a comparison.
func schedule(cases []testCase) (steps []step) {
	most := 0
	for _, c := range cases {
		most = max(most, c.rounds)
	}
	for round := range most {
		var these []step
		for i, c := range cases {
			if round < c.rounds {
				these = append(these, step{i, round})
			}
		}
		if round%2 == 1 {
			slices.Reverse(these)
		}
		steps = append(steps, these...)
	}
	return steps
}
