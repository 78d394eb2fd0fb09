package frame_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// ack returns the frame of an ACK.
func ack(t testing.TB, c frame.PathConfig) []byte {
	t.Helper()
	f := bth.Fields{
		BTH:  bth.BTHFields{Op: bth.RCAck, PKey: bth.DefaultPKey, DestQPN: 0x11, PSN: 0xB66DF1},
		AETH: &bth.AETHFields{Syndrome: bth.AckNoCredits, MSN: 1},
	}
	return encode(newPath(t, c), frame.LayoutEthernet, 0x1045, &f)
}

// fixIPv4 makes the checksum of the IPv4 header at b[14:34] right again.
func fixIPv4(b []byte) {
	b[24], b[25] = 0, 0
	be.PutUint16(b[24:], ^ones(b[14:34]))
}

// ones is the one's complement sum of RFC 1071, by its definition.
func ones(b []byte) uint16 {
	s := uint32(0)
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i&1))
		s = s&0xFFFF + s>>16
	}
	return uint16(s)
}

// udpSum puts the right UDP checksum into a frame whose IP header is at b[14:].
func udpSum(b []byte, ipLen int) {
	addrs := 12
	if ipLen == 40 {
		addrs = 8
	}
	udp := b[14+ipLen:]
	udp = udp[:be.Uint16(udp[4:])]
	be.PutUint16(udp[6:], 0)
	pseudo := append(bytes.Clone(b[14+addrs:14+ipLen]), 0, 17, udp[4], udp[5])
	be.PutUint16(udp[6:], ^ones(append(pseudo, udp...)))
}

