package script

import (
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// The packet has the fields of the IP and UDP headers that a script sets, also if they are zero, and its checksums are right.
func TestDisguise(t *testing.T) {
	for _, addrs := range [][2]string{{"10.0.0.2", "10.0.0.1"}, {"fd00::2", "fd00::1"}} {
		own, peer := netip.MustParseAddr(addrs[0]), netip.MustParseAddr(addrs[1])
		hub := mem.NewHub(mem.Config{})
		macs := [2]frame.MAC{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 1}}
		var ports [2]*mem.Port
		for i, mac := range macs {
			var err error
			if ports[i], err = hub.Port("port", mac); err != nil {
				t.Fatal(err)
			}
			defer ports[i].Close()
		}
		w := &Wire{Port: ports[0], Own: bth.GIDFrom(own), Peer: bth.GIDFrom(peer), MAC: macs[1]}
		zero, last := new(uint8), new(uint8(9))
		for _, tt := range []struct {
			p             packet
			ttl, src, dst uint8
			port          uint16
		}{
			{p: packet{}, ttl: 64, src: 2, dst: 1, port: 0xC123},
			{p: packet{ttl: zero}, ttl: 0, src: 2, dst: 1, port: 0xC123},
			{p: packet{ttl: new(uint8(255)), src: last, sport: 1}, ttl: 255, src: 9, dst: 1, port: 1},
			{p: packet{src: zero}, ttl: 64, src: 0, dst: 1, port: 0xC123},
			{p: packet{dst: zero}, ttl: 64, src: 2, dst: 0, port: 0xC123},
			{p: packet{ttl: zero, from: FromRouter}, ttl: 0, src: 66, dst: 1, port: 0xC123},
		} {
			if tt.p.from == FromRouter && own.Is6() { // the router has only an IPv4 address
				continue
			}
			d := draft{packet: tt.p}
			d.op = bth.RCSendOnly
			p, err := d.build()
			if err == nil {
				err = w.queue(p)
			}
			if err == nil {
				err = w.flush()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := ports[1].Wait(time.Minute); err != nil {
				t.Fatal(err)
			}
			frames := make([]link.Frame, 1)
			var got frame.Packet
			if n, err := ports[1].Recv(frames); n != 1 || err != nil {
				t.Fatalf("%d packets, %v", n, err)
			}
			if err := frames[0].Parse(&got, ports[1].Info().Layout); err != nil {
				t.Fatalf("%+v: %v", tt.p, err)
			}
			if got.HopLimit != tt.ttl || got.Src[15] != tt.src || got.Dst[15] != tt.dst || got.SrcPort != tt.port || !got.CheckICRC() {
				t.Errorf("%+v became TTL %d from %v:%d to %v, ICRC %v", tt.p, got.HopLimit, got.Src, got.SrcPort, got.Dst, got.CheckICRC())
			}
			if ip := frames[0].Data[14:34]; own.Is4() && frame.Sum16(ip) != 0xFFFF {
				t.Errorf("%+v: the checksum of the IP header is wrong", tt.p)
			}
		}
	}
}
