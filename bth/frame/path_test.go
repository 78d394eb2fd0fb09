package frame_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

var (
	macA = frame.MAC{0x52, 0x54, 0, 0, 0, 0x0A}
	macB = frame.MAC{0x52, 0x54, 0, 0, 0, 0x0B}
)

func config4(t testing.TB) frame.PathConfig {
	return frame.PathConfig{Src: gid(t, "10.77.0.1"), Dst: gid(t, "10.77.0.2"), SrcMAC: macA, DstMAC: macB, SrcPort: 0xFE7A}
}

func config6(t testing.TB) frame.PathConfig {
	return frame.PathConfig{Src: gid(t, "fd77::1"), Dst: gid(t, "fd77::2"), SrcMAC: macA, DstMAC: macB, SrcPort: 0xE898,
		TrafficClass: 0xC2, FlowLabel: 0xABCDE, HopLimit: 1}
}

func newPath(t testing.TB, c frame.PathConfig) *frame.Path {
	t.Helper()
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPathPut(t *testing.T) {
	tagged := config4(t)
	tagged.VLAN, tagged.Priority = 100, 3
	for _, tt := range []struct {
		name string
		c    frame.PathConfig
		want string // Ethernet and IP parts apart
	}{
		{"IPv4", config4(t), "52540000000b 52540000000a 0800 | 4500003010454000401115dc0a4d00010a4d0002 fe7a12b7001c0000"},
		{"IPv4 tagged", tagged, "52540000000b 52540000000a 8100 6064 0800 | 4500003010454000401115dc0a4d00010a4d0002 fe7a12b7001c0000"},
		{"IPv6", config6(t), "52540000000b 52540000000a 86dd | 6c2abcde001c1101fd770000000000000000000000000001fd770000000000000000000000000002 e89812b7001c0000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPath(t, tt.c)
			l2, l3, _ := strings.Cut(tt.want, "|")
			for layout, want := range [][]byte{unhex(t, l2+l3), unhex(t, l3), nil} {
				l := frame.Layout(layout)
				if p.HeaderLen(l) != len(want) {
					t.Fatalf("%v: header of %d bytes, want %d", l, p.HeaderLen(l), len(want))
				}
				b := bytes.Repeat([]byte{0xAA}, len(want)+20+1)
				body, crc := p.Put(b, l, 20, 0x1045)
				if !bytes.Equal(b[:len(want)], want) {
					t.Errorf("%v: header\n%x, want\n%x", l, b[:len(want)], want)
				}
				if len(body) != 20 || cap(body) != 20 || &body[0] != &b[len(want)] || !bytes.Equal(body, bytes.Repeat([]byte{0xAA}, 20)) {
					t.Errorf("%v: body of %d, capacity %d: %x", l, len(body), cap(body), body)
				}
				if want := headerCRC(unhex(t, l3)); crc != want {
					t.Errorf("%v: CRC %#x, want %#x", l, crc, want)
				}
			}
		})
	}
}

// headerCRC is the ICRC register after the headers from IP to UDP in b.
func headerCRC(b []byte) bth.CRC {
	m := mask(append(bytes.Clone(b), make([]byte, 5)...))
	return bth.CRC(0xFFFFFFFF).Update(m[:8+len(b)])
}

