package hostnet

import (
	"encoding/binary"
	"net/netip"

	"github.com/goroce/roce/bth/frame"
)

// announcement returns a frame that announces the Ethernet address of an IP address: a gratuitous ARP request
// (RFC 5227, 3), or an unsolicited neighbour advertisement with the override flag (RFC 4861, 7.2.6). Hosts that know
// the IP address replace its Ethernet address; others ignore the frame.
func announcement(mac frame.MAC, addr netip.Addr) []byte {
	if addr.Is4() {
		b := append([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, mac[:]...)
		b = append(b, 0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1) // Ethernet, IPv4, request
		b = append(append(b, mac[:]...), addr.AsSlice()...)
		b = append(append(b, make([]byte, 6)...), addr.AsSlice()...)
		return append(b, make([]byte, 60-len(b))...)
	}
	all := netip.MustParseAddr("ff02::1")
	const length = 32 // of the advertisement
	b := append([]byte{0x33, 0x33, 0, 0, 0, 1}, mac[:]...)
	b = append(b, 0x86, 0xDD, 0x60, 0, 0, 0, 0, length, 58, 255)
	b = append(append(b, addr.AsSlice()...), all.AsSlice()...)
	icmp := len(b)
	b = append(b, 136, 0, 0, 0, 0x20, 0, 0, 0) // override
	b = append(append(b, addr.AsSlice()...), 2, 1)
	b = append(b, mac[:]...)
	// The sum of the pseudo header and the advertisement.
	binary.BigEndian.PutUint16(b[icmp+2:], ^frame.Fold16(length+58+frame.Sum16(b[icmp-32:])))
	return b
}
