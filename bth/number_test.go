package bth

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestPSN(t *testing.T) {
	for _, tt := range []struct {
		p, q PSN
		sub  int32
	}{
		{0, 0, 0}, {1, 0, 1}, {0, 1, -1},
		{0, 0xFFFFFF, 1}, {0xFFFFFF, 0, -1}, {5, 0xFFFFF0, 21},
		{0x7FFFFF, 0, 0x7FFFFF}, {0x800000, 0, -0x800000}, {0, 0x800000, -0x800000},
	} {
		if got := tt.p.Sub(tt.q); got != tt.sub {
			t.Errorf("%v.Sub(%v) = %d, want %d", tt.p, tt.q, got, tt.sub)
		}
		if got := tt.p.Less(tt.q); got != (tt.sub < 0) {
			t.Errorf("%v.Less(%v) = %v", tt.p, tt.q, got)
		}
		if got := MSN(tt.p).Sub(MSN(tt.q)); got != tt.sub {
			t.Errorf("MSN: %d, want %d", got, tt.sub)
		}
	}
}

func TestPSNProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := PSN(rapid.Uint32Range(0, PSNMask).Draw(t, "p"))
		n := rapid.IntRange(-1<<23, 1<<23-1).Draw(t, "n")
		k := rapid.Int().Draw(t, "k")
		q := p.Add(n)
		if q > PSNMask {
			t.Fatalf("%v + %d = %v is beyond 24 bits", p, n, q)
		}
		if q.Sub(p) != int32(n) {
			t.Fatalf("(%v + %d) - %[1]v = %d", p, n, q.Sub(p))
		}
		if q.Add(-n) != p {
			t.Fatalf("%v + %d - %[2]d = %v", p, n, q.Add(-n))
		}
		if q.Less(p) != (n < 0) {
			t.Fatalf("%v < %v = %v", q, p, q.Less(p))
		}
		if opposite := n == -1<<23; p.Less(q) != (n > 0 || opposite) {
			t.Fatalf("%v < %v = %v", p, q, p.Less(q))
		}
		if p.Add(k).Add(n) != p.Add(k+n) || PSN(MSN(p).Add(k)) != p.Add(k) {
			t.Fatalf("%v: adding %d and %d", p, k, n)
		}
	})
}

func TestPKeyMatch(t *testing.T) {
	for _, tt := range []struct {
		k, own PKey
		want   bool
	}{
		{0xFFFF, 0xFFFF, true}, {0x7FFF, 0xFFFF, true}, {0xFFFF, 0x7FFF, true},
		{0x7FFF, 0x7FFF, false}, {0x1234, 0xFFFF, false}, {0x9234, 0x1234, true},
	} {
		if got := tt.k.Match(tt.own); got != tt.want {
			t.Errorf("%v.Match(%v) = %v", tt.k, tt.own, got)
		}
	}
}

func TestNumberStrings(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{PSN(0xFFFFF0).String(), "0xfffff0"}, {PSN(1).String(), "0x000001"},
		{QPN(0x11).String(), "0x11"}, {SRQN(2).String(), "0x2"},
		{RKey(0x51c).String(), "0x51c"}, {LKey(0x51c).String(), "0x51c"},
		{QKeyGSI.String(), "0x80010000"}, {DefaultPKey.String(), "0xffff"}, {PKey(1).String(), "0x0001"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
	if !QKeyGSI.Privileged() || QKey(0x11111111).Privileged() {
		t.Error("Privileged")
	}
}

func TestGID(t *testing.T) {
	for _, tt := range []struct {
		in, addr, str string
		is4, mc, ll   bool
	}{
		{"10.77.0.1", "10.77.0.1", "::ffff:10.77.0.1", true, false, false},
		{"::ffff:10.77.0.1", "10.77.0.1", "::ffff:10.77.0.1", true, false, false},
		{"0000:0000:0000:0000:0000:ffff:0a4d:0001", "10.77.0.1", "::ffff:10.77.0.1", true, false, false},
		{"fe80:0000:0000:0000:5054:00ff:fe00:000a", "fe80::5054:ff:fe00:a", "fe80::5054:ff:fe00:a", false, false, true},
		{"2001:db8::1", "2001:db8::1", "2001:db8::1", false, false, false},
		{"239.1.2.3", "239.1.2.3", "::ffff:239.1.2.3", true, true, false},
		{"ff0e::ffff:239.1.2.3", "ff0e::ffff:ef01:203", "ff0e::ffff:ef01:203", false, true, false},
		{"240.0.0.1", "240.0.0.1", "::ffff:240.0.0.1", true, false, false},
		{"::", "::", "::", false, false, false},
	} {
		g, err := ParseGID(tt.in)
		if err != nil {
			t.Error(err)
			continue
		}
		if g.Addr() != netip.MustParseAddr(tt.addr) || g.String() != tt.str || g.Is4() != tt.is4 ||
			g.IsMulticast() != tt.mc || g.IsLinkLocal() != tt.ll || g.IsZero() != (tt.in == "::") {
			t.Errorf("%s: %v %v v4 %v multicast %v link-local %v", tt.in, g.Addr(), g, g.Is4(), g.IsMulticast(), g.IsLinkLocal())
		}
		if GIDFrom(g.Addr()) != g {
			t.Errorf("%s: %v does not come back", tt.in, g.Addr())
		}
	}
	for _, in := range []string{"", "10.77.0", "fe80::1%eth0", "x"} {
		if _, err := ParseGID(in); err == nil {
			t.Errorf("%q was read", in)
		}
	}
	if g := GIDFrom(netip.Addr{}); !g.IsZero() {
		t.Errorf("no address gives %v", g)
	}
	if g := GIDFrom(netip.MustParseAddr("fe80::1%eth0")); g.String() != "fe80::1" {
		t.Errorf("zone: %v", g)
	}
}

func TestMTU(t *testing.T) {
	for m, n := range map[MTU]int{0: 0, MTU256: 256, MTU512: 512, MTU1024: 1024, MTU2048: 2048, MTU4096: 4096, 6: 0, 255: 0} {
		if m.Bytes() != n || m.Valid() != (n != 0) {
			t.Errorf("%v: %d bytes, valid %v", m, m.Bytes(), m.Valid())
		}
	}
	for _, tt := range []struct {
		ether  int
		active MTU
		path   MTU // 0: none
	}{
		{-1, MTU256, 0}, {0, MTU256, 0}, {335, MTU256, 0}, {336, MTU256, 0}, {351, MTU256, 0}, {352, MTU256, MTU256},
		{591, MTU256, MTU256}, {592, MTU512, MTU256}, {608, MTU512, MTU512}, {1500, MTU1024, MTU1024},
		{2127, MTU1024, MTU1024}, {2128, MTU2048, MTU1024}, {2144, MTU2048, MTU2048},
		{4175, MTU2048, MTU2048}, {4176, MTU4096, MTU2048}, {4192, MTU4096, MTU4096}, {4200, MTU4096, MTU4096},
		{9000, MTU4096, MTU4096}, {65536, MTU4096, MTU4096},
	} {
		if got := ActiveMTU(tt.ether); got != tt.active {
			t.Errorf("ActiveMTU(%d) = %v, want %v", tt.ether, got, tt.active)
		}
		if got, ok := PathMTU(tt.ether); got != tt.path || ok != (tt.path != 0) {
			t.Errorf("PathMTU(%d) = %v %v, want %v", tt.ether, got, ok, tt.path)
		}
	}
	if MTU1024.String() != "1024" || MTU(9).String() != "MTU(9)" {
		t.Error(MTU1024, MTU(9))
	}
}
