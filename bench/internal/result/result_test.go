package result

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
)

func sample() *Run {
	return &Run{
		Environment: Environment{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Go: "go1.26", Cores: [2]int{0, 1}},
		Points: []*Point{
			{Name: "goodput/udp/WRITE/1MiB/1024", Spec: harness.Spec{Kind: Stream, Link: "udp", Op: "WRITE", Size: 1 << 20, PMTU: 1024, Duration: time.Second},
				Rounds: []harness.Measure{{Seconds: 1, Bytes: 1e9}, {Seconds: 1, Bytes: 3e9}, {Seconds: 1, Bytes: 2e9}}},
			{Name: "blast/udp", Spec: harness.Spec{Kind: Blast, Link: "udp", Size: 1024, PMTU: 1024}, Errors: []string{"failed"}},
			{Name: "latency/tcp", Spec: harness.Spec{Kind: TCPLatency, Link: "tcp"}, Rounds: []harness.Measure{{Latency: &harness.Latency{P50: 20, Quantiles: []float64{1, 2}}}}},
		},
	}
}

func TestSaveLoad(t *testing.T) {
	dir := t.TempDir()
	r := sample()
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r, got) {
		t.Errorf("saved %+v, loaded %+v", r, got)
	}
	// Save removes figures of another run.
	r.Points = r.Points[:2]
	r.Environment.Time = r.Environment.Time.Add(time.Hour)
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "latency.json")); err == nil {
		t.Error("latency.json of the run before is still there")
	}
	other := sample()
	other.Points = other.Points[2:]
	b, _ := os.ReadFile(filepath.Join(dir, "goodput.json"))
	if err := other.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "goodput.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("files of two runs were taken for one")
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("an empty folder was taken for a run")
	}
}

func TestFind(t *testing.T) {
	r := sample()
	p := r.Find(harness.Spec{Kind: Stream, Link: "udp", Op: "WRITE", Size: 1 << 20, PMTU: 1024})
	if p == nil || p.Goodput() != 16e9 {
		t.Errorf("%+v, want the point with the median of 16 Gb/s", p)
	}
	for _, s := range []harness.Spec{
		{Kind: Stream, Link: "udp", Op: "WRITE", Size: 1 << 20, PMTU: 4096},
		{Kind: Stream, Link: "udp", Op: "WRITE", Size: 1 << 20, PMTU: 1024, Loss: 0.1},
		{Kind: Blast, Link: "udp", Size: 1024, PMTU: 1024}, // which has failed
	} {
		if p := r.Find(s); p != nil || p.Goodput() != 0 || p.Rate() != 0 {
			t.Errorf("found %+v for %+v", p, s)
		}
	}
	if got := Values(r, Stream, func(s harness.Spec) int { return s.Size }); !slices.Equal(got, []int{1 << 20}) {
		t.Errorf("sizes %v", got)
	}
}

// MedianRatio gives the same ratio if the machine changes its speed between rounds.
func TestMedianRatio(t *testing.T) {
	value := func(m harness.Measure) float64 { return m.Value }
	point := func(v ...float64) *Point {
		p := &Point{}
		for _, x := range v {
			p.Rounds = append(p.Rounds, harness.Measure{Value: x})
		}
		return p
	}
	for _, tt := range []struct {
		a, b *Point
		want float64
	}{
		{point(9, 4.5, 9.5), point(10, 5, 5), 0.9}, // of the medians: 1.8
		{point(1, 2, 3), point(2), 0.5},
		{point(0, 3), point(1, 1), 3}, // a round that failed
		{point(), point(1), 0},
		{nil, point(1), 0},
		{point(1), nil, 0},
	} {
		if got := tt.a.MedianRatio(tt.b, value); got != tt.want {
			t.Errorf("%v to %v: %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}
