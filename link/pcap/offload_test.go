package pcap

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// flow makes the packets of one direction and joins them as a host does.
type flow struct {
	path *frame.Path
	id   func(i int) uint16 // IPv4 identification of packet i
}

func newFlow(t testing.TB, v6 bool) *flow {
	t.Helper()
	c := frame.PathConfig{SrcMAC: frame.MAC{2, 1}, DstMAC: frame.MAC{2, 2}, SrcPort: 50000, FlowLabel: 0x12345, TrafficClass: 0xB8}
	src, dst := "10.0.0.1", "10.0.0.2"
	if v6 {
		src, dst = "fd00::1", "fd00::2"
	}
	c.Src, c.Dst = bth.GIDFrom(netip.MustParseAddr(src)), bth.GIDFrom(netip.MustParseAddr(dst))
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return &flow{p, func(i int) uint16 { return 0xFFFE + uint16(i) }} // it wraps
}

// packets returns one frame per payload, from SEND_FIRST to SEND_LAST, or of SEND_ONLY.
func (f *flow) packets(only bool, payloads ...int) (frames [][]byte) {
	for i, n := range payloads {
		op := bth.RCSendMiddle
		switch {
		case only:
			op = bth.RCSendOnly
		case i == 0:
			op = bth.RCSendFirst
		case i == len(payloads)-1:
			op = bth.RCSendLast
		}
		fields := bth.Fields{BTH: bth.BTHFields{Op: op, PKey: bth.DefaultPKey, DestQPN: 0x11, PSN: bth.PSN(i)}, Payload: make([]byte, n)}
		for k := range fields.Payload {
			fields.Payload[k] = byte(k * i)
		}
		body := fields.Append(nil)
		size := len(body) + bth.ICRCLen
		b := make([]byte, f.path.HeaderLen(frame.LayoutEthernet)+size)
		room, crc := f.path.Put(b, frame.LayoutEthernet, size, f.id(i))
		copy(room, body)
		bth.PutICRC(room[len(body):], crc.UpdateBody(body))
		frames = append(frames, b)
	}
	return frames
}

// join makes a super-packet of packets, in the form that the kernel gives it.
func join(frames [][]byte) []byte {
	b := bytes.Clone(frames[0])
	at := where(b)
	for _, f := range frames[1:] {
		b = append(b, f[at.body:]...)
	}
	at.end = len(b)
	at.setLengths(b)
	if !at.v6 {
		at.setIPChecksum(b)
	}
	partial(b)
	return b
}

func where(b []byte) headers {
	at, _ := locate(b, 0, frame.LayoutEthernet)
	return at
}

// partial leaves the UDP checksum to the card.
func partial(b []byte) []byte {
	at := where(b)
	be.PutUint16(b[at.udp+6:], frame.Fold16(at.pseudoSum(b)))
	return b
}

// reread captures frames and reads the capture.
func reread(t testing.TB, link LinkType, frames ...[]byte) []Record {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, NG, 0)
	w.AddInterface(Interface{LinkType: link})
	for _, f := range frames {
		w.Write(&Record{Time: when, Data: f, Direction: Out})
	}
	w.Flush()
	return read(t, &b)
}

func read(t testing.TB, in io.Reader) (recs []Record) {
	t.Helper()
	r, err := NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return recs
		}
		if err != nil {
			t.Fatal(err)
		}
		rec.Data = bytes.Clone(rec.Data)
		recs = append(recs, rec)
	}
}

// intact reports whether a record is a RoCE packet with a right ICRC.
func intact(rec *Record) bool {
	var p frame.Packet
	data, layout, ok := rec.Frame()
	return ok && p.Parse(data, layout) == nil && p.CheckICRC()
}

// withoutSum removes the UDP checksum.
func withoutSum(b []byte) []byte {
	b = bytes.Clone(b)
	be.PutUint16(b[where(b).udp+6:], 0)
	return b
}

