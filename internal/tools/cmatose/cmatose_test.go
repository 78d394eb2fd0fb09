package cmatose_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/cmatose"
	"github.com/goroce/roce/internal/tools/messages"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func TestExchange(t *testing.T) {
	for _, c := range []messages.Options{messages.Default(), {Connections: 7, Count: 33, Size: 5000}, {Connections: 2, Size: 100}} {
		sd, cd := tooltest.Pair(t, fault.Config{})
		ready := make(chan netip.AddrPort, 1)
		served := make(chan error, 1)
		var out strings.Builder
		sc := c
		sc.Out = &out
		go func() {
			served <- cmatose.Server(t.Context(), sd, tooltest.Server4+":7471", sc, func(a netip.AddrPort) { ready <- a })
		}()
		if err := cmatose.Client(t.Context(), cd, (<-ready).String(), c); err != nil {
			t.Errorf("%+v: client: %v", c, err)
		}
		if err := <-served; err != nil {
			t.Errorf("%+v: server: %v", c, err)
		}
		if !strings.HasSuffix(out.String(), "cmatose: disconnecting\ndisconnected\n") {
			t.Errorf("printed %q", out.String())
		}
	}
}

// TestTooMany: what connects beyond the number is rejected by the consumer.
func TestTooMany(t *testing.T) {
	sd, cd := tooltest.Pair(t, fault.Config{})
	ready := make(chan netip.AddrPort, 1)
	go cmatose.Server(t.Context(), sd, tooltest.Server4+":7471", messages.Default(), func(a netip.AddrPort) { ready <- a })
	err := cmatose.Client(t.Context(), cd, (<-ready).String(), messages.Options{Connections: 2, Count: 10, Size: 100})
	var reject *roce.RejectError
	if !errors.As(err, &reject) || reject.Reason != 28 {
		t.Errorf("%v, want reason 28", err)
	}
}

// Ends with other options fail and say which to change, and do not wait for ever.
func TestOptionsDiffer(t *testing.T) {
	for _, tt := range []struct {
		server, client messages.Options
		want           string
	}{
		{messages.Options{Connections: 1, Count: 3, Size: 200}, messages.Options{Connections: 1, Count: 3, Size: 100}, "give both ends the same -S"},
		{messages.Options{Connections: 1, Size: 100}, messages.Options{Connections: 1, Count: 3, Size: 100}, "give both ends the same -c, -C and -S"},
	} {
		sd, cd := tooltest.Pair(t, fault.Config{})
		ready := make(chan netip.AddrPort, 1)
		go cmatose.Server(t.Context(), sd, tooltest.Server4+":7471", tt.server, func(a netip.AddrPort) { ready <- a })
		if err := cmatose.Client(t.Context(), cd, (<-ready).String(), tt.client); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}
