package rping_test

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/rping"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

// run pings over a wire and returns what both ends printed.
func run(t *testing.T, f fault.Config, addr string, c rping.Config) (server, client string) {
	t.Helper()
	sd, cd := tooltest.Pair(t, f)
	var sout, cout bytes.Buffer
	ready := make(chan netip.AddrPort, 1)
	served := make(chan error, 1)
	sc := c
	sc.Out, c.Out = &sout, &cout
	go func() {
		r, err := rping.Server(t.Context(), sd, addr, sc, func(a netip.AddrPort) { ready <- a })
		if err == nil && r.Pings != c.Count {
			err = errors.New("the server counted otherwise")
		}
		served <- err
	}()
	r, err := rping.Client(t.Context(), cd, (<-ready).String(), c)
	if err != nil || r.Pings != c.Count {
		t.Errorf("client: %+v, %v", r, err)
	}
	if err := <-served; err != nil {
		t.Errorf("server: %v", err)
	}
	return sout.String(), cout.String()
}

func TestPing(t *testing.T) {
	lossy := fault.Config{Seed: 1, Tx: fault.Rates{Loss: 0.02}, Rx: fault.Rates{Dup: 0.05}}
	for _, c := range []struct {
		name  string
		fault fault.Config
		addr  string
		size  int
	}{
		{"IPv4", fault.Config{}, tooltest.Server4 + ":7174", 64},
		{"IPv6", fault.Config{}, "[" + tooltest.Server6 + "]:7174", 1000},
		{"largest", fault.Config{}, tooltest.Server4 + ":7174", rping.MaxSize},
		{"lossy", lossy, tooltest.Server4 + ":0", 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, client := run(t, c.fault, c.addr, rping.Config{Count: 5, Size: c.size, Verbose: true, Check: true})
			if !strings.HasPrefix(server, "server ping data: rdma-ping-0: ABCDEFG") || strings.Count(server, "\n") != 5 {
				t.Errorf("server printed %.200q", server)
			}
			if !strings.Contains(client, "\nping data: rdma-ping-4: EFGHI") || strings.Count(client, "\n") != 5 {
				t.Errorf("client printed %.200q", client)
			}
			long := c.size > 256 // then the lines say how much is left out
			for _, out := range []string{server, client} {
				if strings.Contains(out, "… (") != long || len(out) > 5*320 {
					t.Errorf("5 texts of %d bytes are printed in %d: %.400q", c.size, len(out), out)
				}
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	_, cd := tooltest.Pair(t, fault.Config{})
	_, err := rping.Client(t.Context(), cd, tooltest.Server4+":7174", rping.Config{Count: 1})
	var reject *roce.RejectError
	if !errors.As(err, &reject) || reject.Reason != 8 || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want reason 8", err)
	}
}

func TestBadSize(t *testing.T) {
	for _, n := range []int{1, rping.MinSize - 1, rping.MaxSize + 1, -1} {
		if _, err := rping.Client(t.Context(), nil, "", rping.Config{Size: n}); err == nil {
			t.Errorf("size %d accepted", n)
		}
	}
}

// TestServerDies: the client notices that the server has died during the test.
func TestServerDies(t *testing.T) {
	sd, cd := tooltest.Pair(t, fault.Config{})
	ready := make(chan netip.AddrPort, 1)
	go rping.Server(t.Context(), sd, ":0", rping.Config{Verbose: true, Out: closeAfter{sd}}, func(a netip.AddrPort) { ready <- a })
	port := (<-ready).Port()
	_, err := rping.Client(t.Context(), cd, netip.AddrPortFrom(netip.MustParseAddr(tooltest.Server4), port).String(), rping.Config{Count: 1 << 30})
	if err == nil || !strings.Contains(err.Error(), "ping 3") {
		t.Errorf("client: %v", err)
	}
}

// closeAfter closes the device at the fourth ping.
type closeAfter struct{ d *roce.Device }

func (c closeAfter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("rdma-ping-3:")) {
		c.d.Close()
	}
	return len(b), nil
}
