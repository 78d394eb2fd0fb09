package main

import (
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/ends"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// A sender and a receiver on a switch in the process. UDP sockets on the loopback have no multicast.
func TestBothEnds(t *testing.T) {
	hub := mem.NewHub(mem.Config{MTU: 1500})
	end := func(addr, line string) ends.End {
		ip := netip.MustParseAddr(addr)
		o, err := parse(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		return func(out io.Writer) error {
			port, err := hub.Port(addr, roce.DerivedMAC(ip))
			if err != nil {
				return err
			}
			device, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}})
			if err != nil {
				return err
			}
			defer device.Close()
			return o.run(t.Context(), device, out)
		}
	}
	received, sent := ends.Run(t, "waiting for messages", end("10.0.0.1", "-m 239.77.1.5 -b 10.0.0.1 -l 1024"), end("10.0.0.2", "-s -m 239.77.1.5 -l 1024"))
	const joined = "joined dgid: ::ffff:239.77.1.5, mlid 0x0, sl 0\n"
	ends.WantLines(t, "receiver", received, joined+"waiting for messages...\nreceived message 1\nreceived message 2\nreceived message 3\nreceived message 4\n")
	ends.WantLines(t, "sender", sent, joined+"sent message 1\nsent message 2\nsent message 3\nsent message 4\n")

	if err := end("10.0.0.3", "-s -m 239.77.1.5 -l 2048")(io.Discard); err == nil || !strings.Contains(err.Error(), "larger than active mtu 1024") {
		t.Errorf("a message of 2048 bytes: %v", err)
	}
}

func TestBadArguments(t *testing.T) {
	for _, line := range []string{"", "-m nowhere", "-m 239.77.1.5 -c 0", "-m 239.77.1.5 -b 192.0.2.1"} {
		if err := run(t.Context(), strings.Fields(line), io.Discard); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}