// TestPathPutAny compares the headers and the CRC of Put with a plain computation, and
// parses the packet again.
func TestPathPutAny(t *testing.T) {
	configs := []frame.PathConfig{config4(t), config6(t)}
	rapid.Check(t, func(r *rapid.T) {
		c := configs[rapid.IntRange(0, 1).Draw(r, "version")]
		c.SrcPort = rapid.Uint16Range(1, 65535).Draw(r, "port")
		c.TrafficClass = rapid.Uint8().Draw(r, "tc")
		c.HopLimit = rapid.Uint8Range(1, 255).Draw(r, "hops")
		c.VLAN = rapid.Uint16Range(0, 4094).Draw(r, "vlan")
		c.Src[15] = rapid.Uint8Range(1, 255).Draw(r, "src")
		id := rapid.Uint16().Draw(r, "id")
		f := bth.Fields{BTH: bth.BTHFields{Op: bth.UCSendOnly}, Payload: make([]byte, rapid.IntRange(0, 65507-bth.BTHLen-bth.ICRCLen-3).Draw(r, "payload"))}
		p, err := frame.NewPath(c)
		if err != nil {
			r.Fatal(err)
		}
		b := encode(p, frame.LayoutEthernet, id, &f)
		ip := p.HeaderLen(frame.LayoutEthernet) - p.HeaderLen(frame.LayoutIP)
		_, crc := p.Put(b, frame.LayoutEthernet, len(b)-p.HeaderLen(frame.LayoutEthernet), id)
		if want := headerCRC(b[ip:p.HeaderLen(frame.LayoutEthernet)]); crc != want {
			r.Fatalf("CRC %#x, want %#x", crc, want)
		}
		if _, zero := p.Put(bytes.Clone(b), frame.LayoutEthernet, len(b)-p.HeaderLen(frame.LayoutEthernet), 0); p.WithID(zero, id) != crc {
			r.Fatalf("CRC %#x with Identification %#x, want %#x", p.WithID(zero, id), id, crc)
		}
		n := len(b) - p.HeaderLen(frame.LayoutEthernet)
		first := rapid.IntRange(0, n).Draw(r, "first packet")
		super := make([]byte, len(b)-n+first)
		p.Put(super, frame.LayoutEthernet, first, id)
		p.PutSuper(super, n)
		super = super[:len(b)-n]
		udp := super[len(super)-8:]
		pseudo := slices.Concat(c.Src[:], c.Dst[:], []byte{0, 17}, udp[4:6])
		if c.Src.Is4() {
			pseudo = slices.Concat(c.Src[12:], c.Dst[12:], []byte{0, 17}, udp[4:6])
		}
		if got, want := binary.BigEndian.Uint16(udp[6:]), uint16(frame.Sum16(pseudo)); got != want {
			r.Fatalf("pseudo header of a super-packet %#x, want %#x", got, want)
		}
		if udp[6], udp[7] = 0, 0; !bytes.Equal(super, b[:len(b)-n]) {
			r.Fatalf("headers of a super-packet of %d bytes\n%x, want\n%x", n, super, b[:len(b)-n])
		}
		var q frame.Packet
		if err := q.Parse(b, frame.LayoutEthernet); err != nil || !q.CheckICRC() {
			r.Fatalf("%v %x", err, b)
		}
		if q.Src != c.Src || q.Dst != c.Dst || q.SrcMAC != c.SrcMAC || q.DstMAC != c.DstMAC || q.VLAN != c.VLAN ||
			q.SrcPort != c.SrcPort || q.TrafficClass != c.TrafficClass || q.HopLimit != c.HopLimit || q.PayloadLen() != len(f.Payload) {
			r.Fatalf("%+v comes back as %+v", c, q)
		}
		if q.CE() != (c.TrafficClass&3 == 3) {
			r.Fatal("CE")
		}
		u := frame.Packet{Src: c.Src, Dst: c.Dst, SrcPort: c.SrcPort}
		if err := u.Parse(q.Data, frame.LayoutUDP); err != nil || !u.CheckICRC() {
			r.Fatal("ICRC wrong without the IP header")
		}
		if got, ok := u.RecoverIPv4ID(); p.Is4() && (!ok || got != id) {
			r.Fatalf("recovered id %#x %v, want %#x", got, ok, id)
		}
	})
}

func TestNewPath(t *testing.T) {
	change := func(f func(*frame.PathConfig)) frame.PathConfig {
		c := config4(t)
		f(&c)
		return c
	}
	for name, c := range map[string]frame.PathConfig{
		"nothing":          {},
		"no destination":   change(func(c *frame.PathConfig) { c.Dst = bth.GID{} }),
		"mixed versions":   change(func(c *frame.PathConfig) { c.Dst = gid(t, "fd77::1") }),
		"multicast source": change(func(c *frame.PathConfig) { c.Src = gid(t, "239.1.2.3") }),
		"VLAN 4095":        change(func(c *frame.PathConfig) { c.VLAN = 4095 }),
		"priority 8":       change(func(c *frame.PathConfig) { c.Priority = 8 }),
		"21 bits of label": change(func(c *frame.PathConfig) { c.FlowLabel = 1 << 20 }),
	} {
		if p, err := frame.NewPath(c); err == nil || p != nil || !strings.HasPrefix(err.Error(), "frame: path: ") {
			t.Errorf("%s: %v", name, err)
		}
	}

	p := newPath(t, change(func(c *frame.PathConfig) {
		c.SrcPort, c.FlowLabel, c.Dst, c.DstMAC = 0, 0x8BE58, gid(t, "239.129.2.3"), frame.MAC{}
	}))
	c := p.Config()
	if c.SrcPort != 0xFE7A || c.HopLimit != 64 || c.DstMAC != (frame.MAC{1, 0, 0x5E, 1, 2, 3}) || !p.Is4() {
		t.Errorf("defaults: %+v", c)
	}
}

