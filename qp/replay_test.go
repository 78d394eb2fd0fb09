package qp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// replay runs a seed with a capture of everything sent and reports how to run
// it again.
func replay(t *testing.T, with cast, seed uint64) int {
	t.Helper()
	var pcap bytes.Buffer
	n, err := simulate(t, seed, with, func(w *network) { w.tap = captureTo(&pcap, w) })
	if err == nil {
		t.Logf("seed %d passes", seed)
		return n
	}
	file := filepath.Join(failureDir(t), fmt.Sprintf("%s-%d.pcap", t.Name(), seed))
	if werr := os.WriteFile(file, pcap.Bytes(), 0o644); werr != nil {
		t.Error(werr)
	}
	t.Errorf("seed %d: %v\nreplay: go test ./qp -run %s -sim.seed=%d\ncapture of everything sent: %s", seed, err, t.Name(), seed, file)
	return n
}

// captureTo starts a pcap file and returns a function that adds a frame to it, with the time of the simulation.
func captureTo(pcap *bytes.Buffer, w *network) func(b []byte) {
	header := make([]byte, 24)
	binary.LittleEndian.PutUint32(header[0:], 0xA1B23C4D) // nanoseconds
	binary.LittleEndian.PutUint16(header[4:], 2)
	binary.LittleEndian.PutUint16(header[6:], 4)
	binary.LittleEndian.PutUint32(header[16:], 65535)
	binary.LittleEndian.PutUint32(header[20:], 1) // Ethernet
	pcap.Write(header)
	return func(b []byte) {
		var h [16]byte
		binary.LittleEndian.PutUint32(h[0:], uint32(w.now/1e9))
		binary.LittleEndian.PutUint32(h[4:], uint32(w.now%1e9))
		binary.LittleEndian.PutUint32(h[8:], uint32(len(b)))
		binary.LittleEndian.PutUint32(h[12:], uint32(len(b)))
		pcap.Write(h[:])
		pcap.Write(b)
	}
}
