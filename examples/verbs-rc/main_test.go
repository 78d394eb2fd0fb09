package main

import (
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/goroce/roce/examples/internal/ends"
)

// The program runs against itself, from 127.0.0.2 to 127.0.0.1.
func TestBothEnds(t *testing.T) {
	port := freePort(t)
	served, called := ends.Run(t, "waiting on port",
		func(out io.Writer) error { return run(t.Context(), []string{"-d", "127.0.0.1", "-p", port}, out) },
		func(out io.Writer) error {
			return run(t.Context(), []string{"--ib-dev", "127.0.0.2", "--port", port, "127.0.0.1"}, out)
		})
	ends.WantLines(t, "server", served, `going to send the message: 'SEND operation      '
Remote GID = 00:00:00:00:00:00:00:00:00:00:ff:ff:7f:00:00:02
QP state was change to RTS
Send Request was posted
completion was found in CQ with status 0x0
Contents of server buffer: 'RDMA write operation'
test result is 0
`)
	ends.WantLines(t, "client", called, `Receive Request was posted
completion was found in CQ with status 0x0
Message is: 'SEND operation      '
RDMA Read Request was posted
completion was found in CQ with status 0x0
Contents of server's buffer: 'RDMA read operation '
Now replacing it with: 'RDMA write operation'
RDMA Write Request was posted
completion was found in CQ with status 0x0
test result is 0
`)
}

// freePort returns a free TCP port.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{{"-p", "many"}, {"one", "two"}, {"--no-such-flag"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
