package impair_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/mono"
)

// TestExamples: every rule of every example acts on some packet of some capture of Linux.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/impair/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	captures, err := filepath.Glob("../../testdata/pcaps/*.pcap")
	if err != nil || len(captures) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	index, err := os.ReadFile("../../examples/impair/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if !bytes.Contains(index, []byte("["+filepath.Base(name)+"]")) {
				t.Error("examples/impair/README.md does not name it")
			}
			file, err := impair.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			fired := make([]uint64, len(file.Rules))
			for _, c := range captures {
				for i, n := range replay(t, file, c) {
					fired[i] += n.Fired
				}
			}
			for i, n := range fired {
				if n == 0 {
					t.Errorf("%q, line %d, acted on no packet", file.Rules[i].Name, file.Rules[i].Line)
				}
			}
		})
	}
}

// replay passes the packets of a capture to the rules of a file, twice: the second time they are like retransmissions after all
// acknowledgements were lost.
func replay(t *testing.T, file *impair.File, capture string) []fault.RuleCounter {
	t.Helper()
	e, err := fault.NewEngine(fault.Config{Seed: file.Seed, Rules: file.FaultRules()}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var last mono.Time
	for range 2 {
		last = send(t, e, capture, last)
	}
	return e.RuleCounters()
}

// send passes the packets of a capture to the engine, and returns the time of the last one.
func send(t *testing.T, e *fault.Engine, capture string, start mono.Time) (now mono.Time) {
	t.Helper()
	f, err := os.Open(capture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var a bth.GID // the host that sends first
	var first int64
	var p frame.Packet
	now = start
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return now
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.LinkType != pcap.Ethernet || p.Parse(rec.Data, frame.LayoutEthernet) != nil {
			continue
		}
		if first == 0 {
			a, first = p.Src, rec.Time.UnixNano()
		}
		dir := fault.Rx
		if p.Src == a {
			dir = fault.Tx
		}
		now = max(now, start+mono.Time(rec.Time.UnixNano()-first))
		e.Handle(now, dir, rec.Data, 0)
		for _, d := range []fault.Direction{fault.Tx, fault.Rx} {
			for _, ok := e.Next(now, d); ok; _, ok = e.Next(now, d) {
			}
		}
	}
}
