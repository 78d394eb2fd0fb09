package rdmacm_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/rdmacm"
)

// altNet makes two hosts, each with a device that has two addresses and one MAC address.
func altNet(t testing.TB) (client, server *rdmacm.Host) {
	n := newNetwork(t)
	macs := roce.Neighbours{}
	for first, second := range map[string]string{"10.0.0.1": "10.0.1.1", "10.0.0.2": "10.0.1.2"} {
		mac := roce.DerivedMAC(netip.MustParseAddr(first))
		macs[netip.MustParseAddr(first)], macs[netip.MustParseAddr(second)] = mac, mac
	}
	c := roce.Config{Options: roce.Options{Resolver: macs}}
	return hostOf(t, n.device(c, "10.0.0.2", "10.0.1.2")), hostOf(t, n.device(c, "10.0.0.1", "10.0.1.1"))
}

func altOf(local, remote string) roce.AlternatePath {
	return roce.AlternatePath{Local: netip.MustParseAddr(local), Remote: netip.MustParseAddr(remote)}
}

// altPair connects two IDs. The server's ID has a queue pair only if serverQP is true.
func altPair(t testing.TB, cp rdmacm.ConnParam, onRequest func(*rdmacm.ID), serverQP bool) *pair {
	t.Helper()
	client, server := altNet(t)
	p := join(t, rdmacm.TCP, server, client, smallQP(), cp, func(id *rdmacm.ID) rdmacm.ConnParam {
		id.OnAlternate(roce.AnyAlternate)
		if onRequest != nil {
			onRequest(id)
		}
		if !serverQP {
			return rdmacm.ConnParam{QPN: 77}
		}
		check(t, id.CreateQP(nil, smallQP()))
		return rdmacm.ConnParam{}
	})
	p.client.OnAlternate(roce.AnyAlternate)
	return p
}

func (p *pair) wantArmed(t testing.TB) {
	t.Helper()
	transfer(t, p.client, p.server)
	transfer(t, p.server, p.client)
	for _, id := range []*rdmacm.ID{p.client, p.server} {
		if s := id.QP().MigState(); s != roce.MigArmed {
			t.Errorf("queue pair is %v, want ARMED", s)
		}
		if _, ok := id.Alternate(); !ok {
			t.Error("no alternate path")
		}
	}
	check(t, p.client.QP().Migrate())
	transfer(t, p.client, p.server)
	if s := p.server.QP().MigState(); s != roce.MigMigrated {
		t.Errorf("queue pair is %v, want MIGRATED", s)
	}
	none(t, p.cc)
	none(t, p.sc)
}

// TestAlternatePath: either side loads an alternate path, with the request or later. The program
// gets no event, and may refuse the path.
func TestAlternatePath(t *testing.T) {
	away, back := altOf("10.0.1.2", "10.0.1.1"), altOf("10.0.1.1", "10.0.1.2")
	refuse := func(id *rdmacm.ID) { id.OnAlternate(func(cm.Path) cm.APStatus { return cm.APUnsupported }) }
	for name, f := range map[string]func(*testing.T){
		"REQ": func(t *testing.T) {
			p := altPair(t, rdmacm.ConnParam{RetryCount: 7, RNRRetryCount: 7, Alternate: &away}, func(id *rdmacm.ID) {
				if a, ok := id.Alternate(); !ok || a.RemoteGID.Addr() != away.Local {
					t.Errorf("the request proposes %v, %v", &a, ok)
				}
			}, true)
			p.wantArmed(t)
			check(t, p.client.Disconnect(t.Context()))
			next(t, p.sc, rdmacm.Disconnected)
		},
		"client": func(t *testing.T) {
			p := altPair(t, rdmacm.ConnParam{}, nil, true)
			check(t, p.client.LoadAlternate(t.Context(), away))
			p.wantArmed(t)
		},
		"server": func(t *testing.T) {
			p := altPair(t, rdmacm.ConnParam{}, nil, true)
			check(t, p.server.LoadAlternate(t.Context(), back))
			p.wantArmed(t)
		},
		"refused": func(t *testing.T) {
			p := altPair(t, rdmacm.ConnParam{RetryCount: 7, Alternate: &away}, refuse, true)
			if _, ok := p.client.Alternate(); ok {
				t.Error("there is an alternate path, although the peer accepts none")
			}
			err := p.client.LoadAlternate(t.Context(), away)
			var refused *roce.AlternateError
			if !errors.As(err, &refused) || refused.Status != cm.APUnsupported {
				t.Error(err)
			}
			check(t, p.server.LoadAlternate(t.Context(), back)) // the peer itself may propose a path
		},
		"no queue pair": func(t *testing.T) {
			p := altPair(t, rdmacm.ConnParam{RetryCount: 7, Alternate: &away}, nil, false)
			if _, ok := p.client.Alternate(); ok {
				t.Error("an alternate path without a queue pair")
			}
			wantErr(t, "client", p.client.LoadAlternate(t.Context(), away), syscall.ECONNREFUSED)
			wantErr(t, "server", p.server.LoadAlternate(t.Context(), back), syscall.EINVAL)
		},
		"not resolved": func(t *testing.T) {
			h, _ := altNet(t)
			id := ok(h.CreateID(h.NewChannel(), rdmacm.TCP, nil))(t)
			wantErr(t, "connect", id.Connect(t.Context(), rdmacm.ConnParam{Alternate: &away}), syscall.EINVAL)
			wantErr(t, "load", id.LoadAlternate(t.Context(), away), syscall.EINVAL)
			if _, ok := id.Alternate(); ok {
				t.Error("an alternate path before there is a connection")
			}
		},
	} {
		t.Run(name, func(t *testing.T) { bubble(t, f) })
	}
}
