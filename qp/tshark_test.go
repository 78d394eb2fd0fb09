package qp_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// TestTsharkXRC: tshark, which shares no code with us, decodes a simulation of XRC. It finds every packet, with the
// opcode and PSN that we gave it, and none of them malformed. tshark 4.0 does not know the XRCETH.
func TestTsharkXRC(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	type seen struct {
		op  bth.Opcode
		psn bth.PSN
	}
	var want []seen
	var pcap bytes.Buffer
	complete := func() bool {
		for _, op := range []bth.Opcode{bth.XRCSendFirst, bth.XRCSendLast, bth.XRCSendOnly, bth.XRCWriteFirst, bth.XRCReadRequest,
			bth.XRCReadResponseFirst, bth.XRCAck, bth.XRCAtomicAck, bth.XRCFetchAdd} {
			if !slices.ContainsFunc(want, func(s seen) bool { return s.op == op }) {
				return false
			}
		}
		return true
	}
	for seed := uint64(1); !complete(); seed++ {
		if seed > 20 {
			t.Fatal("no simulation has every kind of packet")
		}
		pcap.Reset()
		want = nil
		if _, err := simulate(t, seed, castXRC, func(w *network) {
			tap := captureTo(&pcap, w)
			w.tap = func(b []byte) {
				var p frame.Packet
				if err := p.Parse(b, frame.LayoutEthernet); err != nil {
					t.Fatal(err)
				}
				want = append(want, seen{p.Op, p.PSN()})
				tap(b)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "xrc.pcap")
	if err := os.WriteFile(file, pcap.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var stderr bytes.Buffer
		cmd := exec.Command(tshark, append([]string{"-r", file}, args...)...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("tshark %v: %v\n%s", args, err, stderr.String())
		}
		return strings.TrimSpace(string(out))
	}
	if bad := run("-Y", "_ws.malformed"); bad != "" {
		t.Errorf("malformed packets:\n%s", bad)
	}
	lines := strings.Split(run("-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("tshark sees %d packets, %d were sent", len(lines), len(want))
	}
	for i, l := range lines {
		f := strings.Split(l, "\t")
		op, _ := strconv.Atoi(f[0])
		psn, _ := strconv.Atoi(f[len(f)-1])
		if got := (seen{bth.Opcode(op), bth.PSN(psn)}); got != want[i] {
			t.Fatalf("packet %d: tshark reads %v %v, sent were %v %v", i+1, got.op, got.psn, want[i].op, want[i].psn)
		}
	}
}
