package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/goroce/roce/examples/internal/ends"
)

// The program runs against itself, with as many messages as fill the queue twice and a half.
func TestBothEnds(t *testing.T) {
	args := strings.Fields("-a 127.0.0.4 -p 7322 -c 20 -l 5000 -q 3 -w 8")
	served, called := ends.Run(t, "waiting for connection",
		func(out io.Writer) error { return run(t.Context(), append([]string{"-s"}, args...), out) },
		func(out io.Writer) error { return run(t.Context(), args, out) })
	var wantServer, wantClient strings.Builder
	for i, n := 1, 0; i <= 20; i++ {
		fmt.Fprintf(&wantServer, "recv count: %d, qp_num: \\d+\n", i)
		fmt.Fprintf(&wantClient, "send count: %d, qp_num: \\d+\n", i)
		if i%8 == 0 || i == 20 {
			n++
			fmt.Fprintf(&wantServer, "send count: %d\n", n)
			fmt.Fprintf(&wantClient, "recv count: %d\n", n)
		}
	}
	ends.WantLines(t, "server", served, wantServer.String())
	ends.WantLines(t, "client", called, wantClient.String())
}

func TestBadArguments(t *testing.T) {
	for _, line := range []string{"", "-s", "-a 127.0.0.1 -q 0", "-a 127.0.0.1 -w many"} {
		if err := run(t.Context(), strings.Fields(line), io.Discard); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}
