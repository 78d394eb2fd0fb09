package top

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/goroce/roce/internal/tools/capcheck"
)

// captured is the source of a capture of the test data.
func captured(t *testing.T, name string, interval time.Duration) *Capture {
	t.Helper()
	f, err := os.Open("../../../testdata/pcaps/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return NewCapture(t.Context(), name, f, interval)
}

// The last sample of a capture has the same sums as "rocectl pcap check".
func TestCapture(t *testing.T) {
	for _, name := range []string{"loss_rping", "loss_atomic", "read_bw", "rping6", "rstream", "uc_pingpong", "send_bw_ud"} {
		want := capcheck.New("../../../testdata/pcaps/" + name + ".pcap")
		if err := want.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		var sum Counts
		for _, f := range want.Flows {
			sum.Sent += uint64(f.Packets)
			sum.SentBytes += f.Bytes
			sum.Retransmitted += uint64(f.Retransmitted + f.Late)
			sum.NAKs += naks(f)
			sum.RNRs += uint64(f.RNRs)
		}
		src := captured(t, name, 200*time.Millisecond)
		var last Sample
		samples := 0
		for {
			s, err := src.Sample(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if samples > 0 && s.Time.Sub(last.Time) <= 0 {
				t.Errorf("%s: %v after %v", name, s.Time, last.Time)
			}
			last = s
			samples++
		}
		var got Counts
		for _, c := range last.Connections {
			got.Sent += c.Sent + c.Received
			got.SentBytes += c.SentBytes + c.ReceivedBytes
			got.Retransmitted += c.Retransmitted
			got.NAKs += c.NAKs
			got.RNRs += c.RNRs
		}
		if got != sum || samples == 0 {
			t.Errorf("%s: %+v in %d samples, want %+v", name, got, samples, sum)
		}
	}
}

// A connection with losses is in state "repeating" while it sends packets again, and both its ends are known.
func TestCaptureStates(t *testing.T) {
	var out bytes.Buffer
	if err := Stream(t.Context(), captured(t, "loss_rping", time.Second), Options{Interval: time.Second}, PrintJSON(&out, "x")); err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	for dec := json.NewDecoder(&out); dec.More(); {
		var s struct {
			Connections []struct {
				Type, State string
				Local, Peer End
				RTT         float64 `json:"rtt_us"`
				Total       Counts
				Rates       Rates `json:"per_second"`
			}
		}
		if err := dec.Decode(&s); err != nil {
			t.Fatal(err)
		}
		for _, c := range s.Connections {
			if c.Type != "RC" {
				continue
			}
			states[c.State]++
			if c.Local.QPN == 0 || c.Peer.QPN == 0 || c.RTT <= 0 {
				t.Errorf("%+v", c)
			}
			if c.State == "repeating" && c.Rates.Retransmitted == 0 {
				t.Errorf("nothing is sent again: %+v", c)
			}
		}
	}
	if states["new"] != 1 || states["repeating"] < 2 || states["active"] < 1 {
		t.Errorf("states %v", states)
	}
}

func TestStateOf(t *testing.T) {
	before := Counts{Sent: 5}
	for want, c := range map[string]Connection{
		"idle":      {Counts: Counts{Sent: 5}},
		"waiting":   {Counts: Counts{Sent: 5}, InFlight: 1},
		"active":    {Counts: Counts{Sent: 5, Received: 1}},
		"refused":   {Counts: Counts{Sent: 6, NAKs: 1}},
		"repeating": {Counts: Counts{Sent: 6, NAKs: 1, Retransmitted: 1}},
		"not ready": {Counts: Counts{Sent: 6, Retransmitted: 1, RNRs: 1}},
	} {
		if got := stateOf(&c, &before, true); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A file that is no capture, or that is damaged, ends the samples with an error.
func TestBadCapture(t *testing.T) {
	src := NewCapture(t.Context(), "x", bytes.NewReader([]byte("no capture at all")), time.Second)
	if _, err := src.Sample(t.Context()); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	whole, err := os.ReadFile("../../../testdata/pcaps/rping.pcap")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = Stream(t.Context(), NewCapture(t.Context(), "x", bytes.NewReader(whole[:1500]), time.Second), Options{Interval: time.Second}, func(*Sample, []Row) error {
		n++
		return nil
	})
	if err == nil || n == 0 {
		t.Errorf("%d samples, %v", n, err)
	}
}
