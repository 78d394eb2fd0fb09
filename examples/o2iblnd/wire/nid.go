package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// NID is the address of a node on a network of LNet: the type of the network in bits 48 to 55, its
// number in bits 32 to 47, and the address, an IPv4 one, in the low 32 bits.
type NID uint64

// Special NIDs.
const (
	AnyNID      NID = 1<<64 - 1
	LoopbackNID NID = 9 << 48 // 0@lo, the first interface that a ping lists
)

// netO2IB is the type of networks of o2iblnd.
const netO2IB = 5

// O2IB returns the NID of an IPv4 address on network o2ib, or o2ib<net>. IPv6 addresses have no
// NID of 64 bits: they become the NID of address 0.
func O2IB(a netip.Addr, net uint16) NID {
	n := NID(netO2IB)<<48 | NID(net)<<32
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		n |= NID(binary.BigEndian.Uint32(b[:]))
	}
	return n
}

// ParseNID reads "10.0.0.1@o2ib" or "10.0.0.1@o2ib1". An address alone is on network o2ib.
func ParseNID(s string) (NID, error) {
	host, network, found := strings.Cut(s, "@")
	a, err := netip.ParseAddr(host)
	if err != nil || !a.Is4() {
		return 0, fmt.Errorf("lnet: NID %q: want an IPv4 address, like 10.0.0.1@o2ib", s)
	}
	num, ok := strings.CutPrefix(network, "o2ib")
	if found && !ok {
		return 0, fmt.Errorf("lnet: NID %q: the network must be o2ib or o2ib<number>", s)
	}
	n := uint64(0)
	if num != "" {
		if n, err = strconv.ParseUint(num, 10, 16); err != nil {
			return 0, fmt.Errorf("lnet: NID %q: network number %q, want 0 to 65535", s, num)
		}
	}
	return O2IB(a, uint16(n)), nil
}

// Addr returns the IPv4 address.
func (n NID) Addr() netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(n))))
}

// Net returns the number of the network.
func (n NID) Net() uint16 { return uint16(n >> 32) }

func (n NID) String() string {
	typ, num := n>>48, ""
	if n.Net() != 0 {
		num = strconv.Itoa(int(n.Net()))
	}
	switch {
	case n == AnyNID:
		return "any"
	case n == LoopbackNID:
		return "0@lo"
	case typ == netO2IB:
		return n.Addr().String() + "@o2ib" + num
	}
	return fmt.Sprintf("%v@<%d:%d>", n.Addr(), typ, n.Net())
}
