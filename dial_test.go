package roce

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// TestDialEach: Dial tries the addresses of a name in turn with one queue pair, shares the time
// of its context among them, and returns the errors of all.
func TestDialEach(t *testing.T) {
	const rejects, accepts, silent = "10.0.0.1:1", "10.0.0.1:7471", "10.0.0.7:7471"
	for name, tt := range map[string]struct {
		addrs string
		limit time.Duration // of the context, 0: none
		setup error
		want  error
		took  time.Duration // until Dial has returned
	}{
		"the second":         {addrs: rejects + " " + accepts + " " + silent},
		"after a silent one": {addrs: silent + " " + accepts, limit: 10 * time.Second, took: 5 * time.Second},
		"none":               {addrs: rejects + " " + silent + " " + rejects, limit: 9 * time.Second, want: syscall.ECONNREFUSED, took: 4500 * time.Millisecond},
		"the time is over":   {addrs: silent + " " + silent, limit: time.Second, want: context.DeadlineExceeded, took: time.Second},
		"a wrong argument":   {addrs: accepts + " " + accepts, setup: syscall.EINVAL, want: syscall.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := mem.NewHub(mem.Config{MTU: 4200})
				open := func(addr string) *Device {
					a := netip.MustParseAddr(addr)
					d := check(Open(Config{Ports: []link.Port{check(hub.Port(addr, DerivedMAC(a)))(t)}, Addrs: []netip.Addr{a}}))(t)
					t.Cleanup(func() { d.Close() })
					return d
				}
				server, client := open("10.0.0.1"), open("10.0.0.2")
				l := check(server.Listen(t.Context(), ":7471", ListenConfig{}))(t)
				go func() {
					for r, err := l.Accept(t.Context()); err == nil; r, err = l.Accept(t.Context()) {
						r.Accept(t.Context(), AcceptConfig{})
					}
				}()
				q := check(client.AllocPD().CreateQP(QPConfig{SendCQ: check(client.CreateCQ(16))(t)}))(t)
				var addrs []netip.AddrPort
				for a := range strings.FieldsSeq(tt.addrs) {
					addrs = append(addrs, netip.MustParseAddrPort(a))
				}
				ctx, cancel := context.WithCancel(t.Context())
				if tt.limit != 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.limit)
				}
				defer cancel()
				began, setups := time.Now(), 0
				c, err := client.dialEach(ctx, addrs, DialConfig{QP: q, Setup: func(*QP) error { setups++; return tt.setup }})
				if !errors.Is(err, tt.want) || tt.want == nil && err != nil || setups != 1 {
					t.Fatalf("%v after %d setups, want %v", err, setups, tt.want)
				}
				if took := time.Since(began).Round(100 * time.Millisecond); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if err != nil {
					if n := strings.Count(err.Error(), "dial: "); tt.want == syscall.ECONNREFUSED && n != len(addrs) {
						t.Errorf("%v has %d errors, want %d", err, n, len(addrs))
					}
					if s := q.State(); tt.setup == nil && s != StateErr {
						t.Errorf("the queue pair is in %v", s)
					}
					return
				}
				if c.QP() != q || q.State() != StateRTS || c.RemoteAddr() != netip.MustParseAddrPort(accepts) {
					t.Errorf("connected to %v in state %v", c.RemoteAddr(), q.State())
				}
			})
		})
	}
}

// check returns the result of a call that must not fail.
func check[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
