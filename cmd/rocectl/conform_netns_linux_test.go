package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/internal/netlab"
)

// conformServer starts a server in the namespace of a side. stop ends it.
func conformServer(t *testing.T, at *netlab.Side, link string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	srv := &announced{ready: make(chan struct{})}
	served := make(chan int, 1)
	go func() {
		code := exitFailed
		at.Do(t, func() {
			code = run(ctx, []string{"conform", "--serve", "--link", link, "--dcqcn=10", at.IP4.String()}, srv, srv)
		})
		served <- code
	}()
	select {
	case <-srv.ready:
	case code := <-served:
		t.Fatalf("server: exit %d, %s", code, srv)
	}
	return func() {
		t.Helper()
		cancel()
		if code := <-served; code != exitOK {
			t.Errorf("server: exit %d, %s", code, srv)
		}
	}
}

// With AF_XDP at both ends operations, faults and scripts pass, and the rules of the IP header are judged. The scripts use a packet socket
// of the same interface.
func TestConformOverXDP(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	stop := conformServer(t, a, "xdp")
	defer stop()
	code, out := conformAt(t, b, a, "--link", "xdp", "--only", "clean/write|clean/cm/tester|drop-middle/write/tester|script/headers/(wrong-icrc|in-order)")
	if code != exitOK || !strings.Contains(out, "PASS, 6 of 6 steps pass") || !strings.Contains(out, "driver xdp") || strings.Contains(out, "ip-header") {
		t.Errorf("exit status %d\n%s", code, out)
	}
}

// Over packet sockets between two namespaces the rules of the IP header are judged, and single packets can be marked. If the tester's interface is
// removed, the test ends with an error about the tester's own device.
func TestConformOnInterfaces(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	stop := conformServer(t, a, "raw")
	defer stop()
	test := func(only, limit string, errs *announced) (int, string) {
		var out bytes.Buffer
		code := exitFailed
		b.Do(t, func() {
			code = run(t.Context(), []string{"conform", "--link", "raw", "--limit", limit, "--only", only, a.IP4.String()}, &out, errs)
		})
		return code, out.String()
	}
	code, out := test("clean/(write|cm)/|mark/write/tester|script/headers/(ttl-1|wrong-udp|in-order)", "1m", &announced{ready: make(chan struct{})})
	if code != exitOK || !strings.Contains(out, "PASS, 7 of 8 steps pass") || !strings.Contains(out, "with a CNP") || strings.Contains(out, "ip-header") || !strings.Contains(out, "hop limits [64]") {
		t.Errorf("exit status %d\n%s", code, out)
	}
	errs := &announced{text: "clean/read/tester", ready: make(chan struct{})}
	removed := make(chan error, 1)
	go func() {
		<-errs.ready
		removed <- b.Netlink().LinkDel(b.Link())
	}()
	began := time.Now()
	code, out = test("", "15s", errs)
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if code != exitFailed || !strings.Contains(errs.String(), "the tester's own device") || !strings.Contains(out, "not run: ") || strings.Contains(out, "FAIL") {
		t.Errorf("exit status %d after %v, %s\n%s", code, time.Since(began), errs, out)
	}
}
