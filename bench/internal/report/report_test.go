package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// point makes a point with rounds of the given Gb/s.
func point(name string, s harness.Spec, gbits ...float64) *result.Point {
	p := &result.Point{Name: name, Spec: s}
	for _, g := range gbits {
		p.Rounds = append(p.Rounds, harness.Measure{Seconds: 1, Bytes: uint64(g * 1e9 / 8), Messages: uint64(g * 1e6), Packets: 1e6})
	}
	return p
}

func latency(name string, s harness.Spec, p50 float64) *result.Point {
	l := &harness.Latency{P50: p50, P99: 2 * p50, P999: 3 * p50}
	for i := range harness.Quantiles {
		l.Quantiles = append(l.Quantiles, p50*float64(i+1)/6)
	}
	return &result.Point{Name: name, Spec: s, Rounds: []harness.Measure{{Seconds: 1, Latency: l}}}
}

// sample returns a run with good results of udp, bad results of raw, and none of xdp.
func sample() *result.Run {
	r := &result.Run{Environment: result.Environment{Time: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), CPU: "a | b", Notes: []string{"link xdp is not in this build"}}}
	add := func(p *result.Point) { r.Points = append(r.Points, p) }
	for _, pmtu := range []int{1024, 4096} {
		for _, size := range []int{64, 1 << 20} {
			add(point("", harness.Spec{Kind: result.Stream, Link: "udp", Op: "SEND", Size: size, PMTU: pmtu}, 4, 9, 5))
			add(point("", harness.Spec{Kind: result.Stream, Link: "udp", Op: "WRITE", Size: size, PMTU: pmtu}, 19, 20, 21))
			add(point("", harness.Spec{Kind: result.Stream, Link: "udp", Op: "READ", Size: size, PMTU: pmtu}, 18, 20, 19))
			add(point("", harness.Spec{Kind: result.Stream, Link: "raw", Op: "WRITE", Size: size, PMTU: pmtu}, 10))
			add(point("", harness.Spec{Kind: result.Stream, Link: "raw", Op: "READ", Size: size, PMTU: pmtu}, 2))
		}
		for link, ratios := range map[string][]float64{"udp": {0.8, 0.92, 0.95}, "raw": {0.2}} {
			p := &result.Point{Spec: harness.Spec{Kind: result.Alternating, Link: link, Op: result.ReadToWrite, Size: 1 << 20, PMTU: pmtu}}
			for _, v := range ratios {
				p.Rounds = append(p.Rounds, harness.Measure{Value: v, Extra: map[string]float64{"READ": 1000 * v, "WRITE": 1000, "both": v / 2}})
			}
			add(p)
		}
		add(point("", harness.Spec{Kind: result.Blast, Link: "udp", Size: pmtu, PMTU: pmtu}, 25, 25, 25))
	}
	add(point("", harness.Spec{Kind: result.IPerf, Link: "tcp", Op: "offloads", PMTU: 1500}, 40, 40, 40))
	add(latency("", harness.Spec{Kind: result.Latency, Link: "udp", Size: 64, PMTU: 1024}, 6))
	add(latency("", harness.Spec{Kind: result.Latency, Link: "udp", Size: 64, PMTU: 1024, Wait: true}, 30))
	add(latency("", harness.Spec{Kind: result.Ping, Link: "udp", Size: 64, PMTU: 1024}, 2))
	add(latency("", harness.Spec{Kind: result.Ping, Link: "udp", Op: result.Unconnected, Size: 64, PMTU: 1024}, 5))
	add(latency("", harness.Spec{Kind: result.TCPLatency, Link: "tcp", Size: 64, PMTU: 1024}, 20))
	for _, n := range []int{1, 16, 10_000} {
		p := point("", harness.Spec{Kind: result.Scaling, Link: "udp", Op: "SEND", Size: 64, PMTU: 1024, QPs: n}, 4)
		if n > 1 {
			p.Rounds[0].Value, p.Rounds[0].Extra = 0.94, map[string]float64{"one": 4e6}
		}
		add(p)
	}
	for _, loss := range []float64{0, 0.01} {
		add(point("", harness.Spec{Kind: result.Loss, Link: "udp", Op: "WRITE", Size: 1 << 20, PMTU: 4096, Loss: loss}, 10-900*loss))
		add(point("", harness.Spec{Kind: result.Loss, Link: "udp", Op: "WRITE", Size: 1 << 20, PMTU: 4096, Loss: loss, Recovery: true}, 10-100*loss))
	}
	program := func(link, op, by string, size int) harness.Spec {
		return harness.Spec{Kind: result.Programs, Link: link, Op: op, Size: size, PMTU: 4096, By: by}
	}
	add(point("", program("udp", "send_bw", result.ByPerftest, 64), 0.8))
	add(point("", program("udp", "send_bw", result.ByRocectl, 64), 1))
	add(latency("", program("udp", "send_lat", result.ByPerftest, 64), 11))
	add(latency("", program("udp", "send_lat", result.ByRocectl, 64), 10))
	add(latency("", program("udp", "write_lat", result.ByPerftest, 64), 20))
	add(latency("", program("udp", "mpi_lat", result.ByOpenMPI, 8), 15))
	add(latency("", program("tcp", "mpi_lat", result.ByOpenMPI, 8), 60))
	for mode, g := range map[string]float64{"tcp": 5, "polled": 4, "background": 2} {
		link := map[bool]string{true: "tcp", false: "udp"}[mode == "tcp"]
		add(point("busy/goodput/"+mode+"/4-pinned", harness.Spec{Kind: result.Busy, Link: link, Loops: 4}, g))
		add(latency("busy/latency/"+mode+"/4-pinned", harness.Spec{Kind: result.BusyTrips, Link: link, Loops: 4}, 10*g))
	}
	add(&result.Point{Name: "memory", Spec: harness.Spec{Kind: result.Memory, QPs: 100}, Rounds: []harness.Measure{{Value: 4096}}})
	add(&result.Point{Name: "engine/EngineAlone/SEND", Spec: harness.Spec{Kind: result.Engine}, Rounds: []harness.Measure{{Value: 90}}})
	add(&result.Point{Name: "ping/raw", Spec: harness.Spec{Kind: result.Ping, Link: "raw"}, Errors: []string{"it broke"}})
	return r
}

