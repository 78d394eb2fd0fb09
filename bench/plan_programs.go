package main

import (
	"fmt"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// program is a test of programs. Its number of messages takes about a tenth of a second.
type program struct {
	op    string
	size  int
	count int
	key   bool // a run of all cases measures it, too; the others are measured with -run only
}

// perftests are perftest's programs, which rocectl perf has, too.
var perftests = []program{
	{"send_bw", result.SmallSize, 200_000, true},
	{"write_bw", 64 << 10, 16_000, true},
	{"send_lat", result.SmallSize, 20_000, true},
	{"write_lat", result.SmallSize, 20_000, true},
	{"read_lat", result.SmallSize, 20_000, true},
	{"send_bw", 64 << 10, 16_000, false},
	{"write_bw", result.SmallSize, 200_000, false},
	{"read_bw", result.SmallSize, 200_000, false},
	{"read_bw", 64 << 10, 16_000, false},
}

// mpiPrograms are those of bench/mpi/pingpong.c. key: a run of all cases measures it over all links, and not only over udp.
var mpiPrograms = []program{
	{result.MPIPrefix + "lat", 8, 20_000, true},
	{result.MPIPrefix + "bw", result.TargetSize, 400, false},
}

// programTime is about the time in which a test of programs runs, from their start to their end.
const programTime = 500 * time.Millisecond

// programs adds unmodified programs on this stack's libraries, each next to the program that it is compared with.
// Starting them takes longer than their measurement. So a run of all cases has few of them, in few rounds.
func (s scale) programs(add adder, links []string) {
	rounds := s.programRounds
	if s.everyProgram {
		rounds = s.key
	}
	one := func(p program, link, by string) {
		add(rounds, fmt.Sprintf("programs/%s/%s/%s/%s", link, p.op, result.SizeName(p.size, ""), by), harness.Spec{Kind: result.Programs, Link: link, Op: p.op,
			Size: p.size, PMTU: 4096, By: by, Count: max(1, p.count/s.programShare), Warmup: setUpTime, Duration: programTime})
	}
	for _, p := range perftests {
		for _, link := range links {
			if p.key || s.everyProgram {
				one(p, link, result.ByPerftest)
				if s.everyProgram || p.op != "write_lat" { // which is compared with send_lat
					one(p, link, result.ByRocectl)
				}
			}
		}
	}
	for _, p := range mpiPrograms {
		for _, link := range append(links[:len(links):len(links)], "tcp") {
			if p.key || link == "udp" || link == "tcp" || s.everyProgram {
				one(p, link, result.ByOpenMPI)
			}
		}
	}
}
