package udaddy_test

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/tools/messages"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/internal/tools/udaddy"
	"github.com/goroce/roce/link/fault"
)

// config has the default options, but for connections, messages and their size that are not 0.
func config(connections, count, size int) udaddy.Config {
	o := messages.Default()
	o.Connections, o.Count, o.Size = cmp.Or(connections, o.Connections), cmp.Or(count, o.Count), cmp.Or(size, o.Size)
	return udaddy.Config{Options: o}
}

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

func marked(c udaddy.Config) udaddy.Config { c.TrafficClass = 0xB8; return c }
func none(c udaddy.Config) udaddy.Config   { c.Count = 0; return c }

func TestExchange(t *testing.T) {
	dup := fault.Config{Seed: 3, Tx: fault.Rates{Dup: 0.3}}
	for _, tt := range []struct {
		host  string
		fault fault.Config
		cfg   udaddy.Config
	}{
		{tooltest.Server4, fault.Config{}, config(0, 0, 0)},
		{tooltest.Server4, fault.Config{}, marked(config(7, 33, 1024))},
		{"[" + tooltest.Server6 + "]", fault.Config{}, config(2, 0, 0)},
		{tooltest.Server4, fault.Config{}, none(config(3, 0, 0))},
		{tooltest.Server4, dup, config(5, 0, 0)},
	} {
		var out strings.Builder
		sc := tt.cfg
		sc.Out = &out
		server, client := run(t, tt.fault, tt.host, sc, tt.cfg)
		if server != nil || client != nil {
			t.Errorf("%+v: server %v, client %v", tt.cfg, server, client)
		}
		want := "udaddy: starting server\nreceiving data transfers\nsending replies\ndata transfers complete\n"
		if tt.cfg.Count == 0 {
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
		if server, client := run(t, lost, tooltest.Server4, config(1, 0, 0), config(1, 0, 0)); server != nil || client != nil {
			t.Errorf("server %v, client %v", server, client)
		}
	})
}

// TestTooMany: what connects beyond the number is refused.
func TestTooMany(t *testing.T) {
	_, err := run(t, fault.Config{}, tooltest.Server4, config(1, 0, 0), config(2, 0, 0))
	var refused *roce.ResolveError
	if !errors.As(err, &refused) || refused.Status != cm.SIDRReject {
		t.Errorf("%v, want status 2", err)
	}
}

func TestBadConfig(t *testing.T) {
	sd, cd := tooltest.Pair(t, fault.Config{})
	for _, c := range []udaddy.Config{config(-1, 0, 0), config(0, 0, -1), config(0, 0, 1025)} {
		if err := udaddy.Client(t.Context(), cd, tooltest.Server4+":7174", c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
	err := udaddy.Client(t.Context(), cd, tooltest.Server4+":7174", config(0, 0, 0))
	var refused *roce.ResolveError
	if !errors.As(err, &refused) || refused.Status != cm.SIDRUnsupported {
		t.Errorf("nobody listens: %v", err)
	}
	if err := udaddy.Server(t.Context(), sd, "192.0.2.1:7174", config(0, 0, 0), nil); err == nil {
		t.Error("listening on a foreign address")
	}
}
