package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/goroce/roce/bth/frame"
)

// all reads a capture to its end and copies the records.
func all(r io.Reader) ([]Record, error) {
	p, err := NewReader(r)
	if err != nil {
		return nil, err
	}
	var out []Record
	for {
		rec, err := p.Next()
		if err != nil {
			if _, again := p.Next(); again != io.EOF {
				return out, fmt.Errorf("after %v, Next returns %v", err, again)
			}
			if err == io.EOF {
				err = nil
			}
			return out, err
		}
		if rec.Number != len(out)+1 {
			return out, fmt.Errorf("frame %d has the number %d", len(out)+1, rec.Number)
		}
		rec.Number = 0 // so that it compares with what was written
		rec.Data = bytes.Clone(rec.Data)
		out = append(out, rec)
	}
}

var when = time.Unix(1700000000, 123456789)

func records() []Record {
	var out []Record
	for i := range 10 {
		data := bytes.Repeat([]byte{byte(i)}, 60+i)
		out = append(out, Record{
			Time: when.Add(time.Duration(i) * 1001), Data: data, OrigLen: len(data),
			LinkType: Ethernet, Direction: Direction(i % 3), Interface: i % 2,
		})
	}
	return out
}

func write(t testing.TB, f Format, snap int, recs []Record) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, f, snap)
	for _, i := range []Interface{{"eth0", "raw", Ethernet}, {"eth1", "", Ethernet}} {
		if _, err := w.AddInterface(i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range recs {
		if err := w.Write(&recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	for _, f := range []Format{Classic, NG} {
		want := records()
		if f == Classic {
			for i := range want {
				want[i].Direction, want[i].Interface = 0, 0
			}
		}
		got, err := all(bytes.NewReader(write(t, f, 0, records())))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("format %d: %s", f, d)
		}
	}
}

// TestComments: a Reader returns a packet's remark and number, and reads the options after them.
func TestComments(t *testing.T) {
	want := records()
	for i := range want {
		want[i].Comment = strings.Repeat("é", i)
		want[i].ID = uint64(i) << 40
	}
	got, err := all(bytes.NewReader(write(t, NG, 0, want)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSnap(t *testing.T) {
	for _, f := range []Format{Classic, NG} {
		got, err := all(bytes.NewReader(write(t, f, 33, records())))
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got {
			if len(r.Data) != 33 || r.OrigLen != 60+i {
				t.Errorf("packet %d: %d bytes of %d", i, len(r.Data), r.OrigLen)
			}
		}
	}
}

// TestGopacketReads: an independent reader understands what we write.
func TestGopacketReads(t *testing.T) {
	type source interface {
		ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
		LinkType() layers.LinkType
	}
	for _, f := range []Format{Classic, NG} {
		b := write(t, f, 0, records())
		var src source
		var err error
		if f == Classic {
			src, err = pcapgo.NewReader(bytes.NewReader(b))
		} else {
			src, err = pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.DefaultNgReaderOptions)
		}
		if err != nil {
			t.Fatal(err)
		}
		if src.LinkType() != layers.LinkTypeEthernet {
			t.Errorf("link type %v", src.LinkType())
		}
		for i, want := range records() {
			data, ci, err := src.ReadPacketData()
			if err != nil {
				t.Fatalf("format %d, packet %d: %v", f, i, err)
			}
			if !bytes.Equal(data, want.Data) || !ci.Timestamp.Equal(want.Time) || ci.Length != want.OrigLen || f == NG && ci.InterfaceIndex != want.Interface {
				t.Errorf("format %d, packet %d: %d bytes, %+v, want %+v", f, i, len(data), ci, want)
			}
		}
		if _, _, err := src.ReadPacketData(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	}
}

// TestGopacketWrites: our Reader understands what an independent writer writes.
func TestGopacketWrites(t *testing.T) {
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriterInterface(&b, pcapgo.NgInterface{
		Name: "x", LinkType: layers.LinkTypeLinuxSLL, SnapLength: 65535, TimestampResolution: 9, Comment: "one two", OS: "none",
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Comment: "section", Application: "test"}})
	if err != nil {
		t.Fatal(err)
	}
	sll := append(make([]byte, 14), 0x08, 0x00, 0x45)
	ci := gopacket.CaptureInfo{Timestamp: when, CaptureLength: len(sll), Length: 99}
	if err := w.WritePacket(ci, sll); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	got, err := all(&b)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	data, layout, ok := got[0].Frame()
	if !got[0].Time.Equal(when) || got[0].OrigLen != 99 || got[0].LinkType != LinuxSLL || !ok || layout != frame.LayoutIP || !bytes.Equal(data, []byte{0x45}) {
		t.Errorf("%+v; Frame() = % x, %v, %v", got[0], data, layout, ok)
	}
}

// TestClassicVariants: both byte orders, microseconds and nanoseconds.
func TestClassicVariants(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for magic, unit := range map[uint32]int64{magicMicro: 1000, magicNano: 1} {
			b := order.AppendUint32(nil, magic)
			b = order.AppendUint16(b, 2)
			b = order.AppendUint16(b, 4)
			for _, v := range []uint32{0, 0, 65535, 1<<28 | uint32(Raw)} { // with an FCS length
				b = order.AppendUint32(b, v)
			}
			for _, v := range []uint32{1600000000, 5, 3, 7} {
				b = order.AppendUint32(b, v)
			}
			b = append(b, 1, 2, 3)
			got, err := all(bytes.NewReader(b))
			want := []Record{{Time: time.Unix(1600000000, 5*unit), Data: []byte{1, 2, 3}, OrigLen: 7, LinkType: Raw}}
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("%v, %#x: %v %s", order, magic, err, d)
			}
		}
	}
}

// ng builds pcapng files by hand.
type ng struct {
	order binary.AppendByteOrder
	b     []byte
}

func (n *ng) block(kind uint32, body ...byte) *ng {
	size := uint32(12 + len(body) + -len(body)&3)
	n.b = n.order.AppendUint32(n.order.AppendUint32(n.b, kind), size)
	n.b = append(append(n.b, body...), make([]byte, -len(body)&3)...)
	n.b = n.order.AppendUint32(n.b, size)
	return n
}

func (n *ng) words(v ...uint32) (b []byte) {
	for _, x := range v {
		b = n.order.AppendUint32(b, x)
	}
	return b
}

func (n *ng) half(a, b uint16) []byte {
	return n.order.AppendUint16(n.order.AppendUint16(nil, a), b)
}

func (n *ng) section() *ng {
	return n.block(blockSection, bytes.Join([][]byte{n.words(orderMark), n.half(1, 0), n.words(^uint32(0), ^uint32(0))}, nil)...)
}

func (n *ng) iface(link LinkType, options ...byte) *ng {
	return n.block(blockInterface, append(append(n.half(uint16(link), 0), n.words(0)...), options...)...)
}

// TestBlocks: every kind of block, both byte orders, two sections.
func TestBlocks(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		n := &ng{order: order}
		n.section()
		n.block(0x0BAD, make([]byte, 100)...) // an unknown type
		n.iface(Ethernet)                     // microseconds
		n.iface(Raw, append(append(n.half(optTsResol, 1), 0x94, 0, 0, 0), n.half(0, 0)...)...)
		n.iface(Raw, append(append(n.half(optTsResol, 1), 3, 0, 0, 0), append(n.half(optTsOffset, 8), order.AppendUint64(nil, 1000)...)...)...)
		n.block(blockPacket, append(n.words(0, 0, 2000001, 3, 9), 1, 2, 3)...)
		n.block(blockPacket, append(n.words(1, 0, 3<<20|1<<19, 1, 1), append([]byte{7, 0, 0, 0}, append(n.half(optFlags, 4), n.words(flagsOut|0x100)...)...)...)...)
		n.block(blockPacket, n.words(2, 0, 5250, 0, 0)...)
		n.block(blockPacketOld, append(append(n.half(0, 5), n.words(0, 7, 2, 2)...), 8, 9)...)
		n.block(blockSimple, append(n.words(3), 4, 5, 6)...)
		n.section().iface(IPv6)
		n.block(blockPacket, append(n.words(0, 0, 1, 1, 1), 1)...)
		got, err := all(bytes.NewReader(n.b))
		want := []Record{
			{Time: time.Unix(2, 1000), Data: []byte{1, 2, 3}, OrigLen: 9, LinkType: Ethernet},
			{Time: time.Unix(3, 5e8), Data: []byte{7}, OrigLen: 1, LinkType: Raw, Interface: 1, Direction: Out},
			{Time: time.Unix(1005, 25e7), Data: []byte{}, LinkType: Raw, Interface: 2},
			{Time: time.Unix(0, 7000), Data: []byte{8, 9}, OrigLen: 2, LinkType: Ethernet},
			{Data: []byte{4, 5, 6}, OrigLen: 3, LinkType: Ethernet},
			{Time: time.Unix(0, 1000), Data: []byte{1}, OrigLen: 1, LinkType: IPv6, Interface: 3},
		}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v: %v %s", order, err, d)
		}
	}
}

