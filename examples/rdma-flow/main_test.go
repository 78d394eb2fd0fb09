package main

import (
	"io"
	"testing"

	"github.com/goroce/roce/examples/internal/ends"
)

// The program runs against itself, from 127.0.0.1 to 127.0.0.3.
func TestBothEnds(t *testing.T) {
	const addr, port = "127.0.0.3", "7320"
	served, called := ends.Run(t, "listening on port",
		func(out io.Writer) error { return run(t.Context(), []string{"-s", addr, port}, out) },
		func(out io.Writer) error { return run(t.Context(), []string{"-c", addr, port}, out) })
	ends.WantLines(t, "server", served, "server: listening on port 7320\nserver: the region is as the client wrote it\ndisconnected\n")
	ends.WantLines(t, "client", called, "client: what was read is what was written\ndisconnected\n")
}

// Nobody listens there: the connection is refused.
func TestRefused(t *testing.T) {
	if err := run(t.Context(), []string{"-dev", "127.0.0.1", "-c", "127.0.0.1", "7321"}, io.Discard); err == nil {
		t.Error("no error")
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"-s"}, {"-c", "127.0.0.1"}, {"-s", "-c", "127.0.0.1", "1"}, {"-s", "127.0.0.1", "many"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