func TestTargets(t *testing.T) {
	d := newData(sample(), nil)
	got := make(map[string]string)
	for _, target := range targets() {
		v, _ := target.measure(d)
		if _, twice := got[target.what]; twice {
			t.Errorf("two targets are %q", target.what)
		}
		got[target.what] = target.verdict(v)
	}
	for what, want := range map[string]string{
		"WRITE 1 MiB, udp, PMTU 1024, to bare UDP GSO":                             "**aim**",
		"WRITE 1 MiB, udp, PMTU 1024, to iperf3 TCP with offloads":                 "missed by 17 %",
		"WRITE 1 MiB, udp, PMTU 4096, to iperf3 TCP with offloads":                 "not measured",
		"SEND 64 B, udp, one queue pair":                                           "reached",
		"WRITE 1 MiB, xdp, PMTU 1024, to bare AF_XDP":                              "not measured",
		"READ to WRITE, udp, 1 MiB, the worse of both PMTUs":                       "reached",
		"READ to WRITE, raw, the worst of all sizes":                               "missed by 78 %",
		"SEND 64 B and back, udp, polled, to bare packets, not connected":          "**aim**",
		"SEND 64 B and back, udp, background, to net.Conn TCP":                     "missed by 50 %",
		"10 000 queue pairs to one, udp":                                           "reached",
		"engine alone, a packet":                                                   "reached",
		"ib_send_bw, 64 B, udp, to rocectl perf":                                   "missed by 11 %",
		"ib_send_lat, 64 B, udp, to rocectl perf":                                  "reached",
		"ib_send_lat, 64 B, raw, to rocectl perf":                                  "not measured",
		"ib_write_lat to ib_send_lat, udp, a core an end":                          "missed by 21 %",
		"Open MPI, 8 B and back, UCX on our libraries over udp, to TCP":            "**aim**",
		"busy machine, 64 KiB, background, to net.Conn TCP, the worst":             "missed by 43 %",
		"busy machine, 64 KiB, polled, to net.Conn TCP, the worst":                 "reached",
		"busy machine, 64 B and back, p50, polled, to net.Conn TCP, the worst":     "reached",
		"busy machine, 64 B and back, p99, background, to net.Conn TCP, the worst": "**aim**",
		"busy machine, 64 B and back, p99, polling, to net.Conn TCP, the worst":    "not measured",
		"allocations a packet, all streams":                                        "**aim**",
		"memory of an idle RC queue pair, default sizes":                           "reached",
		"WRITE 1 MiB, udp, 1 % loss, to none":                                      "missed by 67 %",
		"WRITE 1 MiB, udp, recovery, 1 % loss, to none":                            "reached",
		"READ 1 MiB, udp, recovery, 0.1 % loss, to none":                           "not measured",
	} {
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
	}
	nothing := newData(&result.Run{}, nil)
	for _, target := range targets() {
		if v, _ := target.measure(nothing); target.verdict(v) != "not measured" {
			t.Errorf("%s of nothing: %v, %s", target.what, v, target.verdict(v))
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "goodput-2048.svg") // of a run before
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, sample()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("a plot of another run is still there")
	}
	b, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{
		"| WRITE 1 MiB | 20.00 | 0.50 | 0.80 | 10.00 | 0.25 | – |", // the median; to TCP; to the bare link
		"| SEND 1 MiB | 5.00 |",
		"| SEND over udp, background | 30.0 | 60.0 | 90.0 | 1.50 |",
		"| 10000 | 4.000 | 0.94 | – | – |",
		"| 64 KiB, Gb/s, 4, pinned | 5.00 | 2.00 (0.40) | – (–) | 4.00 (0.80) |",
		"| 64 B there and back, µs, p99, 4, pinned | 100.0 | 40.0 (0.40) | – (–) | 80.0 (0.80) |",
		"| udp, WRITE, 1 % | 1.00 | 0.10 | 0.00 % | 9.00 | 0.90 | 0.00 % |",
		"| 0.92 (0.46) |", // READ to WRITE one way, and both
		"takes 4096 B of heap",
		"- ping/raw: it broke",
		"- link xdp is not in this build",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q", want)
		}
	}
	for _, name := range []string{"goodput-1024.svg", "goodput-4096.svg", "messages.svg", "latency.svg", "scaling.svg"} {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.HasPrefix(string(svg), "<svg ") {
			t.Errorf("%s: %.20q, %v", name, svg, err)
		}
		if !strings.Contains(text, "]("+name+")") {
			t.Errorf("%s is not shown", name)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| ") && strings.Contains(line, "NaN") {
			t.Errorf("%q", line)
		}
	}
	// A run without results has a report, too.
	if err := Write(dir, &result.Run{Points: []*result.Point{{Name: "x"}}}); err != nil {
		t.Error(err)
	}
}
