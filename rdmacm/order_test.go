package rdmacm_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/rdmacm"
)

// TestDisconnectedAfterCompletions: a program with its own queue pair gets Disconnected when it has polled the completions
// that came first. What it does meanwhile changes neither the number nor the order of its events.
func TestDisconnectedAfterCompletions(t *testing.T) {
	const long = 30 * time.Millisecond
	type rig struct {
		*testing.T
		server, client   *rdmacm.Host
		sc, other, cc    *rdmacm.Channel
		accepted, dialed *rdmacm.ID
		dev              *roce.Device
		unread           atomic.Int32 // completions
	}
	poll := func(r *rig) { r.unread.Store(0) }
	dial := func(r *rig, c *rdmacm.Channel, n roce.QPN) *rdmacm.ID {
		id := resolved(r, r.client, c, rdmacm.TCP, "10.0.0.1:7471")
		check(r, id.Connect(r.Context(), rdmacm.ConnParam{QPN: n}))
		return id
	}
	for name, c := range map[string]struct {
		unread int32
		do     []func(*rig) // one after the other, five milliseconds apart
		want   string       // events before, between and after these
	}{
		"nothing to poll":         {0, nil, "DISCONNECTED"},
		"polls":                   {2, []func(*rig){poll}, "|DISCONNECTED"},
		"does not poll":           {2, []func(*rig){func(*rig) {}}, "||DISCONNECTED"},
		"the peer connects again": {2, []func(*rig){func(r *rig) { dial(r, r.client.NewChannel(), 79) }, poll}, "||DISCONNECTED CONNECT_REQUEST"},
		"destroyed":               {2, []func(*rig){func(r *rig) { check(r, r.accepted.Destroy()) }, poll}, ""},
		"destroyed, and again":    {2, []func(*rig){func(r *rig) { check(r, r.accepted.Destroy()); dial(r, r.client.NewChannel(), 79) }}, "|CONNECT_REQUEST"},
		"disconnects, too":        {2, []func(*rig){func(r *rig) { check(r, r.accepted.Disconnect(r.Context())) }, poll}, "||DISCONNECTED"},
		"device closed":           {2, []func(*rig){func(r *rig) { check(r, r.dev.Close()) }, poll}, "||DISCONNECTED DEVICE_REMOVAL DEVICE_REMOVAL"},
		"moves to another channel": {2, []func(*rig){func(r *rig) { check(r, r.accepted.Migrate(r.other)) }, func(r *rig) {
			poll(r)
			time.Sleep(2 * time.Millisecond)
			check(r, r.accepted.Migrate(r.sc))
		}}, "||DISCONNECTED"},
		"channel closed": {2, []func(*rig){func(r *rig) { check(r, r.sc.Close()) }, poll}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				r := &rig{T: t, dev: n.device(roce.Config{}, "10.0.0.1")}
				r.server, r.client = hostOf(t, r.dev), n.host("10.0.0.2")
				r.sc, r.other, r.cc = r.server.NewChannel(), r.server.NewChannel(), r.client.NewChannel()
				var count atomic.Int64
				r.sc.NotifyFunc(func(n int) { count.Add(int64(n)) })
				r.server.UnreadFunc(func(d *roce.Device, n roce.QPN) func() bool {
					if d != r.dev || n != 78 {
						return nil
					}
					return func() bool { return r.unread.Load() > 0 }
				})
				listener(t, r.server, r.sc, rdmacm.TCP, "10.0.0.1:7471")
				r.dialed = dial(r, r.cc, 77)
				r.accepted = next(t, r.sc, rdmacm.ConnectRequest).ID
				check(t, r.accepted.Accept(t.Context(), rdmacm.ConnParam{QPN: 78}))
				next(t, r.cc, rdmacm.ConnectResponse)
				check(t, r.dialed.Establish(t.Context()))
				next(t, r.sc, rdmacm.Established)
				count.Store(0)
				r.unread.Store(c.unread)
				go r.dialed.Disconnect(t.Context())
				var got []string
				look := func() {
					synctest.Wait()
					var events []string
					for {
						told := count.Load()
						ev, ok := r.sc.TryNext()
						if told < 0 || told > 0 != ok {
							t.Errorf("%d events were announced, there is one: %v", told, ok)
						}
						if !ok {
							break
						}
						count.Add(-1)
						events = append(events, strings.TrimPrefix(fmt.Sprint(ev.Type), "RDMA_CM_EVENT_"))
					}
					got = append(got, strings.Join(events, " "))
				}
				look()
				for _, do := range c.do {
					time.Sleep(5 * time.Millisecond)
					do(r)
					time.Sleep(3 * time.Millisecond)
					look()
				}
				time.Sleep(long)
				look()
				if s := strings.TrimRight(strings.Join(got, "|"), "|"); s != c.want {
					t.Errorf("events %q, want %q", s, c.want)
				}
			})
		})
	}
}
