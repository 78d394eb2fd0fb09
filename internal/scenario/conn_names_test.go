package scenario_test

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goroce/roce"
)

// TestNames: Dial, Listen, ResolveUD and ListenUD take names of hosts and of services. The tests
// use "localhost", which needs no network. They do not run in a bubble, because the resolver of
// package net cannot be used there.
func TestNames(t *testing.T) {
	hosts, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", "localhost")
	if err != nil {
		t.Skip("this machine has no localhost:", err)
	}
	n := newNetwork(t)
	config := n.config("10.0.0.1")
	for _, h := range hosts {
		config.Addrs = append(config.Addrs, h.Unmap())
	}
	d := n.open(config)
	ctx := patient(t)

	l := ok(d.Listen(ctx, "localhost:https", roce.ListenConfig{}))(t)
	if at := l.Addr(); at.Port() != 443 || at.Addr() != hosts[0].Unmap() {
		t.Errorf("listens on %v", at)
	}
	go func() {
		for r, err := l.Accept(ctx); err == nil; r, err = l.Accept(ctx) {
			r.Accept(ctx, roce.AcceptConfig{})
		}
	}()
	c := ok(d.Dial(ctx, "localhost:443", roce.DialConfig{}))(t)
	if c.RemoteAddr() != l.Addr() {
		t.Errorf("connected to %v", c.RemoteAddr())
	}
	check(t, c.Disconnect(ctx))
	check(t, c.Close())

	u := ok(d.ListenUD(ctx, "localhost:domain", roce.ListenConfig{}))(t)
	go func() {
		for r, err := u.Accept(ctx); err == nil; r, err = u.Accept(ctx) {
			r.Reject([]byte("busy"))
		}
	}()
	if at := u.Addr(); at.Port() != 53 {
		t.Errorf("listens on %v", at)
	}
	_, err = d.ResolveUD(ctx, "localhost:53", roce.ResolveConfig{})
	wantErr(t, "a UD service that rejects", err, syscall.ECONNREFUSED)

	_, err = d.Listen(ctx, "name.invalid:1", roce.ListenConfig{})
	wantErr(t, "Listen on a name that does not exist", err, syscall.EADDRNOTAVAIL)
	_, err = d.Dial(ctx, "name.invalid:1", roce.DialConfig{})
	wantErr(t, "Dial of a name that does not exist", err, syscall.EADDRNOTAVAIL)
	_, err = d.Dial(ctx, "10.0.0.1:no-such-service", roce.DialConfig{})
	wantErr(t, "Dial of a service that does not exist", err, syscall.EINVAL)
	other := n.device("10.0.0.9")
	_, err = other.Listen(ctx, "localhost:1", roce.ListenConfig{})
	wantErr(t, "Listen on another host's name", err, syscall.EADDRNOTAVAIL)
	_, err = other.Dial(ctx, "localhost:1", roce.DialConfig{Local: netip.MustParseAddr("10.0.0.8")})
	wantErr(t, "Dial from another host's address", err, syscall.EADDRNOTAVAIL)
	check(t, l.Close())
	check(t, u.Close())
}
