//go:build linux

package main

import (
	"fmt"
	"strconv"

	"github.com/goroce/roce/bench/internal/result"
)

// contender is a stack and its program.
type contender interface {
	name() string
	// argv returns the command line of an end.
	argv(end int, t test, port, seconds int) []string
	// in prefixes a command line so that it runs in the namespace of an end.
	in(end int, argv ...string) []string
}

// ends are the two ends of a contender: end 0 is the server, end 1 the client.
type ends [2]*end

func (e ends) in(i int, argv ...string) []string { return e[i].netns.Argv(argv...) }

// withPeer adds the server's address to the client's command line.
func (e ends) withPeer(i int, argv []string) []string {
	if i == 1 {
		argv = append(argv, e[1].remote.addr.String())
	}
	return argv
}

// rxe is the kernel's stack, with perftest. Its two ends exchange their addresses over the loopback.
type rxe struct{ ends }

func (rxe) name() string { return "rxe" }

func (r rxe) argv(i int, t test, port, seconds int) []string {
	e := r.ends[i]
	argv := append([]string{"ib_" + t.program, "-d", e.name, "-x", strconv.Itoa(e.gid)}, t.args(port, seconds)...)
	if i == 1 {
		argv = append(argv, "127.0.0.1")
	}
	return argv
}

// ours is rocectl over a link. On a machine with one processor it does not busy-poll, because the other end could not
// run meanwhile. (perftest always busy-polls in tests of a given duration.)
type ours struct {
	ends
	rocectl string
	link    string
	poll    bool
}

func (o ours) name() string { return "roce " + o.link }

func (o ours) argv(i int, t test, port, seconds int) []string {
	argv := []string{o.rocectl, "perf", t.program, "--dev", o.ends[i].name, "--link", o.link, fmt.Sprintf("--poll=%t", o.poll)}
	return o.withPeer(i, append(argv, t.args(port, seconds)...))
}

// libraries is the same perftest as for rxe, on this stack's libraries in place of the system's.
type libraries struct {
	ends
	lib  string // folder of libibverbs.so.1
	link string
}

func (l libraries) name() string { return result.LibrariesPrefix + l.link }

func (l libraries) argv(i int, t test, port, seconds int) []string {
	argv := []string{"env", "LD_LIBRARY_PATH=" + l.lib, fmt.Sprintf("ROCE_FLAGS=--dev=%s --link=%s", l.ends[i].name, l.link), "ib_" + t.program}
	return l.withPeer(i, append(argv, t.args(port, seconds)...))
}

// mixed is rocectl over a link as the client, and perftest on rxe as the server.
type mixed struct {
	ours
	rxe   rxe // with the same ends
	lossy bool
}

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
