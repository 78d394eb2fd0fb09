package conform

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
)

// captured returns the packets of a capture as the tap of a tester would record them. The tester has the source address of the
// first packet.
func captured(t *testing.T, name string) (records []pcap.Record) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecorder()
	var p dissect.Packet
	for {
		r, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Direction = pcap.Out
		p.ParseRecord(&r)
		if p.Kind == dissect.RoCE && p.Frame.Src.Addr() == rpingPeerOfCapture {
			r.Direction = pcap.In
		}
		rec.seen(&r)
	}
	records, _ = rec.all()
	return records
}

// The text card of an rping between two rxe does not change. It is judged strictly, so that the departures of rxe are failures with
// ladders. UPDATE=1 writes the golden file again.
func TestGolden(t *testing.T) {
	records := captured(t, "../../../testdata/pcaps/loss_rping.pcap")
	for _, test := range []struct {
		golden string
		strict bool
	}{{"testdata/card.golden", false}, {"testdata/strict.golden", true}} {
		c := &Card{Tester: "rocectl 0.1.0", Began: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Took: 12300 * time.Millisecond, Driver: "raw",
			Peer: Identity{Host: rpingPeerOfCapture.String(), Kind: "rping", MTU: 1024}}
		st := step{section: sectionClean, name: "clean/rping", about: "SENDs both ways; READs and WRITEs of the peer"}
		j, err := judge(records, view{lossy: true, strict: test.strict})
		if err != nil {
			t.Fatal(err)
		}
		res := &StepResult{Section: st.section, Name: st.name, About: st.about, Status: Pass}
		res.fill(j, &st)
		res.counters = []CounterResult{{st.name, "icrc_err", 0, 0}, {st.name, "seq_nak_sent", 3, 4}}
		var h hints
		h.see(records)
		c.Peer.Hints = h.list()
		gone := &StepResult{Section: sectionFaults, Name: "drop-rep/rping", About: "the REP is lost", Status: Fail, Why: []string{errors.New("the peer is gone").Error()},
			Ladder: draw(records, []int{20}, 3)}
		c.Steps = []*StepResult{res, gone, {Section: sectionScripts, Name: "script/rping/server-ping", About: "a whole ping", Status: Unknown, Why: []string{"not run"}}}
		c.summarize()
		var got bytes.Buffer
		if err := c.WriteText(&got); err != nil {
			t.Fatal(err)
		}
		if os.Getenv("UPDATE") == "1" {
			os.MkdirAll("testdata", 0o755)
			os.WriteFile(test.golden, got.Bytes(), 0o644)
		}
		want, err := os.ReadFile(test.golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got.String()); d != "" {
			t.Errorf("%s (-want +got)\n%s", test.golden, d)
		}
		checkForms(t, c)
	}
}
