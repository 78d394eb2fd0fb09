package capcheck

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
	"github.com/goroce/roce/link/pcap"
)

const pcaps = "../../../testdata/pcaps"

// forged names the forged packets of the captures that show how rxe handles such packets. rxe made all other packets.
var forged = map[string]struct{ bad, malformed, sum []int }{
	"rxe612_run1.pcap":       {bad: []int{1596}, malformed: []int{1590, 1741}, sum: []int{1595}},
	"rxe612_run3_flush.pcap": {bad: []int{90}}, // a FLUSH with the ICRC that rxe computes
}

func TestCapturesOfLinux(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(pcaps, "*.pcap"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures in %s: %v", pcaps, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			r, err := reportOn(file)
			if err != nil {
				t.Fatal(err)
			}
			want := forged[filepath.Base(file)]
			if !slices.Equal(r.BadFrames, want.bad) || !slices.Equal(r.MalformedFrames, want.malformed) || !slices.Equal(r.UDPChecksumWrong, want.sum) {
				t.Errorf("wrong ICRC: %v, want %v; malformed: %v, want %v; wrong UDP checksum: %v, want %v",
					r.BadFrames, want.bad, r.MalformedFrames, want.malformed, r.UDPChecksumWrong, want.sum)
			}
			if r.RoCE == 0 || r.ICRCGood+r.ICRCBad != r.RoCE || r.OK() != (len(want.bad)+len(want.malformed) == 0) {
				t.Errorf("totals do not fit: %+v", r)
			}
		})
	}
}

// TestCapturesOfHosts: captures of tcpdump on a host of this stack show the same as captures on the wire.
func TestCapturesOfHosts(t *testing.T) {
	for _, tt := range []struct {
		file                           string
		frames, packets, supers, split int
		partial                        int
	}{
		{"udp4-client", 19, 25, 2, 8, 19},
		{"udp4-server", 19, 25, 2, 8, 19},
		{"udp6-client", 19, 25, 2, 8, 19},
		{"udp6-server", 19, 25, 2, 8, 19},
		{"any4-client", 19, 21, 2, 4, 19},
		{"raw4-client", 10, 13, 2, 5, 2},
		{"raw4-server", 11, 14, 2, 5, 2},
		{"raw6-client", 9, 12, 2, 5, 2},
		{"raw6-server", 10, 13, 2, 5, 2},
	} {
		r, err := reportOn(filepath.Join(pcaps, "host", tt.file+".pcap"))
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK() || r.ICRCGood != tt.packets || r.RoCE != tt.packets || r.Packets != tt.packets ||
			r.Frames != tt.frames || r.SuperPackets != tt.supers || r.Split != tt.split || r.UDPChecksumPartial != tt.partial {
			t.Errorf("%+v, want %+v", r, tt)
		}
		for _, f := range r.Flows {
			if f.Gaps+f.Missing+f.Late+f.ResponseGaps != 0 {
				t.Errorf("%s: nothing was lost, but: %s", tt.file, f.events())
			}
		}
	}
}