// TestParseErrors changes one thing at a time.
func TestParseErrors(t *testing.T) {
	type change func(b []byte) []byte
	set := func(at int, v ...byte) change {
		return func(b []byte) []byte { copy(b[at:], v); return b }
	}
	set4 := func(at int, v ...byte) change {
		return func(b []byte) []byte { copy(b[at:], v); fixIPv4(b); return b }
	}
	for _, tt := range []struct {
		name   string
		v6     bool
		change change
		err    error
	}{
		{"nothing", false, set(0), nil},
		{"IPv6, nothing", true, set(0), nil},
		{"Ethernet padding", false, func(b []byte) []byte { return append(b, 1, 2, 3) }, nil},
		{"IPv6, Ethernet padding", true, func(b []byte) []byte { return append(b, 1, 2, 3) }, nil},
		{"ARP", false, set(12, 0x08, 0x06), frame.ErrNotRoCE},
		{"IPv6 in an IPv4 frame", false, set(14, 0x60), frame.ErrNotRoCE},
		{"IPv4 in an IPv6 frame", true, set(14, 0x45), frame.ErrNotRoCE},
		{"TCP", false, set4(23, 6), frame.ErrNotRoCE},
		{"IPv6, TCP", true, set(20, 6), frame.ErrNotRoCE},
		{"IPv6, extension header", true, set(20, 0), frame.ErrNotRoCE},
		{"other port", false, set(36, 0x12, 0xB6), frame.ErrNotRoCE},
		{"IPv6, other port", true, set(56, 0x12, 0xB6), frame.ErrNotRoCE},
		{"later fragment", false, set4(20, 0x00, 0x01), frame.ErrNotRoCE},
		{"first fragment", false, set4(20, 0x20, 0x00), frame.ErrFragment},
		{"fragments allowed", false, set4(20, 0x00, 0x00), nil},
		{"header length 16", false, set4(14, 0x44), frame.ErrNotRoCE},
		{"options", false, func(b []byte) []byte {
			b = append(b[:34:34], append([]byte{1, 1, 1, 1}, b[34:]...)...)
			b[14] = 0x46
			return b
		}, frame.ErrIPHeader},
		{"IPv6 from a v4-mapped address", true, set(22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF), frame.ErrIPHeader},
		{"IPv6 to a v4-mapped address", true, set(38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF), frame.ErrIPHeader},
		{"checksum", false, set(24, 0x15, 0xDD), frame.ErrIPChecksum},
		{"total length beyond the frame", false, set4(16, 0, 49), frame.ErrTruncated},
		{"total length without UDP", false, set4(16, 0, 27), frame.ErrTruncated},
		{"IPv6, payload length beyond the frame", true, set(18, 0, 29), frame.ErrTruncated},
		{"IPv6, payload length without UDP", true, set(18, 0, 7), frame.ErrTruncated},
		{"UDP length beyond IP", false, set(38, 0, 29), frame.ErrUDPLength},
		{"UDP length 7", false, set(38, 0, 7), frame.ErrUDPLength},
		{"UDP length 8", false, set(38, 0, 8), bth.ErrShort},
		{"UDP length shorter than IP", false, set(38, 0, 24), bth.ErrShort},
		{"IPv6, UDP length beyond IP", true, set(58, 0, 29), frame.ErrUDPLength},
		{"UDP checksum", false, func(b []byte) []byte { udpSum(b, 20); return b }, nil},
		{"IPv6, UDP checksum", true, func(b []byte) []byte { udpSum(b, 40); return b }, nil},
		{"UDP checksum of odd length", false, func(b []byte) []byte { b[39]--; b[60] = 0x77; udpSum(b, 20); return b }, bth.ErrShort},
		{"UDP checksum of half a word", false, func(b []byte) []byte { b[39] -= 2; udpSum(b, 20); return b }, bth.ErrShort},
		{"wrong UDP checksum", false, set(40, 0x12, 0x34), frame.ErrUDPChecksum},
		{"IPv6, wrong UDP checksum", true, set(60, 0x12, 0x34), frame.ErrUDPChecksum},
		{"TVer", false, set(43, 0x01), bth.ErrVersion},
		{"opcode", false, set(42, 0x15), bth.ErrOpcode},
		{"tag without type", false, func(b []byte) []byte { return append(b[:12], 0x81, 0x00, 0, 1, 8) }, frame.ErrTruncated},
		{"two tags", false, func(b []byte) []byte {
			return append(b[:12:12], append([]byte{0x81, 0, 0, 1, 0x81, 0, 0, 2}, b[12:]...)...)
		}, frame.ErrNotRoCE},
		{"priority tag", false, func(b []byte) []byte { return append(b[:12:12], append([]byte{0x81, 0, 0x60, 0}, b[12:]...)...) }, nil},
	} {
		c := config4(t)
		if tt.v6 {
			c = config6(t)
		}
		b := tt.change(ack(t, c))
		var p frame.Packet
		if err := p.Parse(b, frame.LayoutEthernet); err != tt.err {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
		}
		if tt.err == frame.ErrUDPChecksum {
			p.IgnoreUDPChecksum = true
			if err := p.Parse(b, frame.LayoutEthernet); err != nil || !p.CheckICRC() {
				t.Errorf("%s, ignored: %v", tt.name, err)
			}
		}
		if (tt.name == "UDP checksum" || tt.err == frame.ErrUDPChecksum) && p.UDPChecksum == 0 {
			t.Errorf("%s: not shown", tt.name)
		}
		if typ := be.Uint16(b[12:]); typ == 0x0800 || typ == 0x86DD {
			var p frame.Packet
			if err := p.Parse(b[14:], frame.LayoutIP); err != tt.err {
				t.Errorf("%s, from IP: %v, want %v", tt.name, err, tt.err)
			}
		}
	}
	for e := range frame.ParseError(10) {
		if e.Error() == "" {
			t.Errorf("ParseError(%d) says nothing", e)
		}
	}
	var p frame.Packet
	if err := p.Parse(nil, frame.LayoutIP); err != frame.ErrTruncated {
		t.Error(err)
	}
	if err := p.Parse([]byte{0x50}, frame.LayoutIP); err != frame.ErrNotRoCE {
		t.Error(err)
	}
}

// TestParseTruncated cuts frames at every length.
func TestParseTruncated(t *testing.T) {
	tagged := config6(t)
	tagged.VLAN = 7
	for _, c := range []frame.PathConfig{config4(t), config6(t), tagged} {
		b := ack(t, c)
		path := newPath(t, c)
		for _, l := range []frame.Layout{frame.LayoutEthernet, frame.LayoutIP, frame.LayoutUDP} {
			whole := b[path.HeaderLen(frame.LayoutEthernet)-path.HeaderLen(l):]
			for n := range len(whole) {
				var p frame.Packet
				want := error(frame.ErrTruncated)
				if l == frame.LayoutUDP {
					want = bth.ErrShort
				}
				if err := p.Parse(whole[:n:n], l); err != want {
					t.Errorf("%v, %d of %d bytes: %v, want %v", l, n, len(whole), err, want)
				}
			}
		}
	}
}

