package frame_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// datagram returns the frame of a UD SEND.
func datagram(t testing.TB, c frame.PathConfig, n int) []byte {
	t.Helper()
	f := bth.Fields{
		BTH:     bth.BTHFields{Op: bth.UDSendOnly, PKey: bth.DefaultPKey, DestQPN: 0x25},
		DETH:    &bth.DETHFields{QKey: 0x11111111, SrcQPN: 0x26},
		Payload: make([]byte, n),
	}
	return encode(newPath(t, c), frame.LayoutEthernet, 0xFFFE, &f)
}

// TestGRH: the GRH area of a received packet has its addresses, its traffic
// class and its hop limit, and an IPv4 header in it has a right checksum, also if
// the driver has not seen the header.
func TestGRH(t *testing.T) {
	c4, c6 := config4(t), config6(t)
	c4.TrafficClass, c4.HopLimit = 0xB8, 7
	for _, c := range []frame.PathConfig{c4, c6} {
		for _, unseen := range []bool{false, true} {
			var p frame.Packet
			if err := p.Parse(datagram(t, c, 9), frame.LayoutEthernet); err != nil {
				t.Fatal(err)
			}
			ip := bytes.Clone(p.IP)
			if unseen {
				p.IP = nil
			}
			area := [frame.GRHLen]byte{3, 3, 3, 19: 3, 39: 3}
			p.PutGRH(&area)
			if !unseen && !bytes.Equal(area[frame.GRHLen-len(ip):], ip) || c.Src.Is4() && !bytes.Equal(area[:20], make([]byte, 20)) {
				t.Errorf("area % x, want % x behind zeros", area, ip)
			}
			if c.Src.Is4() && ones(area[20:]) != 0xFFFF {
				t.Errorf("the IPv4 header % x has a wrong checksum", area[20:])
			}
			want := frame.GRH{Src: c.Src, Dst: c.Dst, TrafficClass: c.TrafficClass, FlowLabel: c.FlowLabel, HopLimit: c.HopLimit}
			if unseen {
				want.FlowLabel = 0
			}
			if got, err := frame.ParseGRH(area[:]); err != nil || got != want {
				t.Errorf("unseen %v: %+v, %v, want %+v", unseen, got, err, want)
			}
		}
	}
}

// TestParseGRH: ParseGRH chooses between IPv4 and IPv6 like Linux.
func TestParseGRH(t *testing.T) {
	v4 := unhex(t, "4500003c57eb40004011ce290a4d00020a4d0001") // a captured one
	src4, dst4 := gid(t, "10.77.0.2"), gid(t, "10.77.0.1")
	area := func(first byte, v4 []byte) []byte {
		a := make([]byte, frame.GRHLen)
		a[0], a[6] = first, 17
		copy(a[20:], v4)
		return a
	}
	with := func(b []byte, at int, v byte) []byte {
		b = bytes.Clone(b)
		b[at] = v
		return b
	}
	v6 := unhex(t, "6000000000241140fd770000000000000000000000000001fd770000000000000000000000000002")
	// The end of the source and the destination look like an IPv4 header.
	twin := with(bytes.Clone(v6), 6, 17)
	copy(twin[20:], v4)
	for _, tt := range []struct {
		name     string
		area     []byte
		src, dst bth.GID
		err      error
	}{
		{"IPv4 behind zeros", area(0, v4), src4, dst4, nil},
		{"IPv4 behind garbage", area(0xFF, v4), src4, dst4, nil},
		{"IPv4 behind garbage, checksum zero as on rxe's loopback", area(0, with(with(v4, 10, 0), 11, 0)), src4, dst4, nil},
		{"IPv4 behind garbage that begins like IPv6", area(0x6A, v4), src4, dst4, nil},
		{"IPv6", v6, gid(t, "fd77::1"), gid(t, "fd77::2"), nil},
		{"IPv6 with an IPv4 header in its addresses", twin, src4, dst4, nil},
		{"the same with a wrong checksum", with(twin, 30, twin[30]+1), bth.GID(twin[8:]), bth.GID(with(twin, 30, twin[30]+1)[24:]), nil},
		{"the same with options", with(twin, 20, 0x46), bth.GID(with(twin, 20, 0x46)[8:]), bth.GID(twin[24:]), nil},
		{"IPv6 of another protocol", with(v6, 6, 6), bth.GID{}, bth.GID{}, frame.ErrGRH},
		{"RoCEv1", with(v6, 6, 0x1B), bth.GID{}, bth.GID{}, frame.ErrGRH},
		{"nothing", make([]byte, 40), bth.GID{}, bth.GID{}, frame.ErrGRH},
		{"too short", v6[:39], bth.GID{}, bth.GID{}, frame.ErrTruncated},
	} {
		got, err := frame.ParseGRH(tt.area)
		if err != tt.err || got.Src != tt.src || got.Dst != tt.dst {
			t.Errorf("%s: %+v, %v, want from %v to %v, %v", tt.name, got, err, tt.src, tt.dst, tt.err)
		}
	}
}

// FuzzParseGRH: ParseGRH never panics, and both addresses that it returns are of one
// IP version.
func FuzzParseGRH(f *testing.F) {
	f.Add(unhex(f, "6000000000241140fd770000000000000000000000000001fd770000000000000000000000000002"))
	f.Add(append(make([]byte, 20), unhex(f, "4500003c57eb40004011ce290a4d00020a4d0001")...))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := frame.ParseGRH(b)
		if err != nil && g != (frame.GRH{}) || err == nil && len(b) < frame.GRHLen {
			t.Fatalf("%x: %+v, %v", b, g, err)
		}
		if err == nil && g.FlowLabel != 0 && netip.AddrFrom16(g.Src).Is4In6() && !bytes.Equal(b[8:24], g.Src[:]) {
			t.Fatalf("%x: an IPv4 header with flow label %#x", b, g.FlowLabel)
		}
	})
}