func TestSuperPackets(t *testing.T) {
	full := func(n, size, last int) (s []int) {
		for range n - 1 {
			s = append(s, size)
		}
		return append(s, last)
	}
	for _, tt := range []struct {
		name     string
		only     bool
		payloads []int
	}{
		{"two", false, []int{1024, 1024}},
		{"last is shorter", false, []int{1024, 1024, 4}},
		{"as many as go", false, full(60, 1024, 1000)},
		{"PMTU 4096", false, full(15, 4096, 96)},
		{"PMTU 256", false, full(128, 256, 256)},
		{"short SENDs", true, full(40, 64, 64)},
		{"SENDs of an odd size", true, full(7, 1236, 40)},
		{"SENDs without payload", true, full(10, 0, 0)},
		{"jumbo", true, []int{4096, 8}},
	} {
		for _, v6 := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: " v6"}[v6], func(t *testing.T) {
				packets := newFlow(t, v6).packets(tt.only, tt.payloads...)
				super := join(packets)
				recs := reread(t, Ethernet, packets[0], super, packets[0])
				if len(recs) != len(packets)+2 {
					t.Fatalf("%d records, want %d", len(recs), len(packets)+2)
				}
				for i, rec := range recs[1 : len(recs)-1] {
					if !bytes.Equal(withoutSum(rec.Data), packets[i]) || !intact(&rec) || rec.Segment != i+1 || rec.Segments != len(packets) ||
						rec.Number != 2 || rec.Marks != PartialUDPChecksum || rec.OrigLen != len(rec.Data) || rec.Direction != Out || !rec.Time.Equal(when) {
						t.Fatalf("packet %d: %+v, want % x", i, rec, packets[i])
					}
				}
				if last := recs[len(recs)-1]; last.Number != 3 || last.Segments != 0 || last.Marks != 0 {
					t.Errorf("behind it: %+v", last)
				}
			})
		}
	}
}

// TestIdentifications: a receiver's kernel may join packets with gaps between their
// Identifications, or with one constant Identification.
func TestIdentifications(t *testing.T) {
	for name, id := range map[string]func(int) uint16{
		"constant": func(int) uint16 { return 7 },
		"one lost": func(i int) uint16 { return uint16(i + i/3) },
	} {
		f := newFlow(t, false)
		f.id = id
		packets := f.packets(false, 1024, 1024, 1024, 1024, 1024)
		recs := reread(t, Ethernet, join(packets))
		if len(recs) != len(packets) {
			t.Errorf("%s: %d records", name, len(recs))
			continue
		}
		for i := range recs {
			if !bytes.Equal(withoutSum(recs[i].Data), packets[i]) {
				t.Errorf("%s: packet %d is not what was sent", name, i)
			}
		}
	}
}

// TestDamagedSegments: damage to some packets does not hide the others.
func TestDamagedSegments(t *testing.T) {
	for bad := range 4 {
		packets := newFlow(t, false).packets(false, 1024, 1024, 1024, 512)
		packets[bad][100] ^= 1
		recs := reread(t, Ethernet, join(packets))
		if len(recs) != 4 {
			t.Errorf("packet %d damaged: %d records", bad, len(recs))
			continue
		}
		for i := range recs {
			if intact(&recs[i]) == (i == bad) {
				t.Errorf("packet %d damaged: packet %d is right: %v", bad, i, i != bad)
			}
		}
	}
	// A super-packet without any right ICRC remains as it was captured.
	super := join(newFlow(t, true).packets(true, 100, 100))
	super[70] ^= 1
	super[200] ^= 1
	if recs := reread(t, Ethernet, super); len(recs) != 1 || recs[0].Segments != 0 {
		t.Errorf("damaged as a whole: %d records", len(recs))
	}
}

