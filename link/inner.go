package link

import "net/netip"

// Addressed is a Port whose driver takes packets away from the kernel: only those to
// certain addresses. The device sets these addresses.
type Addressed interface {
	// SetAddrs sets the addresses for all Ports of the same interface. Any
	// goroutine may call it at any time.
	SetAddrs(addrs []netip.Addr) error
}

// As returns p as a T if p, or a Port that it wraps, implements T. Wrappers have
// a method Inner.
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
