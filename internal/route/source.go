package route

import (
	"math/bits"
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// Source returns the index and the GID of the source address for dst. It prefers, in this
// order: want, if it is valid; the address that the host's routes prefer; the first address
// with the longest common prefix with dst (RFC 6724, rule 8). The last one has the IP version
// of dst, and is link-local if and only if dst is. Errors are EADDRNOTAVAIL and ENETUNREACH.
func (t *Table) Source(want netip.Addr, dst bth.GID) (int, bth.GID, error) {
	if want.IsValid() {
		g := bth.GIDFrom(want)
		if i, ok := t.GIDs().Index(g); ok {
			return i, g, nil
		}
		return 0, g, errs.New("resolve", syscall.EADDRNOTAVAIL, "%v is not an address of the device", want)
	}
	if s, ok := t.resolver.(Sourcer); ok {
		if a, err := s.Source(dst.Addr()); err == nil {
			g := bth.GIDFrom(a)
			if i, ok := t.GIDs().Index(g); ok {
				return i, g, nil
			}
		}
	}
	best, common := -1, -1
	slots := t.GIDs().slots
	for i, g := range slots {
		if g.IsZero() || g.Is4() != dst.Is4() || g.IsLinkLocal() != dst.IsLinkLocal() {
			continue
		}
		if n := commonBits(&g, &dst); n > common {
			best, common = i, n
		}
	}
	if best < 0 {
		return 0, bth.GID{}, errs.New("resolve", syscall.ENETUNREACH, "the device has no address to reach %v from", dst.Addr())
	}
	return best, slots[best], nil
}

// Sourcer is a [Resolver] that knows the host's source address for a
// destination.
type Sourcer interface {
	Source(dst netip.Addr) (netip.Addr, error)
}

// commonBits returns the length of the common prefix of two GIDs in bits.
func commonBits(a, b *bth.GID) int {
	for i := range a {
		if d := a[i] ^ b[i]; d != 0 {
			return 8*i + bits.LeadingZeros8(d)
		}
	}
	return 8 * len(a)
}
