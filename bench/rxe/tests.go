//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goroce/roce/bench/internal/perftest"
	"github.com/goroce/roce/bench/internal/result"
)

// test is one of perftest's programs with its flags.
type test struct {
	name    string
	program string
	size    int
	mtu     int // of the link
	flags   string
	who     contenders
}

// contenders says whom a test compares.
type contenders int

const (
	stacks    contenders = iota // rxe with perftest, this stack with rocectl
	libraried                   // and this stack's libraries with perftest
	fromRXE                     // rocectl with its peer, perftest on rxe
	lossy                       // the same, while 1 % of the packets are lost in each direction
)

// Link MTUs, by the path MTU that follows from them.
const (
	mtu1024 = 1500
	mtu4096 = 4200
)

var tests = []test{
	{"WRITE 64 KiB, PMTU 1024", "write_bw", 65536, mtu1024, "", libraried},
	{"WRITE 64 KiB, PMTU 4096", "write_bw", 65536, mtu4096, "", libraried},
	{"WRITE 1 MiB, PMTU 1024", "write_bw", 1 << 20, mtu1024, "-t 16", stacks},
	{"WRITE 1 MiB, PMTU 4096", "write_bw", 1 << 20, mtu4096, "-t 16", stacks},
	{"READ 64 KiB, PMTU 1024", "read_bw", 65536, mtu1024, "", stacks},
	{"READ 64 KiB, PMTU 4096", "read_bw", 65536, mtu4096, "", stacks},
	{"SEND 64 KiB, PMTU 4096", "send_bw", 65536, mtu4096, "", stacks},
	{"SEND 64 B", "send_bw", 64, mtu1024, "", libraried},
	{"SEND 64 B, lists of 32", "send_bw", 64, mtu1024, "-l 32", stacks},
	{"WRITE 64 B, lists of 32", "write_bw", 64, mtu1024, "-l 32", stacks},
	{"SEND 64 B, 16 queue pairs", "send_bw", 64, mtu1024, "-q 16 -l 32", stacks},
	{"FETCH_ADD", "atomic_bw", 8, mtu1024, "", stacks},
	{"SEND 64 B latency", "send_lat", 64, mtu1024, "", stacks},
	{"WRITE 64 B latency", "write_lat", 64, mtu1024, "", stacks},
	{"READ 64 B latency", "read_lat", 64, mtu1024, "", stacks},
	{"FETCH_ADD latency", "atomic_lat", 8, mtu1024, "", stacks},
	{result.FromRXE, "read_bw", 65536, mtu4096, "", fromRXE},
	{result.FromRXELossy, "read_bw", 65536, mtu4096, "", lossy},
}

// smallSize is the largest size for which a bandwidth test counts messages, not bytes.
const smallSize = 1024

func (t test) latency() bool { return strings.HasSuffix(t.program, "_lat") }

// unit returns the unit of the test's values.
func (t test) unit() string {
	switch {
	case t.latency():
		return "µs"
	case t.size <= smallSize:
		return "M/s"
	}
	return "Gb/s"
}

// latencyRounds is the number of round trips of a latency test.
const latencyRounds = 3000

// args returns the flags of the program.
func (t test) args(port, seconds int) []string {
	argv := strings.Fields(fmt.Sprintf("-F -s %d -p %d %s", t.size, port, t.flags))
	if t.latency() {
		return append(argv, "-n", strconv.Itoa(latencyRounds))
	}
	return append(argv, "-D", strconv.Itoa(seconds), "--report_gbits")
}

// read finds the result in the output of the program.
func (t test) read(output string) (result.RXESample, error) {
	r, err := perftest.Read(output, t.size, t.latency())
	s := result.RXESample{Iters: r.Iters}
	switch {
	case t.latency():
		s.Value, s.P99 = r.Typical, r.P99
	case t.size <= smallSize:
		s.Value = r.Mega
	default:
		s.Value = r.Gbits
	}
	return s, err
}