// TestAnyInterface: a packet that passes two interfaces of a host is no retransmission.
func TestAnyInterface(t *testing.T) {
	var b bytes.Buffer
	w := pcap.NewWriter(&b, pcap.Classic, 0)
	if _, err := w.AddInterface(pcap.Interface{LinkType: pcap.LinuxSLL2}); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(filepath.Join(pcaps, "host", "any4-client.pcap"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	pr, err := pcap.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := pr.Next(); err == nil; rec, err = pr.Next() {
		w.Write(&rec)
		rec.Data[7]++ // the last byte of the interface's number
		w.Write(&rec)
	}
	w.Flush()
	r := New("any")
	if err := dissect.Read(&b, func(p *dissect.Packet) error { r.Add(p); return nil }); err != nil {
		t.Fatal(err)
	}
	r.Done()
	var text strings.Builder
	r.WriteText(&text)
	if len(r.Flows) != 8 || r.RoCE != 42 || strings.Contains(text.String(), "retransmitted") || !strings.Contains(text.String(), "  if 3  -") {
		t.Error(text.String())
	}
}

// TestFlowsBounded: a capture with many queue pairs takes bounded memory.
func TestFlowsBounded(t *testing.T) {
	b := []byte{0x11, 0, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	r := New("")
	p := dissect.Packet{Kind: dissect.RoCE, ICRCOK: true}
	for i := range maxFlows + 5 {
		b[5], b[6], b[7] = byte(i>>16), byte(i>>8), byte(i)
		if err := p.Frame.Packet.Parse(b); err != nil {
			t.Fatal(err)
		}
		r.Add(&p)
	}
	if r.Done(); len(r.Flows) != maxFlows || r.Unfollowed != 5 {
		t.Errorf("%d flows, %d packets of others", len(r.Flows), r.Unfollowed)
	}
}

// TestFlushQuirk: the ICRC that rxe computes for a FLUSH counts as right if the caller asks for that.
func TestFlushQuirk(t *testing.T) {
	r := New(filepath.Join(pcaps, "rxe612_run3_flush.pcap"))
	r.FlushQuirk = true
	if err := r.Read(t.Context()); err != nil || !r.OK() || r.ICRCGood != r.RoCE {
		t.Errorf("%+v, %v", r, err)
	}
	r = New(filepath.Join(pcaps, "rxe612_run1.pcap"))
	r.FlushQuirk = true
	if err := r.Read(t.Context()); err != nil || r.ICRCBad != 1 {
		t.Errorf("another wrong ICRC: %+v, %v", r, err)
	}
}

// total returns the sums of the counts of all flows of a capture.
func total(t *testing.T, file string) (sum Flow) {
	t.Helper()
	r, err := reportOn(filepath.Join(pcaps, file))
	if err != nil {
		t.Fatal(err)
	}
	sum.NAKs = map[string]int{}
	for _, f := range r.Flows {
		sum.Retransmitted += f.Retransmitted
		sum.Gaps += f.Gaps
		sum.Late += f.Late
		sum.Missing += f.Missing
		sum.ResponseGaps += f.ResponseGaps
		sum.RNRs += f.RNRs
		for k, n := range f.NAKs {
			sum.NAKs[k] += n
		}
	}
	return sum
}

func TestFlows(t *testing.T) {
	t.Run("clean", func(t *testing.T) {
		for _, file := range []string{
			"rping.pcap", "rping6.pcap", "rc_pingpong.pcap", "uc_pingpong.pcap", "srq_pingpong.pcap", "ucmatose.pcap",
			"rdma_client.pcap", "rstream.pcap", "riostream.pcap", "send_bw.pcap", "write_bw.pcap", "read_bw.pcap",
			"atomic_cs.pcap", "atomic_fa.pcap",
		} {
			f := total(t, file)
			if f.Retransmitted+f.Gaps+f.Late+f.Missing+f.ResponseGaps+f.RNRs != 0 || len(f.NAKs) != 0 {
				t.Errorf("%s: nothing was lost, but: %s", file, f.events())
			}
		}
	})
	t.Run("loss", func(t *testing.T) {
		// This was captured on the client. A lost packet of the server shows as a gap that is filled later, a lost
		// packet of the client as a retransmission.
		f := total(t, "loss_rping.pcap")
		if f.Gaps != 4 || f.Late != 4 || f.Missing != 0 || f.Retransmitted != 14 {
			t.Errorf("loss_rping: %s", f.events())
		}
		if want := map[string]int{"NAK sequence error": 4}; !maps.Equal(f.NAKs, want) {
			t.Errorf("loss_rping: NAKs %v, want %v", f.NAKs, want)
		}
	})
	t.Run("NAKs", func(t *testing.T) {
		f := total(t, "rxe612_run1.pcap")
		want := map[string]int{"NAK invalid request": 5, "NAK remote access error": 3, "NAK remote operational error": 1, "NAK sequence error": 5}
		if !maps.Equal(f.NAKs, want) || f.RNRs != 7 {
			t.Errorf("rxe612_run1: %d RNR NAKs, NAKs %v, want %v", f.RNRs, f.NAKs, want)
		}
	})
}

func TestWriteText(t *testing.T) {
	for _, tt := range []struct {
		file string
		want []string
	}{
		{"rping.pcap", []string{"rping.pcap: ok, 86 packets, 85 RoCE, ICRC 85 good 0 bad\n", "10.77.0.3 > 10.77.0.2  qpn 0x18  RC  40 packets  15160 bytes  -\n"}},
		{"rxe612_run1.pcap", []string{"rxe612_run1.pcap: BAD, ", "wrong ICRC: frame 1596\n", "malformed: frame 1590, 1741\n", "wrong UDP checksum, but right ICRC: frame 1595\n"}},
	} {
		r, err := reportOn(filepath.Join(pcaps, tt.file))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", tt.file, want, b.String())
			}
		}
	}
}

func TestList(t *testing.T) {
	if got := list([]int{1, 2, 3}); got != "1, 2, 3" {
		t.Errorf("list = %q", got)
	}
	if got := list(make([]int, 50)); !strings.HasSuffix(got, "0, and 30 more") {
		t.Errorf("list of 50 = %q", got)
	}
}

func TestDrawing(t *testing.T) {
	d := NewDrawing(&dissect.Selection{From: 7, To: 10})
	if err := dissect.ReadFile(t.Context(), filepath.Join(pcaps, "rping.pcap"), d.Add); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := ladder.Draw(&b, d.Steps); err != nil {
		t.Fatal(err)
	}
	want := []string{"|-- READ_REQUEST qpn 0x18 psn 0x13c4d1 A", "|<-- READ_RESPONSE_FIRST", "|<-- READ_RESPONSE_MIDDLE", "|<-- READ_RESPONSE_LAST"}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 1+len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	for i, w := range want {
		if !strings.Contains(lines[i+1], w) {
			t.Errorf("line %d is %q, want %q", i+1, lines[i+1], w)
		}
	}
}

func TestDrawingNotes(t *testing.T) {
	d := NewDrawing(&dissect.Selection{Limit: 100})
	if err := dissect.ReadFile(t.Context(), filepath.Join(pcaps, "loss_rping.pcap"), d.Add); err != nil {
		t.Fatal(err)
	}
	notes := map[string]int{}
	for _, s := range d.Steps {
		notes[s.Note]++
	}
	if len(d.Steps) != 100 || d.Left != 315 {
		t.Errorf("%d steps, %d left, want 100 and 315", len(d.Steps), d.Left)
	}
	if notes["again"] == 0 {
		t.Errorf("no retransmission is marked: %v", notes)
	}
}

// reportOn reads a capture and reports on it.
func reportOn(name string) (*Report, error) {
	r := New(name)
	return r, r.Read(context.Background())
}
