package mckey_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/mckey"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func group(t *testing.T, s string) roce.GID {
	t.Helper()
	g, err := bth.ParseGID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestExchange(t *testing.T) {
	dup := fault.Config{Seed: 3, Tx: fault.Rates{Dup: 0.3}}
	for _, tt := range []struct {
		group string
		fault fault.Config
		cfg   mckey.Config
	}{
		{"239.1.2.3", fault.Config{}, mckey.Config{}},
		{"ff0e::7", fault.Config{}, mckey.Config{Connections: 3, Count: 33, Size: 1024}},
		{"239.1.2.3", fault.Config{}, mckey.Config{SendOnly: true}},
		{"ff0e::ffff:239.1.2.3", fault.Config{}, mckey.Config{NoLoopback: true, Pause: -1}},
		{"239.1.2.3", fault.Config{}, mckey.Config{Connections: 2, Count: -1}},
		{"239.1.2.3", dup, mckey.Config{Connections: 2, Count: 50}},
	} {
		synctest.Test(t, func(t *testing.T) {
			rd, sd := tooltest.Pair(t, tt.fault)
			var out strings.Builder
			c := tt.cfg
			c.Group = group(t, tt.group)
			rc := c
			rc.Out = &out
			joined, received := make(chan struct{}), make(chan error, 1)
			go func() { received <- mckey.Receiver(t.Context(), rd, rc, func() { close(joined) }) }()
			if c.Count >= 0 {
				<-joined
			}
			if err := mckey.Sender(t.Context(), sd, c); err != nil {
				t.Errorf("%s, %+v: sender: %v", tt.group, tt.cfg, err)
			}
			if err := <-received; err != nil {
				t.Errorf("%s, %+v: receiver: %v", tt.group, tt.cfg, err)
			}
			want := "mckey: starting server\nmckey: joining\n" + strings.Repeat("mckey: joined dgid: "+c.Group.String()+" mlid 0x0 sl 0\n", max(c.Connections, 1))
			if c.Count >= 0 {
				want += "receiving data transfers\ndata transfers complete\n"
			}
			if out.String() != want {
				t.Errorf("%s, %+v: printed %q, want %q", tt.group, tt.cfg, out.String(), want)
			}
		})
	}
}

func TestBadConfig(t *testing.T) {
	d, _ := tooltest.Pair(t, fault.Config{})
	g := group(t, "239.1.2.3")
	for _, tt := range []struct {
		cfg  mckey.Config
		want error
	}{
		{mckey.Config{Group: group(t, "10.0.0.1")}, nil},
		{mckey.Config{}, nil},
		{mckey.Config{Group: g, Connections: -1}, nil},
		{mckey.Config{Group: g, Size: 1025}, nil},
		{mckey.Config{Group: g, Bind: netip.MustParseAddr(tooltest.Client4)}, syscall.EADDRNOTAVAIL},
		{mckey.Config{Group: g, Bind: netip.MustParseAddr(tooltest.Server6)}, syscall.EINVAL},
	} {
		err := mckey.Sender(t.Context(), d, tt.cfg)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.cfg, err, tt.want)
		}
	}
}
