package link

import "net/netip"

// Addressed is a Port whose driver takes only packets to certain addresses from
// the host. The device tells it which they are.
type Addressed interface {
	// SetAddrs says whose packets to take, for all Ports of the same interface.
	// It may be called by anyone at any time.
	SetAddrs(addrs []netip.Addr) error
}

// As finds what else a Port is, or the Port inside of it: wrappers have a method
// Inner.
func As[T any](p Port) (t T, ok bool) {
	for {
		if t, ok = p.(T); ok {
			return t, true
		}
		w, wraps := p.(interface{ Inner() Port })
		if !wraps {
			return t, false
		}
		p = w.Inner()
	}
}
