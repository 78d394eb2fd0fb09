package rdmacm_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/rdmacm"
)

// TestErrorsNameTheID: the error of every refused call on an ID names the ID, even if a lower
// package refused the call.
func TestErrorsNameTheID(t *testing.T) {
	h := newNetwork(t).host("10.0.0.1")
	id := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
	l := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
	addr := netip.MustParseAddrPort("10.0.0.1:7471")
	check(t, l.Bind(addr))
	check(t, l.Listen(0))
	gone := ok(h.CreateID(nil, rdmacm.UDP, nil))(t)
	check(t, gone.Destroy())
	ctx := t.Context()
	for name, c := range map[string]struct {
		err    error
		object string
	}{
		"state":            {id.ResolveRoute(ctx, 0), "id 1"},
		"no address":       {id.Bind(netip.AddrPort{}), "id 1"},
		"port taken":       {id.Bind(addr), "id 1"},
		"no connection":    {id.Disconnect(ctx), "id 1"},
		"no queue pair":    {id.PostSend(1, 0), "id 1"},
		"no route":         {id.Connect(ctx, rdmacm.ConnParam{QPN: 5}), "id 1"},
		"parameters":       {id.Connect(ctx, rdmacm.ConnParam{QPN: 5, InitiatorDepth: 253}), "id 1"},
		"no device":        {id.CreateQP(nil, roce.QPConfig{}), "id 1"},
		"option":           {id.SetAckTimeout(77), "id 1"},
		"group":            {id.LeaveMulticast(addr.Addr()), "id 1"},
		"listens already":  {l.Listen(0), "listener 7471"},
		"listener's state": {l.Connect(ctx, rdmacm.ConnParam{QPN: 5}), "listener 7471"},
		"destroyed":        {gone.Destroy(), "id 3"},
		"destroyed, moved": {gone.Migrate(nil), "id 3"},
	} {
		var e *rdmacm.Error
		if !errors.As(c.err, &e) || e.Object != c.object {
			t.Errorf("%s: %v: object %+v, want %q", name, c.err, e, c.object)
		}
	}
	check(t, id.Destroy())
	check(t, l.Destroy())
}
