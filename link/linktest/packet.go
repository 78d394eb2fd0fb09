// Package linktest checks that a link.Port keeps the contract, and makes the
// packets for such tests.
package linktest

import (
	"net/netip"
	"os"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// QPN is the destination of the packets of [Send].
const QPN bth.QPN = 0x12

// Overhead is how many bytes [Send] adds to a payload.
const Overhead = bth.BTHLen + bth.ICRCLen

// Path returns a path between two MAC addresses, over IPv4 or IPv6.
func Path(t testing.TB, v6 bool, src, dst frame.MAC) *frame.Path {
	t.Helper()
	c := frame.PathConfig{
		Src:    bth.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: src[5]},
		Dst:    bth.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: dst[5]},
		SrcMAC: src, DstMAC: dst, SrcPort: 0xC012, HopLimit: 64,
	}
	if v6 {
		c.Src, c.Dst = bth.GID{0: 0xFD, 15: src[5]}, bth.GID{0: 0xFD, 15: dst[5]}
	}
	return newPath(t, c)
}

func newPath(t testing.TB, c frame.PathConfig) *frame.Path {
	t.Helper()
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// At gives a Port addresses of the host for [Between]; either may be the zero Addr. It is for
// Ports whose packets the kernel routes, so the addresses must exist. Other Ports
// accept any address.
func At(p link.Port, ip4, ip6 netip.Addr) link.Port { return &at{p, ip4, ip6} }

type at struct {
	link.Port
	ip4, ip6 netip.Addr
}

func (a *at) addr(v6 bool) netip.Addr {
	if v6 {
		return a.ip6
	}
	return a.ip4
}

// Loopback returns an address of the loopback network that tests in other processes
// normally do not use. On Linux and Windows the host has all addresses of 127.0.0.0/8.
func Loopback(last byte) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, 64 | byte(pid>>8)&63, byte(pid), last})
}

// Between returns a path from one Port to another over IPv4 or IPv6. If a Port of
// [At] has only an IPv6 address, the path is over IPv6 in any case.
func Between(t testing.TB, v6 bool, from, to link.Port) *frame.Path {
	t.Helper()
	a, ok := from.(*at)
	b, ok2 := to.(*at)
	if !ok || !ok2 {
		return Path(t, v6, from.Info().MAC, to.Info().MAC)
	}
	v6 = v6 || !a.ip4.IsValid()
	src, dst := a.addr(v6), b.addr(v6)
	if !src.IsValid() || !dst.IsValid() {
		t.Skipf("the Ports have no IPv6 addresses")
	}
	return newPath(t, frame.PathConfig{Src: bth.GIDFrom(src), Dst: bth.GIDFrom(dst), SrcPort: from.Info().SrcPort, HopLimit: 64,
		SrcMAC: from.Info().MAC, DstMAC: to.Info().MAC})
}

// Has6 reports whether [Between] can make an IPv6 path.
func Has6(p link.Port) bool {
	a, ok := p.(*at)
	return !ok || a.ip6.IsValid()
}

// Put begins one RC SEND_ONLY packet, without committing it. It reports whether
// there was room. The payload is cut to a multiple of 4 bytes.
func Put(s frame.Sink, path *frame.Path, psn bth.PSN, payload []byte) bool {
	payload = payload[:len(payload)&^3]
	body, crc, ok := s.Begin(path, Overhead+len(payload))
	if !ok {
		return false
	}
	bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, QPN, psn)
	crc = crc.UpdateBTH(body[:bth.BTHLen])
	crc = crc.Copy(body[bth.BTHLen:], payload)
	bth.PutICRC(body[bth.BTHLen+len(payload):], crc)
	return true
}

// Send puts and commits one packet.
func Send(t testing.TB, s frame.Sink, path *frame.Path, psn bth.PSN, payload []byte) {
	t.Helper()
	if !Put(s, path, psn, payload) {
		t.Fatalf("no room for packet %v", psn)
	}
	s.Commit()
}

// Check parses a received frame, its ICRC included, and returns its PSN and
// payload.
func Check(t testing.TB, layout frame.Layout, f link.Frame) (bth.PSN, []byte) {
	t.Helper()
	var p frame.Packet
	if err := f.Parse(&p, layout); err != nil {
		t.Fatalf("received frame % x: %v", f.Data, err)
	}
	if !p.CheckICRC() {
		t.Fatalf("received frame % x: wrong ICRC", f.Data)
	}
	return p.PSN(), p.Payload()
}
