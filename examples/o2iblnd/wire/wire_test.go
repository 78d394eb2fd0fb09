package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const connReqHex = "911be90b 1200 c0 00 38000000 00000000 01004d0a00000500 a7565bb7f5600600 02004d0a00000500 0000000000000000 0800 0101 00100000"

func TestConnReq(t *testing.T) {
	b := unhex(t, connReqHex)
	m, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if m.Type != ConnReq || m.Src.String() != "10.77.0.1@o2ib" || m.Dst != O2IB(netip.MustParseAddr("10.77.0.2"), 0) ||
		m.Conn != (ConnParams{QueueDepth: 8, MaxFrags: 257, MaxMessage: 4096}) {
		t.Errorf("decoded %v", m)
	}
	if got := m.Append(nil); !bytes.Equal(got, b) {
		t.Errorf("encoded %x", got)
	}
}

// TestChecksum has messages with the checksums that both kinds of kernels compute.
func TestChecksum(t *testing.T) {
	for _, c := range []struct {
		hex              string
		signed, unsigned uint32
	}{
		{"911be90b1200c00038000000480f069501004d0a00000500db790b06f660060002004d0a0000050000000000000000000800010100100000", 0x95060f48, 0x36860fd1},
		{"911be90b1200c10038000000a420ffb601004d0a0000050011befd96f660060002004d0a0000050088776655443322110800010100100000", 0x14ff202c, 0xb6ff20a4},
	} {
		b := unhex(t, c.hex)
		if s, u := checksum(b, SignedChecksum), checksum(b, UnsignedChecksum); s != c.signed || u != c.unsigned {
			t.Errorf("checksums %#x and %#x, want %#x and %#x", s, u, c.signed, c.unsigned)
		}
		for _, kind := range []ChecksumKind{NoChecksum, SignedChecksum, UnsignedChecksum} {
			SetChecksum(b, kind)
			if _, err := Decode(b); err != nil {
				t.Errorf("kind %d: %v", kind, err)
			}
			b[20] ^= 1
			if _, err := Decode(b); kind != NoChecksum && !errors.As(err, new(*Error)) {
				t.Errorf("kind %d: a damaged message: %v", kind, err)
			}
			b[20] ^= 1
		}
	}
}

func TestErrors(t *testing.T) {
	change := func(at int, v ...byte) []byte {
		b := unhex(t, connReqHex)
		copy(b[at:], v)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want Reason
	}{
		{"nothing", nil, TooShort},
		{"five bytes", change(0)[:5], TooShort},
		{"magic", change(0, 1), BadMagic},
		{"version", change(4, 0x13), BadVersion},
		{"half a header", change(0)[:40], TooShort},
		{"longer than it is", change(8, 57), BadLength},
		{"shorter than a header", change(8, 47), TooShort},
		{"shorter than its type", change(8, 50), TooShort},
		{"checksum", change(12, 1), BadChecksum},
		{"source", change(16, 255, 255, 255, 255, 255, 255, 255, 255), BadNID},
		{"type", change(6, 0xe0), BadType},
	} {
		var e *Error
		if _, err := Decode(c.b); !errors.As(err, &e) || e.Reason != c.want {
			t.Errorf("%s: %v, want reason %d", c.name, err, c.want)
		}
	}
}

func TestNID(t *testing.T) {
	for text, want := range map[string]NID{"10.77.0.1@o2ib": 0x000500000a4d0001, "10.77.0.1": 0x000500000a4d0001, "1.2.3.4@o2ib7": 0x0005000701020304} {
		n, err := ParseNID(text)
		if err != nil || n != want || !strings.HasPrefix(n.String(), text) {
			t.Errorf("%s: %#x %v, %v", text, uint64(n), n, err)
		}
	}
	for _, text := range []string{"", "host@o2ib", "1.2.3.4@tcp", "::1@o2ib", "1.2.3.4@o2ib70000", "1.2.3.4@o2ibx"} {
		if n, err := ParseNID(text); err == nil {
			t.Errorf("%q is taken as %v", text, n)
		}
	}
}

func TestPing(t *testing.T) {
	b := unhex(t, "676e6970 0e000000 39300000 02000000 0000000000000900 01000000 00000000 02004d0a00000500 dec0aa15 00000000")
	p, err := DecodePing(b)
	if err != nil || len(p.Interfaces) != 2 || p.Interfaces[0].NID != LoopbackNID || p.Interfaces[1].Status != StatusUp ||
		p.Features != FeatNIStatus|FeatRoutingOff|FeatMultiRail {
		t.Fatalf("%+v, %v", p, err)
	}
	if got := p.Append(nil); !bytes.Equal(got, b) {
		t.Errorf("encoded %x", got)
	}
	if p, err := DecodePing(b[:40]); err != nil || len(p.Interfaces) != 1 {
		t.Errorf("a cut answer: %+v, %v", p, err)
	}
	if _, err := DecodePing(b[:15]); !errors.As(err, new(*Error)) {
		t.Errorf("a short answer: %v", err)
	}
}

// FuzzDecode decodes arbitrary bytes. Encoding the decoded message gives the same message.
func FuzzDecode(f *testing.F) {
	f.Add(unhex(f, connReqHex))
	for _, t := range []Type{NoOp, Immediate, PutReq, PutNak, PutAck, PutDone, GetReq, GetDone} {
		for _, o := range []Order{LittleEndian, BigEndian} {
			m := Message{Order: o, Version: Version2, Type: t, Src: 1, Dst: 2, LNet: LNetHeader{Type: Put}, Payload: []byte("data"),
				Cookie: 0x0102030405060708, Status: -5, Desc: Descriptor{RKey: 9, Frags: []Fragment{{1, 2}, {3, 4}}}}
			f.Add(m.Append(nil))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		DecodePing(b)
		if r, err := DecodeReject(b); err == nil {
			b2 := r.Append(nil)
			b2[7] = b[7] // padding
			if !bytes.Equal(b2, b[:rejectLen]) {
				t.Errorf("reject %x becomes %x", b[:rejectLen], b2)
			}
		}
		m, err := Decode(b)
		if err != nil {
			if !errors.As(err, new(*Error)) {
				t.Errorf("not an *Error: %v", err)
			}
			return
		}
		again := m.Append(nil)
		m2, err := Decode(again)
		if m.Checksum != 0 { // covers bytes that may be dropped
			return
		}
		if err != nil || m2.String() != m.String() || !bytes.Equal(m2.Append(nil), again) {
			t.Errorf("%v becomes %v, %v", m, m2, err)
		}
	})
}
