package cmtime_test

import (
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/internal/tools/cmtime"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

// TestStorm: all connections come and go, on both address families, and the
// table has a line for each step.
func TestStorm(t *testing.T) {
	for server, bind := range map[string]string{tooltest.Server4 + ":7471": "", "[" + tooltest.Server6 + "]:7471": "[" + tooltest.Client6 + "]:0"} {
		sd, cd := tooltest.Pair(t, fault.Config{})
		ready, served := make(chan netip.AddrPort, 1), make(chan error, 1)
		const n = 60
		go func() {
			served <- cmtime.Server(t.Context(), sd, server, cmtime.Config{Connections: n, Retries: 2, Timeout: 2 * time.Second}, func(a netip.AddrPort) { ready <- a })
		}()
		var out strings.Builder
		c := cmtime.Config{Connections: n, Retries: 2, Timeout: 2 * time.Second, Out: &out}
		lines := 7
		if bind != "" {
			c.Bind, lines = netip.MustParseAddrPort(bind), 8
		}
		if err := cmtime.Client(t.Context(), cd, (<-ready).String(), c); err != nil {
			t.Fatal(err)
		}
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		if got := len(regexp.MustCompile(`(?m)^[a-z ]{13}: +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d$`).FindAllString(out.String(), -1)); got != lines {
			t.Errorf("%d lines, want %d:\n%s", got, lines, out.String())
		}
	}
}

// TestRefused: without a server every connection fails, and the client says so.
func TestRefused(t *testing.T) {
	_, cd := tooltest.Pair(t, fault.Config{})
	err := cmtime.Client(t.Context(), cd, tooltest.Server4+":7471", cmtime.Config{Connections: 3, Retries: 2, Timeout: 2 * time.Second})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}
