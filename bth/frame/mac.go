package frame

import (
	"fmt"

	"github.com/goroce/roce/bth"
)

// MAC is an Ethernet address.
type MAC [6]byte

// ParseMAC reads an address such as "52:54:00:00:00:0a" or "52-54-00-00-00-0A".
func ParseMAC(s string) (m MAC, err error) {
	bad := func() (MAC, error) {
		return MAC{}, fmt.Errorf("frame: MAC %q: want six pairs of hex digits with colons between", s)
	}
	if len(s) != 3*len(m)-1 {
		return bad()
	}
	for i := range m {
		hi, lo := hexDigit(s[3*i]), hexDigit(s[3*i+1])
		if hi|lo > 15 || i > 0 && (s[3*i-1] != s[2] || s[2] != ':' && s[2] != '-') {
			return bad()
		}
		m[i] = hi<<4 | lo
	}
	return m, nil
}

// hexDigit returns the value of a digit, 16 if it is none.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}

// String prints m as "52:54:00:00:00:0a".
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// IsZero reports whether m is all zero, which means unknown.
func (m MAC) IsZero() bool { return m == MAC{} }

// IsMulticast reports whether m is a group address, broadcast included.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// EUI64 returns the modified EUI-64 of m (RFC 4291, appendix A), with the
// universal/local bit inverted. It is the interface part of a link-local
// address and the node GUID of rxe.
func (m MAC) EUI64() [8]byte {
	return [8]byte{m[0] ^ 2, m[1], m[2], 0xFF, 0xFE, m[3], m[4], m[5]}
}

// DefaultGID returns the GID at index 0 of a port: fe80::/64 and the modified
// EUI-64 of its MAC. It exists whether or not the interface has that address.
func DefaultGID(m MAC) bth.GID {
	g := bth.GID{0: 0xFE, 1: 0x80}
	id := m.EUI64()
	copy(g[8:], id[:])
	return g
}

// MulticastMAC returns the Ethernet address of a multicast group: 01:00:5e and
// the low 23 bits of an IPv4 group (RFC 1112), 33:33 and the last four bytes
// of an IPv6 group (RFC 2464). ok is false when g is no group.
func MulticastMAC(g bth.GID) (m MAC, ok bool) {
	switch {
	case !g.IsMulticast():
		return MAC{}, false
	case g.Is4():
		return MAC{0x01, 0x00, 0x5E, g[13] & 0x7F, g[14], g[15]}, true
	default:
		return MAC{0x33, 0x33, g[12], g[13], g[14], g[15]}, true
	}
}