// TestChecksums: what a card does to single packets.
func TestChecksums(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		packet := func() []byte { return newFlow(t, v6).packets(true, 100)[0] }
		whole := packet()
		at := where(whole)
		at.setUDPChecksum(whole)
		for _, tt := range []struct {
			name   string
			change func(b []byte)
			marks  Mark
			want   []byte // nil: as captured
		}{
			{"none", func([]byte) {}, 0, nil},
			{"right", func(b []byte) { copy(b, whole) }, 0, nil},
			{"partial", func(b []byte) { partial(b) }, PartialUDPChecksum, whole},
			{"wrong", func(b []byte) { b[at.udp+6] = 1 }, WrongUDPChecksum, nil},
			{"wrong and damaged", func(b []byte) { b[at.udp+6], b[at.body+30] = 1, 0xFF }, 0, nil},
			{"no length", func(b []byte) {
				clear(b[at.ip+2+2*b2i(v6) : at.ip+4+2*b2i(v6)])
				clear(b[at.udp+4 : at.udp+6])
			}, NoLength, packet()},
			{"no IPv4 checksum", func(b []byte) {
				if !v6 {
					clear(b[at.ip+10 : at.ip+12])
				}
			}, map[bool]Mark{false: NoIPChecksum}[v6], packet()},
		} {
			b := packet()
			tt.change(b)
			want := tt.want
			if want == nil {
				want = bytes.Clone(b)
			}
			recs := reread(t, Ethernet, b)
			if len(recs) != 1 || recs[0].Marks != tt.marks || !bytes.Equal(recs[0].Data, want) {
				t.Errorf("v6 %v, %s: %+v, want marks %q, % x", v6, tt.name, recs, tt.marks, want)
			}
		}
		// Damage does not hide that a checksum is partial.
		b := packet()
		b[at.body+30] ^= 1
		if recs := reread(t, Ethernet, partial(b)); recs[0].Marks != PartialUDPChecksum || intact(&recs[0]) {
			t.Errorf("damaged: %+v", recs[0])
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLinkTypes: super-packets after the header of each link type.
func TestLinkTypes(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		packets := newFlow(t, v6).packets(false, 256, 256, 8)
		super := join(packets)
		typ, ip := super[12:14], super[14:]
		tag := []byte{0, 42}
		cat := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
		for _, tt := range []struct {
			name string
			link LinkType
			data []byte
		}{
			{"tag", Ethernet, cat(super[:12], []byte{0x81, 0}, tag, typ, ip)},
			{"two tags", Ethernet, cat(super[:12], []byte{0x88, 0xA8}, tag, []byte{0x81, 0}, tag, typ, ip)},
			{"raw", Raw, ip},
			{"SLL", LinuxSLL, cat(make([]byte, 14), typ, ip)},
			{"SLL, tag", LinuxSLL, cat(make([]byte, 14), []byte{0x81, 0}, tag, typ, ip)},
			{"SLL2", LinuxSLL2, cat(typ, make([]byte, 18), ip)},
			{"SLL2, tag", LinuxSLL2, cat([]byte{0x81, 0}, make([]byte, 18), tag, typ, ip)},
			{"null", Null, cat([]byte{2, 0, 0, 0}, ip)},
			{"loop", Loop, cat([]byte{0, 0, 0, 2}, ip)},
		} {
			recs := reread(t, tt.link, tt.data)
			if len(recs) != len(packets) {
				t.Errorf("%s, v6 %v: %d records", tt.name, v6, len(recs))
				continue
			}
			for i := range recs {
				if !intact(&recs[i]) || !bytes.HasSuffix(withoutSumIn(recs[i]), packets[i][14:]) {
					t.Errorf("%s, v6 %v: packet %d is wrong", tt.name, v6, i)
				}
			}
			for n := range len(tt.data) { // cut anywhere
				reread(t, tt.link, tt.data[:n])
			}
		}
	}
}

// withoutSumIn removes the UDP checksum of a record of any link type.
func withoutSumIn(rec Record) []byte {
	data, layout, _ := rec.Frame()
	b := bytes.Clone(rec.Data)
	at, _ := locate(b, len(b)-len(data), layout)
	be.PutUint16(b[at.udp+6:], 0)
	return b
}

// TestBeyond64K: a super-packet that is too long for the length field of the IP header.
func TestBeyond64K(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		f := newFlow(t, v6)
		payloads := slices.Repeat([]int{1024}, 100)
		packets := f.packets(false, payloads...)
		super := join(packets)
		at := where(packets[0])
		clear(super[at.ip+2+2*b2i(v6) : at.ip+4+2*b2i(v6)])
		clear(super[at.udp+4 : at.udp+6])
		recs := reread(t, Ethernet, super)
		if len(recs) != 100 {
			t.Fatalf("v6 %v: %d records", v6, len(recs))
		}
		for i := range recs {
			if !intact(&recs[i]) || !bytes.Equal(withoutSum(recs[i].Data), packets[i]) || recs[i].Marks&NoLength == 0 {
				t.Errorf("v6 %v: packet %d is wrong", v6, i)
			}
		}
	}
}

