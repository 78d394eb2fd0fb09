package main

import (
	"io"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/examples/internal/ends"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
)

// The client migrates to its alternate path, which is the same as the first path, from 127.0.0.1 to 127.0.0.5. The
// program in C does so, too.
func TestMigrate(t *testing.T) {
	served, called := ends.Run(t, "rdma_get_request",
		func(out io.Writer) error {
			return run(t.Context(), strings.Fields("-s -dev 127.0.0.5 -p 7323 -c 4 -w 0"), out)
		},
		func(out io.Writer) error {
			return run(t.Context(), strings.Fields("-a 127.0.0.5 -p 7323 -c 4 -w 0 -m 1"), out)
		})
	wantMigrated(t, "server", served, "recv: 1\nsend: 1\nrecv: 2\nsend: 2\nrecv: 3\nsend: 3\nrecv: 4\nsend: 4\n")
	wantMigrated(t, "client", called, "send: 1\nrecv: 1\nsend: 2\nrecv: 2\nsend: 3\nrecv: 3\nsend: 4\nrecv: 4\n")
}

// Each end has two addresses, and the wire to the client's first address breaks after the second message. The queue
// pairs migrate by themselves, and no message is lost. Messages of the connection manager still pass: they have no
// alternate path, and the ends must disconnect.
func TestFirstPathFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, neighbours := mem.NewHub(mem.Config{MTU: 4200}), roce.Neighbours{}
		open := func(addrs ...netip.Addr) (*roce.Device, *fault.Port) {
			mac := roce.DerivedMAC(addrs[0])
			for _, a := range addrs {
				neighbours[a] = mac
			}
			port, err := hub.Port(addrs[0].String(), mac)
			if err != nil {
				t.Fatal(err)
			}
			wire, err := fault.Wrap(port, fault.Config{})
			if err != nil {
				t.Fatal(err)
			}
			d, err := roce.Open(roce.Config{Ports: []link.Port{wire}, Addrs: addrs, Options: roce.Options{Resolver: neighbours}})
			if err != nil {
				t.Fatal(err)
			}
			return d, wire
		}
		s1, s2 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.1")
		c1, c2 := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.1.2")
		server, _ := open(s1, s2)
		defer server.Close()
		client, wire := open(c1, c2)
		defer client.Close()
		served, called := ends.Run(t, "rdma_get_request",
			func(out io.Writer) error {
				o := parsed(t, "-s -c 4 -r 1 -d", c2.String())
				return o.run(t.Context(), server, out)
			},
			func(out io.Writer) error {
				o := parsed(t, "-a 10.0.0.1 -c 4 -r 1 -d", s2.String())
				return o.run(t.Context(), client, when{out, "send: 2", func() {
					if err := wire.AddRule(fault.Rule{Action: fault.Drop, Addr: fault.Is(s1), Func: notCM}); err != nil {
						t.Error(err)
					}
				}})
			})
		wantMigrated(t, "server", served, "loading alt path - local GID: 1, dgid: 10.0.1.2\nrecv: 1\nsend: 1\nrecv: 2\nsend: 2\nrecv: 3\nsend: 3\nrecv: 4\nsend: 4\n")
		wantMigrated(t, "client", called, "loading alt path - local GID: 1, dgid: 10.0.1.1\nsend: 1\nrecv: 1\nsend: 2\nrecv: 2\nsend: 3\nrecv: 3\nsend: 4\nrecv: 4\n")
	})
}

// notCM reports whether a packet does not belong to the connection manager.
func notCM(_ fault.Direction, p *bth.Packet) bool { return p.DestQPN() != bth.QPNGSI }

// parsed returns the options of a command line and one more argument.
func parsed(t *testing.T, line, last string) options {
	t.Helper()
	o, err := parse(append(strings.Fields(line), last))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// when is a writer that calls do when a text is printed.
type when struct {
	io.Writer
	text string
	do   func()
}

func (w when) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.do()
	}
	return w.Writer.Write(p)
}

func wantMigrated(t *testing.T, end, printed, lines string) {
	t.Helper()
	ends.WantLines(t, end, printed, lines)
	if n := len(regexp.MustCompile(`(?m)^QP path migrated$`).FindAllString(printed, -1)); n != 1 {
		t.Errorf("the %s has migrated %d times:\n%s", end, n, printed)
	}
}

func TestBadArguments(t *testing.T) {
	for _, line := range []string{"", "-a 127.0.0.1 -d 10.0.0.1", "-a 127.0.0.1 -r 1", "-a 127.0.0.1 -c 1 -m 2", "-s", "-a 127.0.0.1 -l 0", "-a 127.0.0.1 -d nowhere -r 0"} {
		if err := run(t.Context(), strings.Fields(line), io.Discard); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}
