//go:build linux

package main

import (
	"fmt"
	"strconv"

	"github.com/goroce/roce/bench/internal/result"
)

// contender is a stack and its program. End 0 is the server, end 1 the client.
type contender interface {
	name() string
	// argv returns the command line of an end.
	argv(end int, t test, port, seconds int) []string
	// in prefixes a command line so that it runs in the namespace of an end.
	in(end int, argv ...string) []string
}

// rxe is the kernel's stack, with perftest. Its two ends exchange their addresses over the loopback.
type rxe struct{ ends [2]*end }

func (rxe) name() string { return "rxe" }

func (r rxe) argv(i int, t test, port, seconds int) []string {
	e := r.ends[i]
	argv := append([]string{"ib_" + t.program, "-d", e.name, "-x", strconv.Itoa(e.gid)}, t.args(port, seconds)...)
	if i == 1 {
		argv = append(argv, "127.0.0.1")
	}
	return argv
}

func (rxe) in(_ int, argv ...string) []string { return argv }

// ours is rocectl over a link. On a machine with one processor it does not busy-poll, because the other end could not
// run meanwhile. (perftest always busy-polls in tests of a given duration.)
type ours struct {
	ends    [2]*end
	rocectl string
	link    string
	poll    bool
}

func (o ours) name() string { return "roce " + o.link }

func (o ours) argv(i int, t test, port, seconds int) []string {
	e := o.ends[i]
	argv := append([]string{o.rocectl, "perf", t.program, "--dev", e.name, "--link", o.link, fmt.Sprintf("--poll=%t", o.poll)}, t.args(port, seconds)...)
	if i == 1 {
		argv = append(argv, e.remote.addr.String())
	}
	return argv
}

// libraries is the same perftest as for rxe, on this stack's libraries in place of the system's.
type libraries struct {
	ends [2]*end
	lib  string // folder of libibverbs.so.1
	link string
}

func (l libraries) name() string { return result.LibrariesPrefix + l.link }

func (l libraries) argv(i int, t test, port, seconds int) []string {
	e := l.ends[i]
	argv := append([]string{"env", "LD_LIBRARY_PATH=" + l.lib, fmt.Sprintf("ROCE_FLAGS=--dev=%s --link=%s", e.name, l.link), "ib_" + t.program}, t.args(port, seconds)...)
	if i == 1 {
		argv = append(argv, e.remote.addr.String())
	}
	return argv
}

func (l libraries) in(i int, argv ...string) []string { return l.ends[i].netns.Argv(argv...) }

func (o ours) in(i int, argv ...string) []string { return o.ends[i].netns.Argv(argv...) }

// mixed is rocectl over a link as the client, and perftest on rxe as the server.
type mixed struct {
	rxe, ours contender // both with the ends of the mixed pair
	link      string
	lossy     bool
}

func (m mixed) name() string { return m.ours.name() }

func (m mixed) argv(i int, t test, port, seconds int) []string {
	if i == 0 {
		return m.rxe.argv(0, t, port, seconds)
	}
	loss := "1e-12" // no packet is lost, but link/fault does the same work for each
	if m.lossy {
		loss = "1%"
	}
	return append(m.ours.argv(1, t, port, seconds), "--recovery", "all", "--loss", loss)
}

func (m mixed) in(i int, argv ...string) []string {
	if i == 0 {
		return m.rxe.in(0, argv...)
	}
	return m.ours.in(1, argv...)
}
