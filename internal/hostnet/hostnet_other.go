//go:build !linux

package hostnet

import (
	"context"
	"net/netip"
)

// Interface is a network interface of the host.
type Interface struct{ Name string }

// Open fails: see [ErrUnsupported].
func Open(string) (*Interface, error) { return nil, ErrUnsupported }

// Addrs fails: see [ErrUnsupported].
func (i *Interface) Addrs() ([]netip.Addr, error) { return nil, ErrUnsupported }

// Settle fails: see [ErrUnsupported].
func (i *Interface) Settle(context.Context, netip.Addr) error { return ErrUnsupported }

// State fails: see [ErrUnsupported].
func (i *Interface) State() (State, error) { return State{}, ErrUnsupported }

// Route fails: see [ErrUnsupported].
func (i *Interface) Route(src, dst netip.Addr) (Route, error) { return Route{}, ErrUnsupported }

// HasRoute cannot find out.
func (i *Interface) HasRoute(src, dst netip.Addr) bool { return true }

// Join fails: see [ErrUnsupported].
func (i *Interface) Join(group netip.Addr) (leave func() error, err error) {
	return nil, ErrUnsupported
}

// Watch fails: see [ErrUnsupported].
func (i *Interface) Watch(func(Change)) error { return ErrUnsupported }

// Known fails: see [ErrUnsupported].
func (i *Interface) Known(src, dst netip.Addr) (n Neighbour, usable bool, err error) {
	return Neighbour{}, false, ErrUnsupported
}

// Announce fails: see [ErrUnsupported].
func (i *Interface) Announce() error { return ErrUnsupported }

// Verify fails: see [ErrUnsupported].
func (i *Interface) Verify(hop netip.Addr) error { return ErrUnsupported }

// Resolve fails: see [ErrUnsupported].
func (i *Interface) Resolve(context.Context, netip.Addr, netip.Addr) (Neighbour, error) {
	return Neighbour{}, ErrUnsupported
}

// Close does nothing.
func (i *Interface) Close() error { return nil }
