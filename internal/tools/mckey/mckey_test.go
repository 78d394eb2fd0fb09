package mckey_test

import (
	"cmp"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/mckey"
	"github.com/goroce/roce/internal/tools/messages"
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

// options are the default ones, but for connections, messages and their size that are not 0.
func options(connections, count, size int) messages.Options {
	o := messages.Default()
	o.Connections, o.Count, o.Size = cmp.Or(connections, o.Connections), cmp.Or(count, o.Count), cmp.Or(size, o.Size)
	return o
}

func TestExchange(t *testing.T) {
	dup := fault.Config{Seed: 3, Tx: fault.Rates{Dup: 0.3}}
	for _, tt := range []struct {
		group string
		fault fault.Config
		cfg   mckey.Config
	}{
		{"239.1.2.3", fault.Config{}, mckey.Config{Options: options(0, 0, 0)}},
		{"ff0e::7", fault.Config{}, mckey.Config{Options: options(3, 33, 1024), Pause: mckey.Pause}},
		{"239.1.2.3", fault.Config{}, mckey.Config{Options: options(0, 0, 0), SendOnly: true, Pause: mckey.Pause}},
		{"ff0e::ffff:239.1.2.3", fault.Config{}, mckey.Config{Options: options(0, 0, 0), NoLoopback: true}},
		{"239.1.2.3", fault.Config{}, mckey.Config{Options: messages.Options{Connections: 2, Size: 100}}},
		{"239.1.2.3", dup, mckey.Config{Options: options(2, 50, 0), Pause: mckey.Pause}},
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
			if c.Count > 0 {
				<-joined
			}
			if err := mckey.Sender(t.Context(), sd, c); err != nil {
				t.Errorf("%s, %+v: sender: %v", tt.group, tt.cfg, err)
			}
			if err := <-received; err != nil {
				t.Errorf("%s, %+v: receiver: %v", tt.group, tt.cfg, err)
			}
			want := "mckey: starting server\nmckey: joining\n" + strings.Repeat("mckey: joined dgid: "+c.Group.String()+" mlid 0x0 sl 0\n", c.Connections)
			if c.Count > 0 {
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
		{mckey.Config{Options: options(0, 0, 0), Group: group(t, "10.0.0.1")}, nil},
		{mckey.Config{Options: options(0, 0, 0)}, nil},
		{mckey.Config{Group: g, Options: options(-1, 0, 0)}, nil},
		{mckey.Config{Group: g, Options: options(0, 0, 1025)}, nil},
		{mckey.Config{Options: options(0, 0, 0), Group: g, Bind: netip.MustParseAddr(tooltest.Client4)}, syscall.EADDRNOTAVAIL},
		{mckey.Config{Options: options(0, 0, 0), Group: g, Bind: netip.MustParseAddr(tooltest.Server6)}, syscall.EINVAL},
	} {
		err := mckey.Sender(t.Context(), d, tt.cfg)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.cfg, err, tt.want)
		}
	}
}
