package selftest

import (
	"bytes"
	"testing"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// FuzzDecode checks that no input makes Decode panic, and that encoding a decoded message and decoding it again gives the
// same message.
func FuzzDecode(f *testing.F) {
	for _, order := range []wire.Order{wire.LittleEndian, wire.BigEndian} {
		m := New(PingTest, FeatureBulkLen)
		m.Order = order
		f.Add(m.Encode())
	}
	f.Add([]byte{0x0d, 0xf0, 0xb0, 0xee})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(m.Encode())
		if err != nil || again.Order != m.Order || again.Type != m.Type || again.Features != m.Features || !bytes.Equal(again.Body, m.Body) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
		// The fields that the services read.
		m.status()
		m.replyBits()
		m.bulkBits()
		m.session(4)
	})
}
