package bth

import (
	"fmt"
	"net/netip"
)

// GID is a global identifier: in RoCEv2 the IPv6 address of a port, or its
// IPv4 address in the v4-mapped form ::ffff:a.b.c.d.
type GID [16]byte

// GIDFrom returns the GID of an address. A zone is dropped; the zero Addr
// gives the zero GID.
func GIDFrom(a netip.Addr) GID {
	if !a.IsValid() {
		return GID{}
	}
	return a.As16()
}

// ParseGID reads a GID in any form an IPv6 or IPv4 address has, so also in the
// eight groups of four digits that sysfs and ibv_devinfo print.
func ParseGID(s string) (GID, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return GID{}, fmt.Errorf("bth: GID %q: want an IPv6 or IPv4 address: %w", s, err)
	}
	if a.Zone() != "" {
		return GID{}, fmt.Errorf("bth: GID %q: a GID has no zone, leave out %q", s, "%"+a.Zone())
	}
	return GIDFrom(a), nil
}

// Addr returns the address: an IPv4 one when g is v4-mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// v4Prefix is ::ffff:0:0/96.
var v4Prefix = [12]byte{10: 0xFF, 11: 0xFF}

// Is4 reports whether g stands for an IPv4 address.
func (g GID) Is4() bool { return [12]byte(g[:12]) == v4Prefix }

// IsZero reports whether g is all zero, as an empty slot of a GID table is.
func (g GID) IsZero() bool { return g == GID{} }

// IsMulticast reports whether g is a multicast group: ff00::/8 or a v4-mapped
// 224.0.0.0/4.
func (g GID) IsMulticast() bool {
	return g[0] == 0xFF || g.Is4() && g[12]>>4 == 0xE
}

// IsLinkLocal reports whether g is in fe80::/10.
func (g GID) IsLinkLocal() bool { return g[0] == 0xFE && g[1]&0xC0 == 0x80 }

// String prints g as an address, "::ffff:10.0.0.1" when it is v4-mapped.
func (g GID) String() string { return netip.AddrFrom16(g).String() }
