package udaddy_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/internal/tools/udaddy"
	"github.com/goroce/roce/link/fault"
)

// run runs a server and a client.
func run(t *testing.T, f fault.Config, host string, s, c udaddy.Config) (server, client error) {
	t.Helper()
	sd, cd := tooltest.Pair(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := make(chan netip.AddrPort, 1)
	served := make(chan error, 1)
	go func() { served <- udaddy.Server(ctx, sd, host+":7174", s, func(a netip.AddrPort) { ready <- a }) }()
	if client = udaddy.Client(ctx, cd, (<-ready).String(), c); client != nil {
		cancel()
	}
	return <-served, client
}

func TestExchange(t *testing.T) {
	dup := fault.Config{Seed: 3, Tx: fault.Rates{Dup: 0.3}}
	for _, tt := range []struct {
		host  string
		fault fault.Config
		cfg   udaddy.Config
	}{
		{tooltest.Server4, fault.Config{}, udaddy.Config{}},
		{tooltest.Server4, fault.Config{}, udaddy.Config{Connections: 7, Count: 33, Size: 1024, TrafficClass: 0xB8}},
		{"[" + tooltest.Server6 + "]", fault.Config{}, udaddy.Config{Connections: 2}},
		{tooltest.Server4, fault.Config{}, udaddy.Config{Connections: 3, Count: -1}},
		{tooltest.Server4, dup, udaddy.Config{Connections: 5}},
	} {
		var out strings.Builder
		sc := tt.cfg
		sc.Out = &out
		server, client := run(t, tt.fault, tt.host, sc, tt.cfg)
		if server != nil || client != nil {
			t.Errorf("%+v: server %v, client %v", tt.cfg, server, client)
		}
		want := "udaddy: starting server\nreceiving data transfers\nsending replies\ndata transfers complete\n"
		if tt.cfg.Count < 0 {
			want = "udaddy: starting server\n"
		}
		if out.String() != want {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
	}
}

// TestLostAnswer: the client asks again and is answered as before.
func TestLostAnswer(t *testing.T) {
	lost := fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Nth: 1, Count: 1, Func: func(_ fault.Direction, p *bth.Packet) bool {
		return p.DestQPN() == bth.QPNGSI && len(p.Payload()) == cm.MADLen && cm.Attribute(p.Payload()[17]) == cm.AttrSIDRREP
	}}}}
	synctest.Test(t, func(t *testing.T) {
		if server, client := run(t, lost, tooltest.Server4, udaddy.Config{Connections: 1}, udaddy.Config{Connections: 1}); server != nil || client != nil {
			t.Errorf("server %v, client %v", server, client)
		}
	})
}

// TestTooMany: what connects beyond the number is refused.
func TestTooMany(t *testing.T) {
	_, err := run(t, fault.Config{}, tooltest.Server4, udaddy.Config{Connections: 1}, udaddy.Config{Connections: 2})
	var refused *roce.ResolveError
	if !errors.As(err, &refused) || refused.Status != cm.SIDRReject {
		t.Errorf("%v, want status 2", err)
	}
}

func TestBadConfig(t *testing.T) {
	sd, cd := tooltest.Pair(t, fault.Config{})
	for _, c := range []udaddy.Config{{Connections: -1}, {Size: -1}, {Size: 1025}} {
		if err := udaddy.Client(t.Context(), cd, tooltest.Server4+":7174", c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
	err := udaddy.Client(t.Context(), cd, tooltest.Server4+":7174", udaddy.Config{})
	var refused *roce.ResolveError
	if !errors.As(err, &refused) || refused.Status != cm.SIDRUnsupported {
		t.Errorf("nobody listens: %v", err)
	}
	if err := udaddy.Server(t.Context(), sd, "192.0.2.1:7174", udaddy.Config{}, nil); err == nil {
		t.Error("listening on a foreign address")
	}
}
