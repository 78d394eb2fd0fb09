package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/roce/examples/internal/ends"
)

// The program runs against itself, from 127.0.0.1 to 127.0.0.6.
func TestBothEnds(t *testing.T) {
	served, called := ends.Run(t, "listening",
		func(out io.Writer) error { return run(t.Context(), strings.Fields("-s 127.0.0.6 7325"), out) },
		func(out io.Writer) error { return run(t.Context(), strings.Fields("127.0.0.6 7325"), out) })
	ends.WantLines(t, "server", served, "listening on 127.0.0.6:7325\nconnected with 127.0.0.1\nreceived '\\*\\*\\* Client Connected'\nshut down\n")
	ends.WantLines(t, "client", called, "\\*\\*\\* Client Connected\nClient private data\\(len 0\\): ''\n")
}

// A client with other private data is rejected, and learns why.
func TestRejected(t *testing.T) {
	var server, client error
	ends.Run(t, "listening",
		func(out io.Writer) error {
			server = run(t.Context(), strings.Fields("-s 127.0.0.6 7326"), out)
			return nil
		},
		func(out io.Writer) error {
			client = run(t.Context(), strings.Fields("-private stranger 127.0.0.6 7326"), out)
			return nil
		})
	if server == nil || server.Error() != `private data "stranger"` {
		t.Errorf("server: %v", server)
	}
	if !errors.Is(client, syscall.ECONNREFUSED) || !strings.Contains(client.Error(), `Rejected 'private data \"stranger\"'`) {
		t.Errorf("client: %v", client)
	}
}

// A client that waits in vain tells the reason once.
func TestNoAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, strings.Fields("127.0.0.6 7327"), io.Discard)
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "\n") {
		t.Errorf("client: %v", err)
	}
}

func TestBadArguments(t *testing.T) {
	for _, line := range []string{"", "-s", "127.0.0.1", "-s 127.0.0.1 many", "-s 192.0.2.1 1"} {
		if err := run(t.Context(), strings.Fields(line), io.Discard); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}
