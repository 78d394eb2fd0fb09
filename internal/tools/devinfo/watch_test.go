package devinfo

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
)

// until ends a context when enough lines were written.
type until struct {
	strings.Builder
	lines int
	done  func()
}

func (u *until) Write(b []byte) (int, error) {
	u.Builder.Write(b)
	if strings.Count(u.String(), "\n") >= u.lines {
		u.done()
	}
	return len(b), nil
}

func TestWatch(t *testing.T) {
	d, _ := tooltest.Pair(t, fault.Config{})
	if err := d.SetAddrs([]netip.Addr{netip.MustParseAddr(tooltest.Server4)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &until{lines: 2, done: cancel}
	if err := Watch(ctx, w, "eth0", d); err != nil {
		t.Error(err)
	}
	if want := "eth0: watching asynchronous events\n  event_type GID_CHANGE (18), port 1\n"; w.String() != want {
		t.Errorf("printed %q, want %q", w.String(), want)
	}
}

func TestWatchRemoved(t *testing.T) {
	ip := netip.MustParseAddr("10.0.0.1")
	port, err := mem.NewHub(mem.Config{}).Port("nic", roce.DerivedMAC(ip))
	if err != nil {
		t.Fatal(err)
	}
	d, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	port.Remove()
	var w strings.Builder
	if err := Watch(t.Context(), &w, "nic", d); !errors.Is(err, roce.ErrNoDevice) {
		t.Errorf("removed: %v", err)
	}
	if want := "nic: watching asynchronous events\n  event_type PORT_ERR (10), port 1\n  event_type DEVICE_FATAL (8)\n"; w.String() != want {
		t.Errorf("printed %q, want %q", w.String(), want)
	}
}