func TestDamaged(t *testing.T) {
	le := func() *ng { return (&ng{order: binary.LittleEndian}).section() }
	n := le()
	classic := write(t, Classic, 0, records()[:1])
	edit := func(i int, v ...byte) []byte {
		b := bytes.Clone(classic)
		copy(b[i:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"empty":                    nil,
		"text":                     []byte("GET / HTTP/1.1\r\n\r\n and so on"),
		"gzip":                     {0x1F, 0x8B, 8, 0},
		"classic version":          edit(4, 1),
		"classic huge packet":      edit(24+8, 0xFF, 0xFF, 0xFF, 0x7F),
		"section order mark":       append(append([]byte{}, n.b[:8]...), make([]byte, 20)...),
		"section version":          append(append(bytes.Clone(n.b[:12]), 9, 0, 0, 0), n.b[16:]...),
		"section length":           append(append(bytes.Clone(n.b[:4]), 8, 0, 0, 0), n.b[8:]...),
		"block length":             append(bytes.Clone(n.b), n.words(0x77, 13, 0, 13)...),
		"short block":              append(bytes.Clone(n.b), n.words(0x77, 8, 8)...),
		"trailing length":          append(bytes.Clone(n.b), n.words(0x77, 12, 16)...),
		"packet without interface": le().block(blockPacket, n.words(0, 0, 0, 0, 0)...).b,
		"packet of interface 9":    le().iface(Ethernet).block(blockPacket, n.words(9, 0, 0, 0, 0)...).b,
		"packet beyond its block":  le().iface(Ethernet).block(blockPacket, n.words(0, 0, 0, 100, 100)...).b,
		"simple without interface": le().block(blockSimple, n.words(0)...).b,
		"interface too short":      le().block(blockInterface, 1, 2).b,
		"option beyond its block":  le().iface(Ethernet, append(n.half(optTsResol, 100), 1, 2, 3, 4)...).b,
		"resolution":               le().iface(Ethernet, append(n.half(optTsResol, 1), 25, 0, 0, 0)...).b,
		"many interfaces": func() []byte {
			n := le()
			for range maxIfaces + 1 {
				n.iface(Ethernet)
			}
			return n.b
		}(),
	} {
		if recs, err := all(bytes.NewReader(b)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %d records, %v, want ErrFormat", name, len(recs), err)
		}
	}
}

// TestTruncated: from a file that is cut anywhere, Next returns the whole packets and then an
// error.
func TestTruncated(t *testing.T) {
	for _, f := range []Format{Classic, NG} {
		b := write(t, f, 0, records()[:3])
		whole := map[int]bool{} // lengths at which a packet ends
		for n := 1; n < len(b); n++ {
			recs, err := all(bytes.NewReader(b[:n]))
			if err == nil {
				whole[n] = true
			} else if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("format %d, %d bytes: %v", f, n, err)
			}
			if len(recs) > 3 {
				t.Fatalf("%d records", len(recs))
			}
		}
		// After the headers of the file, and after each packet but the last.
		if want := map[Format]int{Classic: 3, NG: 5}[f]; len(whole) != want {
			t.Errorf("format %d: whole at %v, want %d places", f, whole, want)
		}
	}
}

func TestReadErrorIsKept(t *testing.T) {
	boom := errors.New("boom")
	b := write(t, NG, 0, records())
	_, err := all(io.MultiReader(bytes.NewReader(b[:len(b)/2]), iotestErr{boom}))
	if !errors.Is(err, boom) {
		t.Errorf("%v, want %v", err, boom)
	}
}

type iotestErr struct{ err error }

func (e iotestErr) Read([]byte) (int, error) { return 0, e.err }

func TestWriterErrors(t *testing.T) {
	w := NewWriter(io.Discard, Classic, 0)
	if err := w.Write(&Record{}); err == nil {
		t.Errorf("a packet without an interface was written")
	}
	w.AddInterface(Interface{LinkType: Ethernet})
	if _, err := w.AddInterface(Interface{LinkType: Raw}); err == nil || !strings.Contains(err.Error(), "pcapng") {
		t.Errorf("two link types in a classic file: %v", err)
	}
	boom := errors.New("boom")
	w = NewWriter(badWriter{boom}, NG, 0)
	w.AddInterface(Interface{LinkType: Ethernet})
	for range 3 {
		w.Write(&Record{Data: make([]byte, 50000)})
	}
	if err := w.Flush(); !errors.Is(err, boom) {
		t.Errorf("Flush: %v, want boom", err)
	}
	if err := w.Write(&Record{}); !errors.Is(err, boom) {
		t.Errorf("Write: %v, want boom", err)
	}
}

type badWriter struct{ err error }

func (b badWriter) Write([]byte) (int, error) { return 0, b.err }

func TestCreate(t *testing.T) {
	for name, magic := range map[string]uint32{"x.pcap": magicNano, "x.pcapng": magicNG} {
		name = filepath.Join(t.TempDir(), name)
		w, err := Create(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.AddInterface(Interface{LinkType: Ethernet})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(name)
		if len(b) < 4 || binary.LittleEndian.Uint32(b) != magic {
			t.Errorf("%s begins with % x", name, b[:min(4, len(b))])
		}
	}
	if _, err := Create(filepath.Join(t.TempDir(), "no", "such", "dir"), 0); err == nil {
		t.Error("a file in no directory was created")
	}
}

// TestCaptures reads captures made by other programs.
func TestCaptures(t *testing.T) {
	files, _ := filepath.Glob("../../testdata/pcaps/*.pcap")
	if len(files) == 0 {
		t.Fatal("no captures in testdata/pcaps")
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		recs, err := all(f)
		f.Close()
		if err != nil || len(recs) == 0 {
			t.Errorf("%s: %d packets, %v", name, len(recs), err)
		}
		roce := 0
		var p frame.Packet
		for i := range recs {
			if data, layout, ok := recs[i].Frame(); ok && p.Parse(data, layout) == nil && p.CheckICRC() {
				roce++
			}
		}
		if roce == 0 {
			t.Errorf("%s: no RoCE packet with a right ICRC among %d", name, len(recs))
		}
	}
}

// TestNoAllocations per packet, reading and writing.
func TestNoAllocations(t *testing.T) {
	for _, f := range []Format{Classic, NG} {
		w := NewWriter(io.Discard, f, 0)
		w.AddInterface(Interface{LinkType: Ethernet})
		rec := Record{Time: when, Data: make([]byte, 1100), Direction: In}
		if n := testing.AllocsPerRun(100, func() { w.Write(&rec) }); n != 0 {
			t.Errorf("format %d: %v allocations for a packet written", f, n)
		}
		recs := make([]Record, 300)
		for i := range recs {
			recs[i] = rec
		}
		r, err := NewReader(bytes.NewReader(write(t, f, 0, recs)))
		if err != nil {
			t.Fatal(err)
		}
		r.Next()
		if n := testing.AllocsPerRun(200, func() { r.Next() }); n != 0 {
			t.Errorf("format %d: %v allocations for a packet read", f, n)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(write(f, Classic, 0, records()))
	f.Add(write(f, NG, 0, records()))
	n := (&ng{order: binary.BigEndian}).section().iface(Raw)
	f.Add(n.block(blockSimple, append(n.words(3), 4, 5, 6)...).b)
	f.Add(n.block(blockPacketOld, append(append(n.half(0, 5), n.words(0, 7, 2, 2)...), 8, 9)...).b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		r.AsCaptured = len(b)%2 == 0
		total := 0
		for {
			rec, err := r.Next()
			if err != nil {
				break
			}
			if rec.OrigLen < len(rec.Data) || rec.Data == nil {
				t.Fatalf("%d bytes captured of %d, nil: %v", len(rec.Data), rec.OrigLen, rec.Data == nil)
			}
			rec.Frame()
			_ = rec.Time.String()
			if rec.Segment <= 1 {
				total += len(rec.Data)
			}
		}
		if total > len(b) && b[0] != 0x1F {
			t.Fatalf("%d bytes of packets in a file of %d", total, len(b))
		}
		if cap(r.buf) > MaxPacket+1<<17 || len(r.ifaces) > maxIfaces {
			t.Fatalf("a buffer of %d bytes, %d interfaces", cap(r.buf), len(r.ifaces))
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	for name, f := range map[string]Format{"pcap": Classic, "pcapng": NG} {
		b.Run(name, func(b *testing.B) {
			w := NewWriter(io.Discard, f, 0)
			w.AddInterface(Interface{LinkType: Ethernet})
			rec := Record{Time: when, Data: make([]byte, 1100)}
			b.ReportAllocs()
			b.SetBytes(1100)
			for b.Loop() {
				w.Write(&rec)
			}
		})
	}
}
