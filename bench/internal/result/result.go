// Package result is what a run has measured, and how it is kept: one JSON file for
// each group of figures.
package result

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/stats"
)

// The kinds of measurements.
const (
	Stream      = "stream"      // messages of ours, as many as go
	Alternating = "contest"     // READs and WRITEs in alternating slots
	Blast       = "blast"       // packets without protocol, as many as go
	IPerf       = "iperf"       // iperf3 over TCP
	Latency     = "latency"     // a SEND of ours and back
	Ping        = "ping"        // a bare packet and back
	TCPLatency  = "tcp-latency" // some bytes over a net.Conn and back
	Scaling     = "scaling"     // messages of ours over many queue pairs
	Loss        = "loss"        // messages of ours over a link that loses packets
	Connect     = "connect"     // connections of ours
	TCPConnect  = "tcp-connect" // net.Conns
	Memory      = "memory"      // bytes of an idle queue pair of ours
	Engine      = "engine"      // benchmarks of package qp
)

// groups are the files, and what is in them.
var groups = []struct {
	name  string
	kinds []string
}{
	{"goodput", []string{Stream, Alternating, Blast, IPerf}},
	{"latency", []string{Latency, Ping, TCPLatency}},
	{"scaling", []string{Scaling}},
	{"loss", []string{Loss}},
	{"connections", []string{Connect, TCPConnect}},
	{"engine", []string{Engine, Memory}},
}

// SplitWrite is the Op of a stream of WRITEs that leave as messages of one packet
// each.
const SplitWrite = "WRITE-split"

// ReadToWrite is the Op of a contest of READs with WRITEs.
const ReadToWrite = "READ:WRITE"

// Unconnected is the Op of a ping-pong by UDP sockets that are not connected, as those
// of a port with many peers cannot be.
const Unconnected = "unconnected"

// Environment is where and when a run was.
type Environment struct {
	Time   time.Time `json:"time"`
	Commit string    `json:"commit,omitempty"`
	Go     string    `json:"go"`
	Kernel string    `json:"kernel"`
	CPU    string    `json:"cpu"`
	Cores  [2]int    `json:"cores"` // of the two sides
	Quick  bool      `json:"quick,omitempty"`
	Took   float64   `json:"took_seconds"`
	Notes  []string  `json:"notes,omitempty"`
}

// Point is one thing that was measured, some times.
type Point struct {
	Name   string            `json:"name"`
	Spec   harness.Spec      `json:"spec"`
	Rounds []harness.Measure `json:"rounds,omitempty"`
	Errors []string          `json:"errors,omitempty"` // of rounds that failed
}

// Median is that of a figure over all rounds; 0 if there is none.
func (p *Point) Median(f func(harness.Measure) float64) float64 {
	if p == nil {
		return 0
	}
	var v []float64
	for _, m := range p.Rounds {
		v = append(v, f(m))
	}
	return stats.Median(v)
}

// MedianRatio is the median of the rounds' ratios of a figure to that of another point
// that was measured in turn with it; 0 if there is none. What disturbs the machine for
// longer than a round disturbs both.
func (p *Point) MedianRatio(to *Point, f func(harness.Measure) float64) float64 {
	if p == nil || to == nil {
		return 0
	}
	var v []float64
	for i := range min(len(p.Rounds), len(to.Rounds)) {
		if r := stats.Ratio(f(p.Rounds[i]), f(to.Rounds[i])); r > 0 {
			v = append(v, r)
		}
	}
	return stats.Median(v)
}

// Sum is that of a figure over all rounds.
func (p *Point) Sum(f func(harness.Measure) float64) (sum float64) {
	if p == nil {
		return 0
	}
	for _, m := range p.Rounds {
		sum += f(m)
	}
	return sum
}

// Goodput is the median in bits a second, Rate that in messages a second.
func (p *Point) Goodput() float64 { return p.Median(harness.Measure.Goodput) }
func (p *Point) Rate() float64    { return p.Median(harness.Measure.Rate) }

// Run is all that was measured.
type Run struct {
	Environment Environment `json:"environment"`
	Points      []*Point    `json:"points"`
}

// Point finds one by its name; nil if it was not measured.
func (r *Run) Point(name string) *Point {
	for _, p := range r.Points {
		if p.Name == name && len(p.Rounds) > 0 {
			return p
		}
	}
	return nil
}

// Save writes the files of a run into a folder, and removes those of another.
func (r *Run) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, g := range groups {
		part := Run{Environment: r.Environment}
		for _, p := range r.Points {
			if slices.Contains(g.kinds, p.Spec.Kind) {
				part.Points = append(part.Points, p)
			}
		}
		name := filepath.Join(dir, g.name+".json")
		if part.Points == nil {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		b, err := json.MarshalIndent(part, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Load reads what Save has written.
func Load(dir string) (*Run, error) {
	var all Run
	for _, g := range groups {
		b, err := os.ReadFile(filepath.Join(dir, g.name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var part Run
		if err := json.Unmarshal(b, &part); err != nil {
			return nil, fmt.Errorf("%s.json: %w", g.name, err)
		}
		if all.Points != nil && !part.Environment.Time.Equal(all.Environment.Time) {
			return nil, fmt.Errorf("%s.json is of another run than the files before it", g.name)
		}
		all.Environment = part.Environment
		all.Points = append(all.Points, part.Points...)
	}
	if all.Points == nil {
		return nil, fmt.Errorf("there are no results in %s", dir)
	}
	return &all, nil
}

// Find finds what was measured of a kind: the fields that tell points of a kind apart
// must be equal. Nil if there is none.
func (r *Run) Find(s harness.Spec) *Point {
	key := func(s harness.Spec) harness.Spec {
		return harness.Spec{Kind: s.Kind, Link: s.Link, Op: s.Op, Size: s.Size, PMTU: s.PMTU, QPs: s.QPs, Wait: s.Wait, Sleep: s.Sleep, Loss: s.Loss, Port: s.Port}
	}
	for _, p := range r.Points {
		if key(p.Spec) == key(s) && len(p.Rounds) > 0 {
			return p
		}
	}
	return nil
}

// Values lists the different values of a field of the points of a kind, in order.
func Values[T cmp.Ordered](r *Run, kind string, field func(harness.Spec) T) (v []T) {
	for _, p := range r.Points {
		if f := field(p.Spec); p.Spec.Kind == kind && len(p.Rounds) > 0 && !slices.Contains(v, f) {
			v = append(v, f)
		}
	}
	slices.Sort(v)
	return v
}
