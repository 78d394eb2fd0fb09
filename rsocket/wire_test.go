package rsocket

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"syscall"
	"testing"
)

// Private data of librdmacm, of riostream and of rstream.
const (
	captured      = "01020180000000010000557bba03c000000018ea0000000200007fde574b8000000019fd00080000"
	capturedPlain = "0102018000000000000055fd1be3f0000000153b0000000200007f1dc6d970000000168c00080000"
)

// The private data that librdmacm sent in testdata/pcaps/riostream.pcap and rstream.pcap is parsed, and
// encoded to the same bytes.
func TestHelloCaptured(t *testing.T) {
	for _, c := range []struct {
		wire string
		maps int
	}{
		{captured, 1},
		{capturedPlain, 0},
	} {
		b, err := hex.DecodeString(c.wire)
		if err != nil {
			t.Fatal(err)
		}
		h, err := parseHello(append(b, make([]byte, 16)...))
		if err != nil {
			t.Fatal(err)
		}
		if h.bigEndian || h.credits != 384 || h.maps != c.maps || h.table.length != 2 || h.data.length == 0 {
			t.Errorf("%s is %+v", c.wire, h)
		}
		if got := h.append(nil); !bytes.Equal(got, b) {
			t.Errorf("encoded again %x, was %x", got, b)
		}
	}
}

func TestHelloRefused(t *testing.T) {
	good, _ := hex.DecodeString(captured)
	for name, c := range map[string]struct {
		change func([]byte) []byte
		err    error
	}{
		"short":       {func(b []byte) []byte { return b[:39] }, syscall.EPROTO},
		"no rsocket":  {func(b []byte) []byte { return make([]byte, 56) }, syscall.ENOTSUP},
		"version":     {func(b []byte) []byte { b[0] = 2; return b }, syscall.ENOTSUP},
		"no table":    {func(b []byte) []byte { clear(b[20:24]); return b }, syscall.EPROTO},
		"large table": {func(b []byte) []byte { b[20] = 1; return b }, syscall.EPROTO},
	} {
		if _, err := parseHello(c.change(bytes.Clone(good))); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
	}
}

// The entries are in the byte order of the host that reads them.
func TestExtentOrder(t *testing.T) {
	e := extent{0x1122334455667788, 0x99AABBCC, 0xDDEEFF00}
	for _, big := range []bool{false, true} {
		o := order(big)
		b := e.append(nil, o)
		if got := parseExtent(b, o); got != e {
			t.Errorf("big endian %v: %+v", big, got)
		}
		if first := b[0]; (first == 0x11) != big {
			t.Errorf("big endian %v: first byte %#x", big, first)
		}
		m := mapping{42, e}
		if got := parseMapping(m.append(nil, o), o); got != m {
			t.Errorf("mapping: %+v", got)
		}
	}
	if hostBigEndian != (binary.NativeEndian.Uint16([]byte{0, 1}) == 1) {
		t.Error("host byte order")
	}
}

func TestScale(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 128: 128, 256: 256, 300: 256, 512: 512, maxMaps: maxMaps} {
		if got := unscale(scale(n)); got != want {
			t.Errorf("%d is encoded as %d, want %d", n, got, want)
		}
	}
}

// The receiver refuses more bytes than it has granted, and more messages than it has receives.
func TestReceiverLimits(t *testing.T) {
	r := receiver{buffer: 64, depth: 4, granted: 32, ready: 32, offer: 32, renew: 2, slots: 2, slot: 1}
	if r.arrived(33) {
		t.Error("more than granted was accepted")
	}
	for range 5 {
		r.arrived(0)
	}
	if r.arrived(0) {
		t.Error("more messages than receives were accepted")
	}
}

// The granted, unread and free bytes of a receiver are always the whole buffer, or the early
// buffer and one half. The receiver announces the halves in turn.
func TestReceiverBooks(t *testing.T) {
	r := receiver{buffer: 64, depth: 8, early: 10, granted: 10, ready: 32, renew: 4, slots: 2, slot: 1}
	wantSlot, wantOffer := 1, 0
	for i := range 1000 {
		if r.due() {
			_, half, offset, slot := r.grant()
			if half {
				if offset != wantOffer || slot != wantSlot {
					t.Fatalf("step %d: announced %d in entry %d, want %d in %d", i, offset, slot, wantOffer, wantSlot)
				}
				wantOffer, wantSlot = (wantOffer+32)%64, 1-wantSlot
			}
		}
		if n := uint32(1 + i%7); int(n) <= r.granted && r.inbox.lengths.Len() < 8 && !r.arrived(n) {
			t.Fatal("refused what was granted")
		}
		r.consume(r.next(5))
		want := 64
		if r.early > 0 {
			want = r.early + 32
		}
		if got := r.granted + r.inbox.bytes + r.ready; got != want {
			t.Fatalf("step %d: granted, unread and free are %d bytes, want %d", i, got, want)
		}
	}
}

// Messages are taken in the order in which they came, also while the queue grows.
func TestMessages(t *testing.T) {
	var m messages
	for i := range uint32(40) { // grows, too
		m.push(i + 1)
		if i%2 == 1 {
			if n := int(*m.lengths.At(0)); m.pop(n) != 1 {
				t.Fatalf("step %d: the oldest message, of %d bytes, was not taken", i, n)
			}
		}
	}
	if want := 40*41/2 - 20*21/2; m.lengths.Len() != 20 || m.bytes != want || *m.lengths.At(0) != 21 {
		t.Errorf("%d messages of %d bytes, the oldest of %d; want 20 of %d, 21", m.lengths.Len(), m.bytes, *m.lengths.At(0), want)
	}
}