func TestAsCaptured(t *testing.T) {
	super := join(newFlow(t, false).packets(false, 1024, 1024))
	var b bytes.Buffer
	w := NewWriter(&b, Classic, 0)
	w.AddInterface(Interface{LinkType: Ethernet})
	w.Write(&Record{Time: when, Data: super})
	w.Flush()
	r, err := NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	r.AsCaptured = true
	if rec, err := r.Next(); err != nil || !bytes.Equal(rec.Data, super) || rec.Marks != 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestHostCaptures reads captures of tcpdump on the host of an endpoint: rocectl, or Linux with
// checksum offload.
func TestHostCaptures(t *testing.T) {
	files, _ := filepath.Glob("../../testdata/pcaps/host/*.pcap")
	if len(files) == 0 {
		t.Fatal("no captures in testdata/pcaps/host")
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		split := 0
		for _, rec := range read(t, bytes.NewReader(b)) {
			if !intact(&rec) {
				t.Errorf("%s: frame %d, packet %d is wrong", name, rec.Number, rec.Segment)
			}
			split += min(rec.Segment, 1)
		}
		if split == 0 {
			t.Errorf("%s: no super-packet", name)
		}
	}
	for _, name := range []string{"rping", "rping6", "rstream", "ud_pingpong"} {
		file, err := os.Open("../../testdata/pcaps/" + name + ".pcap")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var before, after [][]byte
		for _, rec := range read(t, file) {
			if intact(&rec) {
				before = append(before, rec.Data)
				after = append(after, partial(bytes.Clone(rec.Data)))
			}
		}
		for i, rec := range reread(t, Ethernet, after...) {
			if rec.Marks != PartialUDPChecksum || !intact(&rec) || !bytes.Equal(withoutSum(rec.Data), before[i]) {
				t.Errorf("%s: packet %d: %+v", name, i, rec)
			}
		}
	}
}

func TestMarkString(t *testing.T) {
	if got := (PartialUDPChecksum | NoLength).String(); got != "UDP checksum partial, no IP length" {
		t.Error(got)
	}
	if got := Mark(0).String(); got != "" {
		t.Error(got)
	}
}

// FuzzOffload: the records of a frame together have the bytes of the frame, and no others.
func FuzzOffload(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		f.Add(uint16(Ethernet), join(newFlow(f, v6).packets(false, 256, 256, 8)))
		f.Add(uint16(Raw), join(newFlow(f, v6).packets(true, 8, 8, 8))[14:])
		f.Add(uint16(LinuxSLL2), append([]byte{8, 0, 17: 0, 18: 0, 19: 0}, newFlow(f, v6).packets(true, 8)[0][14:]...))
	}
	f.Fuzz(func(t *testing.T, link uint16, b []byte) {
		for _, resign := range []bool{false, true} {
			b := bytes.Clone(b)
			rec := Record{Data: b, OrigLen: len(b), LinkType: LinkType(link)}
			data, layout, ok := rec.Frame()
			at, located := headers{}, false
			if ok {
				at, located = locate(b, len(b)-len(data), layout)
			}
			if resign && located && at.end <= len(b) && len(b)-at.body >= minPacket+8 {
				// Make an ICRC right somewhere, so that there is something to split.
				e := at.envelope(b)
				e.Seal()
				end := at.body + minPacket + int(b[len(b)-1])%64*4
				if end < at.end {
					var p frame.Packet
					if p.ParseBody(b[at.body:end], &e, 0) == nil {
						patchICRC(&p, &e, b[at.body:end])
					}
				}
			}
			kept := bytes.Clone(b)
			var o offload
			o.undo(&rec)
			var body []byte
			n := 0
			for {
				if n++; n > len(kept)/minPacket+1 {
					t.Fatalf("%d packets in %d bytes", n, len(kept))
				}
				if rec.Segments == 0 {
					break
				}
				if rec.Segment != n || rec.Segment > rec.Segments {
					t.Fatalf("packet %d is %d of %d", n, rec.Segment, rec.Segments)
				}
				body = append(body, rec.Data[at.body:]...)
				if !o.more() {
					break
				}
				o.segment(&rec)
			}
			if rec.Segments != 0 && (n != rec.Segments || !bytes.Equal(body, kept[at.body:at.end])) {
				t.Fatalf("%d packets of %d hold %d bytes of %d", n, rec.Segments, len(body), at.end-at.body)
			}
			if rec.Segments == 0 && rec.Marks == 0 && !bytes.Equal(rec.Data, kept) {
				t.Fatal("a frame was changed without a mark")
			}
		}
	})
}

// patchICRC makes the ICRC of a body right for identification e.ID.
func patchICRC(p *frame.Packet, e *frame.Envelope, b []byte) {
	path, err := frame.NewPath(frame.PathConfig{Src: e.Src, Dst: e.Dst, SrcPort: e.SrcPort})
	if err != nil || e.SrcPort == 0 { // NewPath replaces source port 0
		return
	}
	_, crc := path.Put(make([]byte, len(b)), frame.LayoutUDP, len(b), e.ID)
	tail := len(b) - bth.ICRCLen
	binary.LittleEndian.PutUint32(b[tail:], crc.UpdateBody(b[:tail]).Sum())
	if !p.CheckICRC() {
		panic("the ICRC is not right")
	}
}

func BenchmarkReadDamaged(b *testing.B) {
	for name, n := range map[string]int{"one packet": 4160, "64 KiB": 65000} {
		b.Run(name, func(b *testing.B) {
			f := newFlow(b, false)
			packet := f.packets(true, 4096)[0]
			at := where(packet)
			packet = append(packet, make([]byte, n)...)
			for i := at.body + minPacket; i+12 <= len(packet); i += 4 {
				copy(packet[i:], []byte{4, 0, 0xFF, 0xFF}) // a packet could begin at every offset
			}
			at.end = len(packet)
			at.setLengths(packet)
			at.setIPChecksum(packet)
			var o offload
			b.SetBytes(int64(len(packet)))
			for b.Loop() {
				rec := Record{Data: packet, OrigLen: len(packet), LinkType: Ethernet}
				o.undo(&rec)
			}
		})
	}
}