func TestSourcePorts(t *testing.T) {
	// These ports were captured between Linux machines. 55410 is the source port of every MAD in
	// testdata.
	if frame.GSISourcePort != 55410 {
		t.Errorf("source port of QP 1 is %d", frame.GSISourcePort)
	}
	if fl := frame.FlowLabelFromPorts(52078, 7174); fl != 0x8BE58 {
		t.Errorf("flow label %#x, want 0x8be58", fl)
	}
	if port := frame.SourcePort(0x8BE58); port != 65146 {
		t.Errorf("source port %d, want 65146", port)
	}
	if fl := frame.FlowLabelFromQPNs(0x12, 0x12); fl != 324 || frame.SourcePort(fl) != 49476 {
		t.Errorf("flow label %d, port %d, want 324, 49476", fl, frame.SourcePort(fl))
	}
	if port := frame.HashPort(bth.QPNGSI); port != frame.GSISourcePort {
		t.Errorf("port of QP 1 is %d, want 55410", port)
	}
	rapid.Check(t, func(r *rapid.T) {
		a, b := bth.QPN(rapid.Uint32Range(0, bth.PSNMask).Draw(r, "a")), bth.QPN(rapid.Uint32Range(0, bth.PSNMask).Draw(r, "b"))
		fl := frame.FlowLabelFromQPNs(a, b)
		if fl != frame.FlowLabelFromQPNs(b, a) || fl >= 1<<20 {
			r.Fatalf("flow label %#x, the other way %#x", fl, frame.FlowLabelFromQPNs(b, a))
		}
		if frame.SourcePort(fl) < 0xC000 || frame.HashPort(a) < 0xC000 {
			r.Fatalf("ports %d, %d below 0xc000", frame.SourcePort(fl), frame.HashPort(a))
		}
	})
}

// TestManagementSourcePort checks the source port of captured management datagrams.
func TestManagementSourcePort(t *testing.T) {
	n := 0
	captures(t, func(t *testing.T, _ string, frames [][]byte) {
		for i, b := range frames {
			var p frame.Packet
			if p.Parse(b, frame.LayoutEthernet) != nil || p.DestQPN() != bth.QPNGSI {
				continue
			}
			n++
			if p.SrcPort != frame.GSISourcePort || p.QKey() != bth.QKeyGSI || p.PayloadLen() != 256 {
				t.Errorf("frame %d: source port %d, Q_Key %v, %d bytes", i, p.SrcPort, p.QKey(), p.PayloadLen())
			}
		}
	})
	if n == 0 {
		t.Error("no management datagrams")
	}
}

func TestMAC(t *testing.T) {
	m, err := frame.ParseMAC("52:54:00:00:00:0A")
	if err != nil || m != macA || m.String() != "52:54:00:00:00:0a" || m.IsZero() || m.IsMulticast() {
		t.Errorf("%v %v", m, err)
	}
	if m, err := frame.ParseMAC("52-54-00-00-00-0a"); err != nil || m != macA {
		t.Errorf("%v %v", m, err)
	}
	for _, s := range []string{"", "52:54", "52.54.00.00.00.0a", "52:54:00-00:00:0a", "52:54:00:00:00:0g", "52:54:00:00:00:+a", "52540000000a", "00:00:00:00:fe:80:00:00:00:00:00:00:02:00:5e:10:00:00:00:01", "02-00-5e-10-00-00-00-01"} {
		if _, err := frame.ParseMAC(s); err == nil {
			t.Errorf("%q was read", s)
		}
	}
	if g := frame.DefaultGID(macA); g != gid(t, "fe80::5054:ff:fe00:a") {
		t.Errorf("default GID %v", g)
	}
	if id := macA.EUI64(); !bytes.Equal(id[:], unhex(t, "505400fffe00000a")) {
		t.Errorf("EUI-64 %x", id)
	}
	for _, tt := range []struct {
		group string
		mac   frame.MAC
		ok    bool
	}{
		{"239.1.2.3", frame.MAC{0x01, 0x00, 0x5E, 0x01, 0x02, 0x03}, true},
		{"239.129.2.3", frame.MAC{0x01, 0x00, 0x5E, 0x01, 0x02, 0x03}, true},
		{"ff02::1:ff00:a", frame.MAC{0x33, 0x33, 0xFF, 0x00, 0x00, 0x0A}, true},
		{"10.0.0.1", frame.MAC{}, false},
		{"fe80::1", frame.MAC{}, false},
	} {
		if m, ok := frame.MulticastMAC(gid(t, tt.group)); m != tt.mac || ok != tt.ok {
			t.Errorf("%s: %v %v, want %v", tt.group, m, ok, tt.mac)
		}
	}
}

func TestLayoutString(t *testing.T) {
	for l, s := range map[frame.Layout]string{frame.LayoutEthernet: "ethernet", frame.LayoutIP: "ip", frame.LayoutUDP: "udp", 9: "Layout(9)"} {
		if l.String() != s {
			t.Errorf("%v, want %s", l, s)
		}
	}
}

func TestPathEqual(t *testing.T) {
	c := frame.PathConfig{Src: gid(t, "10.0.0.1"), Dst: gid(t, "10.0.0.2"), SrcMAC: frame.MAC{2}, SrcPort: 0xC000}
	other := c
	other.SrcPort++
	p, q, r := newPath(t, c), newPath(t, c), newPath(t, other)
	if !p.Equal(p) || !p.Equal(q) || p.Equal(r) || r.Equal(q) {
		t.Error("Equal is wrong")
	}
}