// TestParseReuse parses frames of different kinds with one Packet: nothing of
// the frame before may show.
func TestParseReuse(t *testing.T) {
	tagged := config6(t)
	tagged.VLAN = 7
	var p frame.Packet
	for _, c := range []frame.PathConfig{tagged, config4(t), config6(t)} {
		b := ack(t, c)
		var fresh frame.Packet
		if err := fresh.Parse(b, frame.LayoutEthernet); err != nil {
			t.Fatal(err)
		}
		if err := p.Parse(b, frame.LayoutEthernet); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fresh, p, cmp.AllowUnexported(bth.OpcodeInfo{}, frame.Packet{})); diff != "" {
			t.Error(diff)
		}
	}
	if err := p.Parse(p.Data, frame.LayoutUDP); err != nil || p.IP != nil {
		t.Errorf("IP header %x kept: %v", p.IP, err)
	}
}

// TestCheckICRCOddHeader: CheckICRC does not panic if a driver sets Packet.IP wrongly.
func TestCheckICRCOddHeader(t *testing.T) {
	var p frame.Packet
	if err := p.Parse(ack(t, config4(t)), frame.LayoutEthernet); err != nil {
		t.Fatal(err)
	}
	p.IP = p.IP[:19]
	if p.CheckICRC() {
		t.Error("19 bytes pass for an IP header")
	}
	if _, ok := (&frame.Packet{Src: gid(t, "fd77::1")}).RecoverIPv4ID(); ok {
		t.Error("an IPv6 packet has an IPv4 id")
	}
}

func TestNoAllocations(t *testing.T) {
	path4, path6 := newPath(t, config4(t)), newPath(t, config6(t))
	frames := [][]byte{ack(t, config4(t)), ack(t, config6(t)), make([]byte, 100)}
	buf := make([]byte, 256)
	var p frame.Packet
	if n := testing.AllocsPerRun(100, func() {
		for _, path := range []*frame.Path{path4, path6} {
			for _, l := range []frame.Layout{frame.LayoutEthernet, frame.LayoutIP, frame.LayoutUDP} {
				_, _ = path.Put(buf, l, 100, 1)
			}
		}
		for _, b := range frames {
			if p.Parse(b, frame.LayoutEthernet) != nil {
				continue
			}
			if !p.CheckICRC() || p.Parse(p.Data, frame.LayoutUDP) != nil || !p.CheckICRC() {
				panic("ICRC")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	tagged := config4(f)
	tagged.VLAN = 7
	for _, c := range []frame.PathConfig{config4(f), config6(f), tagged} {
		b := ack(f, c)
		for l := range byte(3) {
			path := newPath(f, c)
			f.Add(b[path.HeaderLen(frame.LayoutEthernet)-path.HeaderLen(frame.Layout(l)):], l)
		}
	}
	for _, tt := range packets {
		f.Add(unhex(f, tt.hex), byte(frame.LayoutIP))
	}
	f.Fuzz(func(t *testing.T, b []byte, layout byte) {
		l := frame.Layout(layout % 3)
		p := frame.Packet{Src: gid(t, "10.0.0.1"), Dst: gid(t, "10.0.0.2"), IgnoreUDPChecksum: true}
		if p.Parse(b, l) != nil {
			return
		}
		_, _, _ = p.CheckICRC(), p.CheckICRCFlushQuirk(), p.CE()
		_, _ = p.RecoverIPv4ID()
		one := bth.Decode(&p.Packet)
		_ = one.String()

		// Encode the packet again on the same path, and parse the result.
		if p.SrcPort == 0 || p.HopLimit == 0 || p.Src.IsZero() || p.Dst.IsZero() || p.Src.IsMulticast() || p.VLAN == 4095 {
			return // NewPath does not accept or keep these values
		}
		again := encode(pathOf(t, &p), frame.LayoutEthernet, 1, &one)
		var q frame.Packet
		if err := q.Parse(again, frame.LayoutEthernet); err != nil || !q.CheckICRC() {
			t.Fatalf("%v\n%x\n%x", err, b, again)
		}
		if diff := cmp.Diff(one, bth.Decode(&q.Packet)); diff != "" {
			t.Fatal(diff)
		}
		if q.Src != p.Src || q.Dst != p.Dst || q.SrcPort != p.SrcPort || q.TrafficClass != p.TrafficClass || q.HopLimit != p.HopLimit {
			t.Fatalf("%+v\n%+v", p, q)
		}
	})
}
