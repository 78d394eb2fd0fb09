package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/roce/link/pcap"
)

const pcaps = "../testdata/pcaps"

// forged has the findings about forged packets in captures: programs sent them to see how rxe reacts. The kernel made all other packets of
// these captures. testdata/pcaps/README.md and docs/rxe-differences.md describe the forged packets.
var forged = map[string][]string{
	"rxe612_run1.pcap": {
		"bth-pkey 1587", "bth-reserved 1588", "bth-version 1590", "bth-pad-bytes 1593", "udp-checksum 1595", "icrc 1596",
		"length-mtu 1605", "length-mtu 1636", "bth-opcode 1741",
	},
	// A SEND inside another one, and WRITEs whose length differs from that in the RETH. rxe refuses them.
	"rxe612_run2_v6_rsocket_cmR.pcap": {"order-message 307", "length-write 340", "length-write 372"},
}

// departuresOf has the departures that captures of rxe must show, because the programs in them provoke these.
var departuresOf = map[string][]string{
	"loss_rping.pcap":        {"rxe-gsi-ackreq", "rxe-migreq", "rxe-read-middle"},
	"rxe612_run1.pcap":       {"rxe-gsi-ackreq", "rxe-migreq", "rxe-read-middle", "rxe-rnr-early", "rxe-rnr-silence"},
	"rxe612_run3_flush.pcap": {"rxe-flush-icrc", "rxe-gsi-ackreq", "rxe-migreq"},
	"rping.pcap":             {"rxe-gsi-ackreq", "rxe-migreq"},
}

// captures returns all captures of the repository.
func captures(t *testing.T) (files []string) {
	t.Helper()
	for _, dir := range []string{"", "host", "lnet"} {
		more, err := filepath.Glob(filepath.Join(pcaps, dir, "*.pcap"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no captures in %s/%s: %v", pcaps, dir, err)
		}
		files = append(files, more...)
	}
	return files
}

// TestCaptures: captures of Linux and of this stack have no findings except about forged packets, and the known departures of rxe
// are recognised.
func TestCaptures(t *testing.T) {
	for _, file := range captures(t) {
		name := filepath.Base(file)
		r, err := Files(t.Context(), []string{file}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Packets == 0 {
			t.Errorf("%s: no packet was judged", name)
		}
		var got, known []string
		for i := range r.Findings {
			f := &r.Findings[i]
			if f.Departure != nil {
				known = append(known, f.Departure.ID)
			} else {
				got = append(got, fmt.Sprint(f.Rule, " ", f.Frames[len(f.Frames)-1]))
			}
		}
		if !slices.Equal(got, forged[name]) {
			t.Errorf("%s: found %v, want %v", name, got, forged[name])
		}
		slices.Sort(known)
		if want := departuresOf[name]; want != nil && !slices.Equal(slices.Compact(known), want) {
			t.Errorf("%s: departures %v, want %v", name, slices.Compact(known), want)
		}
	}
}

// TestCapturesAt: captures have no findings if the host of the capture is known. These captures have all packets from
// the beginning to the end.
func TestCapturesAt(t *testing.T) {
	for _, name := range []string{"atomic_cs", "atomic_fa", "cmtime", "rc_pingpong", "rdma_client", "read_bw", "riostream", "rping", "rping6", "rstream", "send_bw", "uc_pingpong", "ucmatose", "write_bw"} {
		cfg := Config{At: addrs("10.77.0.3", "fd77::3")}
		r, err := Files(t.Context(), []string{filepath.Join(pcaps, name+".pcap")}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if all, _ := unexplained(r); len(all) > 0 {
			t.Errorf("%s: %s", name, strings.Join(all, "\n"))
		}
		if r.nowhere && name != "rping6" {
			t.Errorf("%s was not captured at 10.77.0.3", name)
		}
	}
}

// recorder is a T that keeps the failures.
type recorder struct {
	failures []string
	fatal    bool
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.fatal = true
	panic(r)
}

func TestCapture(t *testing.T) {
	var r recorder
	if Capture(&r, filepath.Join(pcaps, "loss_rping.pcap")); len(r.failures) > 0 {
		t.Errorf("a right capture fails: %v", r.failures)
	}
	Capture(&r, filepath.Join(pcaps, "rxe612_run2_v6_rsocket_cmR.pcap"))
	if len(r.failures) != 3 || !strings.Contains(r.failures[0], "order-message") || !strings.Contains(r.failures[0], "304, 307") {
		t.Errorf("a wrong capture: %v", r.failures)
	}
	defer func() {
		if recover() == nil || !r.fatal {
			t.Error("no failure for a file that does not exist")
		}
	}()
	Capture(&r, "no such file")
}

// TestMerge: captures of one scene at both ends are judged as one capture that has every packet. A packet that both captures have
// counts once.
func TestMerge(t *testing.T) {
	s := rightScene(t)
	var names []string
	for at := range 2 {
		names = append(names, filepath.Join(t.TempDir(), fmt.Sprint(at, ".pcapng")))
		if err := os.WriteFile(names[at], s.capture(at), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Files(t.Context(), names, Config{Directions: true})
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, p := range s.steps {
		if p.lost {
			lost++
		}
	}
	if all, _ := unexplained(r); len(all) > 0 || r.Packets-r.Doubles != len(s.steps) || r.Doubles != len(s.steps)-lost {
		t.Errorf("%d packets, %d of them twice, want %d and %d: %v", r.Packets, r.Doubles, 2*len(s.steps)-lost, len(s.steps)-lost, all)
	}
	f := Frame{1, 7}
	if f.String() != "2:7" {
		t.Errorf("frame 7 of the second file is %v", f)
	}
}

// TestMalformedCaptures: a file that is not a capture gives an error that says so. If a capture is damaged, the packets before the damage
// are judged.
func TestMalformedCaptures(t *testing.T) {
	whole := rightScene(t).capture(active)
	for _, tt := range []struct {
		name    string
		data    []byte
		packets int
		want    error
	}{
		{"empty", nil, 0, pcap.ErrFormat},
		{"text", []byte("this is no capture, but it is long enough to be one"), 0, pcap.ErrFormat},
		{"cut", whole[:len(whole)-30], 1, io.ErrUnexpectedEOF},
	} {
		r, err := Read(bytes.NewReader(tt.data), Config{})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		if r == nil || r.Packets < tt.packets {
			t.Errorf("%s: report %+v", tt.name, r)
		}
	}
	if _, err := Files(context.Background(), []string{"no such file"}, Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v for a file that does not exist", err)
	}
	var unknown *UnknownRuleError
	if _, err := New(Config{Rules: []RuleID{"psn-gab"}}); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "psn-gap") {
		t.Errorf("error %v for a rule that does not exist", err)
	}
}

// TestSelection: only the selected rules are applied.
func TestSelection(t *testing.T) {
	s := rightScene(t)
	s.step("send-first").bits = func(b []byte) { b[8] |= 1 }
	s.step("write-ack").f.AETH.MSN = 1
	for _, tt := range []struct {
		cfg  Config
		want []RuleID
	}{
		{Config{}, []RuleID{headerReserved, msnCount}},
		{Config{Rules: []RuleID{msnCount}}, []RuleID{msnCount}},
		{Config{Ignore: []RuleID{msnCount}}, []RuleID{headerReserved}},
	} {
		var got []RuleID
		tt.cfg.Found = func(f *Finding) { got = append(got, f.Rule) }
		r := s.judge(active, tt.cfg)
		if !slices.Equal(got, tt.want) || len(r.Findings) != len(tt.want) {
			t.Errorf("found %v, want %v", got, tt.want)
		}
	}
}
