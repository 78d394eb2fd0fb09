package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// ngBlock makes a block of pcapng.
func ngBlock(kind uint32, body ...byte) []byte {
	n := uint32(len(body) + 12)
	b := binary.LittleEndian.AppendUint32(nil, kind)
	b = binary.LittleEndian.AppendUint32(b, n)
	return binary.LittleEndian.AppendUint32(append(b, body...), n)
}

// statistics makes a statistics block: the interface has lost n packets, and the system n more.
func statistics(iface, n byte) []byte {
	body := append([]byte{iface, 0, 0, 0}, make([]byte, 8)...)
	for _, option := range []byte{optIfDrop, optOSDrop} {
		body = append(body, option, 0, 8, 0, n, 0, 0, 0, 0, 0, 0, 0)
	}
	return ngBlock(blockStats, body...)
}

// TestLost: Lost returns the sum of the packets that each interface has lost. Each statistics block of an
// interface counts from the start of the capture.
func TestLost(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, NG, 0)
	for range 2 {
		if _, err := w.AddInterface(Interface{LinkType: Ethernet}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Write(&Record{LinkType: Ethernet, Data: []byte{1, 2, 3, 4}, OrigLen: 4}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		blocks [][]byte
		want   uint64
		bad    bool
	}{
		{nil, 0, false},
		{[][]byte{statistics(0, 3)}, 6, false},
		{[][]byte{statistics(0, 3), statistics(1, 1), statistics(0, 5)}, 12, false},
		{[][]byte{statistics(2, 3)}, 0, true},
		{[][]byte{ngBlock(blockStats, 0, 0, 0, 0)}, 0, true},
	} {
		r, err := NewReader(bytes.NewReader(append(bytes.Clone(file.Bytes()), bytes.Join(tt.blocks, nil)...)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); err != nil || r.Interfaces() != 2 {
			t.Fatalf("%d interfaces, %v", r.Interfaces(), err)
		}
		if _, err := r.Next(); err != io.EOF && !tt.bad || tt.bad && !errors.Is(err, ErrFormat) || r.Lost() != tt.want {
			t.Errorf("lost %d, want %d; error %v", r.Lost(), tt.want, err)
		}
	}
}
