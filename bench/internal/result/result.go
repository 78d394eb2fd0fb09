// Package result has the results of a run and their files: one JSON file for each group of figures.
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
	Stream      = "stream"      // a stream of our messages
	Alternating = "contest"     // READs and WRITEs in alternating slots
	Blast       = "blast"       // a stream of packets without protocol
	IPerf       = "iperf"       // iperf3 over TCP
	Latency     = "latency"     // one of our SENDs and one back
	Ping        = "ping"        // a bare packet and one back
	TCPLatency  = "tcp-latency" // some bytes over a net.Conn and back
	Scaling     = "scaling"     // a stream over many queue pairs
	Processes   = "processes"   // a stream of each of several processes on one interface
	Loss        = "loss"        // a stream over a link that loses packets
	Connect     = "connect"     // our connections
	TCPConnect  = "tcp-connect" // net.Conns
	Memory      = "memory"      // of one of our idle queue pairs
	Engine      = "engine"      // benchmarks of package qp
	Programs    = "programs"    // programs written for libibverbs, and rocectl's
	Busy        = "busy"        // a stream of our messages, or of TCP's bytes, beside programs that compute
	ConnStream  = "conn-stream" // a stream over a net.Conn: an rsocket's, or TCP's
	ConnTrips   = "conn-trips"  // some bytes over a net.Conn and back
	Requests    = "requests"    // requests and answers over many connections: of package message, or TCP's
	Web         = "web"         // requests to a web server: over rsocket, or over TCP
	IdleStream  = "idle-stream" // a stream of our messages beside idle queue pairs
	IdleTrips   = "idle-trips"  // one of our SENDs and one back beside idle queue pairs
	BusyTrips   = "busy-trips"  // some bytes there and back beside programs that compute, by our SENDs or over a net.Conn
)

// The contenders of Programs.
const (
	ByPerftest = "perftest" // on this stack's libraries
	ByRocectl  = "rocectl"  // perf, with perftest's flags
	ByOpenMPI  = "openmpi"  // over the stack, or over TCP
)

// MPIPrefix is the prefix of the Op of MPI tests: mpi_lat, mpi_bw. Other tests have the names of rocectl perf.
const MPIPrefix = "mpi_"

// Links are the links, in the order of cases and of the report.
var Links = []string{"udp", "xdp", "raw"}

// Sizes of the measurements that have targets.
const (
	SmallSize  = 64
	TargetSize = 1 << 20
)

// InterfaceMTU returns the MTU of an interface for a path MTU.
func InterfaceMTU(pmtu int) int {
	if pmtu > 1024 {
		return 4200
	}
	return 1500
}

// groups lists the files and the kinds in them.
var groups = []struct {
	name  string
	kinds []string
}{
	{"goodput", []string{Stream, Alternating, Blast, IPerf}},
	{"latency", []string{Latency, Ping, TCPLatency}},
	{"scaling", []string{Scaling, Processes, IdleStream, IdleTrips}},
	{"loss", []string{Loss}},
	{"connections", []string{Connect, TCPConnect}},
	{"engine", []string{Engine, Memory}},
	{"programs", []string{Programs}},
	{"busy", []string{Busy, BusyTrips}},
	{"surfaces", []string{ConnStream, ConnTrips, Requests, Web}},
}

// SplitWrite is the Op of a stream of WRITEs that leave as messages of one packet each.
const SplitWrite = "WRITE-split"

// ReadToWrite is the Op of alternating READs and WRITEs.
const ReadToWrite = "READ:WRITE"

// Unconnected is the Op of a ping-pong with unconnected UDP sockets. The socket of a port with many peers is unconnected,
// too.
const Unconnected = "unconnected"

// Environment describes the place and the time of a run.
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

// Point is one measurement with all its rounds.
type Point struct {
	Name   string            `json:"name"`
	Spec   harness.Spec      `json:"spec"`
	Rounds []harness.Measure `json:"rounds,omitempty"`
	Errors []string          `json:"errors,omitempty"` // of rounds that failed
}

// Median returns the median of a figure over all rounds, or 0 if there are none.
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

// MedianRatio returns the median of the ratios of a figure to that of another point in the same
// round, or 0 if there are none. The rounds of the two points alternate, so a disturbance of the
// machine that lasts longer than a round affects both.
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

// Sum returns the sum of a figure over all rounds.
func (p *Point) Sum(f func(harness.Measure) float64) (sum float64) {
	if p == nil {
		return 0
	}
	for _, m := range p.Rounds {
		sum += f(m)
	}
	return sum
}

// Goodput returns the median goodput in bits per second.
func (p *Point) Goodput() float64 { return p.Median(harness.Measure.Goodput) }

// Rate returns the median rate in messages per second.
func (p *Point) Rate() float64 { return p.Median(harness.Measure.Rate) }

// Run has all measurements of a run.
type Run struct {
	Environment Environment `json:"environment"`
	Points      []*Point    `json:"points"`
}

// Point returns the point with a name, or nil if it was not measured.
func (r *Run) Point(name string) *Point {
	for _, p := range r.Points {
		if p.Name == name && len(p.Rounds) > 0 {
			return p
		}
	}
	return nil
}

// Save writes the files of a run to a folder. It removes files of another run that it does not replace.
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

// Load reads the files that Save has written.
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

// Find returns the point whose Spec equals s, or nil if there is none. It ignores fields in which points of one kind do
// not differ.
func (r *Run) Find(s harness.Spec) *Point {
	key := func(s harness.Spec) harness.Spec {
		return harness.Spec{Kind: s.Kind, Link: s.Link, Op: s.Op, Size: s.Size, PMTU: s.PMTU, QPs: s.QPs, Wait: s.Wait, Sleep: s.Sleep, Background: s.Background, Idle: s.Idle, Loss: s.Loss, Recovery: s.Recovery, Port: s.Port,
			Processes: s.Processes, Shared: s.Shared, Apart: s.Apart, Shards: s.Shards, By: s.By}
	}
	for _, p := range r.Points {
		if key(p.Spec) == key(s) && len(p.Rounds) > 0 {
			return p
		}
	}
	return nil
}

// Values returns the values of a field of the points of a kind, sorted and without duplicates.
func Values[T cmp.Ordered](r *Run, kind string, field func(harness.Spec) T) (v []T) {
	for _, p := range r.Points {
		if f := field(p.Spec); p.Spec.Kind == kind && len(p.Rounds) > 0 && !slices.Contains(v, f) {
			v = append(v, f)
		}
	}
	slices.Sort(v)
	return v
}
