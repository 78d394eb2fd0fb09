package frame_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// readPcap returns the frames of a classic Ethernet capture. It is a reader for
// the captures in testdata and no more.
func readPcap(path string) ([][]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) < 24 {
		return nil, fmt.Errorf("%s: no pcap header", path)
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch magic := order.Uint32(b); magic {
	case 0xA1B2C3D4, 0xA1B23C4D:
	case 0xD4C3B2A1, 0x4D3CB2A1:
		order = binary.BigEndian
	default:
		return nil, fmt.Errorf("%s: magic %#x is not that of a classic pcap", path, magic)
	}
	if link := order.Uint32(b[20:]); link != 1 {
		return nil, fmt.Errorf("%s: link type %d, want 1 (Ethernet)", path, link)
	}
	var frames [][]byte
	for b = b[24:]; len(b) > 0; {
		if len(b) < 16 {
			return nil, fmt.Errorf("%s: record %d: cut off", path, len(frames))
		}
		n := int(order.Uint32(b[8:]))
		if whole := int(order.Uint32(b[12:])); whole != n || n > len(b)-16 {
			return nil, fmt.Errorf("%s: record %d: %d of %d bytes", path, len(frames), n, whole)
		}
		frames = append(frames, b[16:16+n])
		b = b[16+n:]
	}
	return frames, nil
}

const pcapDir = "../../testdata/pcaps"

// captures calls f with every capture of testdata.
func captures(t *testing.T, f func(t *testing.T, name string, frames [][]byte)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pcapDir, "*.pcap"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures in %s: %v", pcapDir, err)
	}
	for _, file := range files {
		frames, err := readPcap(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) { f(t, name, frames) })
	}
}
