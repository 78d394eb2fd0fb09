package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/linktest"
)

// announced keeps output and closes ready when the output contains a text.
type announced struct {
	text  string // empty: "listening on "
	ready chan struct{}
	once  sync.Once
	bytes.Buffer
}

func (a *announced) Write(b []byte) (int, error) {
	a.Buffer.Write(b)
	if strings.Contains(a.String(), cmp.Or(a.text, "listening on ")) {
		a.once.Do(func() { close(a.ready) })
	}
	return len(b), nil
}

// meet runs a server at one end and then a client at the other. An end that is nil is the namespace of the test. It returns the exit
// code and the output of the client. If the client fails, meet interrupts the server.
func meet(t *testing.T, client, server *netlab.Side, serve, call string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	at := func(s *netlab.Side, args string, out, errs io.Writer) (code int) {
		code = exitFailed // the result if Do ends the test
		do := func() { code = run(ctx, strings.Fields(args), out, errs) }
		if s == nil {
			do()
		} else {
			s.Do(t, do)
		}
		return code
	}
	srv := &announced{ready: make(chan struct{})}
	served := make(chan int, 1)
	go func() { served <- at(server, serve, srv, srv) }()
	select {
	case <-srv.ready:
	case code := <-served:
		t.Fatalf("server: exit %d, %s", code, srv)
	}
	var out bytes.Buffer
	code := at(client, call, &out, &out)
	if code != exitOK {
		cancel()
	}
	if sc := <-served; sc != code {
		t.Errorf("server: exit %d, %s", sc, srv)
	}
	return code, out.String()
}

// Each tool works between two network namespaces with each driver, and finds the interface by the address.
func TestToolsOnInterfaces(t *testing.T) {
	for _, link := range []string{"raw", "udp", "xdp", "xdp --in-place 4"} {
		t.Run(link, func(t *testing.T) { testToolsOnInterfaces(t, link) })
	}
}

func testToolsOnInterfaces(t *testing.T, link string) {
	a, b := netlab.Pair(t, netlab.Config{})
	ip4, ip6 := a.IP4.String(), a.IP6.String()
	for _, tt := range []struct{ name, server, client string }{
		{"rping", "rping -s -a " + ip4 + " -C 5", "rping -c -a " + ip4 + " -C 5 -S 5000 -V"},
		{"rping over IPv6", "rping -s -a " + ip6 + " -C 5", "rping -c -a " + ip6 + " -C 5 -V"},
		{"rping with losses", "rping -s -C 3", "rping -c -a " + ip4 + " -C 3 -V --loss 2% --dup 10% --fault pass,qpn=1"},
		{"polled", "rping -s --poll", "rping -c -a " + ip4 + " -C 5 --poll"},
		{"pingpong", "pingpong rc -n 100", "pingpong rc -n 100 -c " + ip4},
		{"pingpong over IPv6", "pingpong rc -n 100 -s 9000", "pingpong rc -n 100 -s 9000 -c " + ip6},
		{"pingpong of UC", "pingpong uc -n 100", "pingpong uc -n 100 -c " + ip4},
		{"pingpong of UD", "pingpong ud -n 100", "pingpong ud -n 100 -c " + ip4},
		{"pingpong of UD over IPv6", "pingpong ud -n 100", "pingpong ud -n 100 -c " + ip6},
		{"pingpong of SRQ", "pingpong srq -n 100", "pingpong srq -n 100 -c " + ip4},
		{"probe", "cm reject -p 4711 -C 1", "cm probe " + ip4 + ":4712"}, // no program listens on port 4712
	} {
		if strings.Contains(link, "in-place") && strings.Contains(tt.client, "--loss") {
			continue // --loss needs packets in one piece
		}
		t.Run(tt.name, func(t *testing.T) {
			code, out := meet(t, b, a, tt.server+" --link "+link, tt.client+" --link "+link)
			if tt.name == "probe" && (code != exitFailed || !strings.Contains(out, "rejected, reason 8")) || tt.name != "probe" && code != exitOK {
				t.Errorf("client: exit %d, %s", code, out)
			}
		})
	}
	b.Do(t, func() {
		var out bytes.Buffer
		if code := run(t.Context(), []string{"dev", "-v"}, &out, &out); code != exitOK ||
			!strings.Contains(out.String(), "::ffff:"+b.IP4.String()) || !strings.Contains(out.String(), "PORT_ACTIVE") {
			t.Errorf("dev: exit %d, %s", code, out.String())
		}
	})
}

// TestToolsOnLoopback: two ends on one host work without privilege, if the loopback
// network has more than one address.
func TestToolsOnLoopback(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("only 127.0.0.1 is the host's own")
	}
	near, far := linktest.Loopback(51).String(), linktest.Loopback(52).String()
	if code, out := meet(t, nil, nil, "rping -s --link udp -C 5 -a "+far, "rping -c --link udp -V -C 5 -S 20000 -I "+near+" -a "+far); code != exitOK {
		t.Errorf("client: exit %d, %s", code, out)
	}
}
