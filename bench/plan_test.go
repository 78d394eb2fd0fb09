package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// The plan has all cases of all comparisons, under different names.
func TestCases(t *testing.T) {
	for name, s := range map[string]scale{"full": full, "quick": quick} {
		cases := s.cases(result.Links)
		seen := make(map[string]bool)
		for _, c := range cases {
			if seen[c.name] {
				t.Errorf("%s: two cases are called %s", name, c.name)
			}
			seen[c.name] = true
			if c.rounds < 1 || c.spec.Duration <= 0 || c.spec.Kind == "" {
				t.Errorf("%s: %+v", name, c)
			}
		}
		for _, want := range []string{"goodput/udp/WRITE/1MiB/1024", "goodput/xdp/READ/1MiB/4096", "goodput/raw/SEND/64B/1024", "contest/xdp/64B/1024", "contest/udp/1MiB/4096",
			"blast/udp/1KiB/1024", "blast/xdp/4KiB/4096", "blast/raw-port/64B/1024", "tcp/offloads/1500", "tcp/plain/4200",
			"latency/xdp/polled", "latency/udp/background", "ping/xdp", "latency/tcp", "scaling/udp/1000", "processes/udp/SEND/64B/8", "processes/udp/WRITE/1MiB/exclusive", "processes/udp/SEND/64B/2-cores", "processes/udp/WRITE/1MiB/2-shards", "busy/goodput/tcp/4-pinned", "busy/latency/polled/0-free", "busy/goodput/background/0-quota of 0.5", "busy/latency/tcp/0-free-8 threads", "surface/tcp/stream", "surface/raw/trips", "surface/udp/requests/256", "surface/udp/web/16", "idle/udp/SEND/0", "loss/udp/WRITE/1%", "loss/raw/WRITE/5%/recovery", "loss/udp/READ/0.1%", "connect/tcp", "memory", "engine",
			"programs/udp/send_bw/64B/perftest", "programs/raw/send_bw/64B/rocectl", "programs/xdp/write_lat/64B/perftest", "programs/udp/mpi_lat/8B/openmpi", "programs/tcp/mpi_bw/1MiB/openmpi"} {
			if !seen[want] {
				t.Errorf("%s: there is no %s", name, want)
			}
		}
	}
	all := full.cases(result.Links)
	for i, c := range all {
		if c.name == "goodput/xdp/WRITE/1MiB/4096" && all[i+1].name != "blast/xdp/4KiB/4096" {
			t.Errorf("after %s comes %s, not the case with which it is compared", c.name, all[i+1].name)
		}
	}
	for _, c := range full.cases([]string{"raw"}) {
		if l := c.spec.Link; l != "" && l != "raw" && l != "tcp" {
			t.Errorf("%s, though only raw was asked for", c.name)
		}
	}
}

// The minimum time of a run must leave room for making ends and queue pairs.
func TestBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		s    scale
		most time.Duration
	}{"full": {full, 493 * time.Second}, "quick": {quick, 35 * time.Second}} {
		sum := time.Duration(0)
		for _, c := range tt.s.cases(result.Links) {
			sum += time.Duration(c.rounds) * (c.spec.Warmup + c.spec.Duration)
		}
		if sum > tt.most {
			t.Errorf("%s: measuring alone takes %v, want at most %v", name, sum, tt.most)
		}
	}
}

func TestChoose(t *testing.T) {
	got := choose(full.cases(result.Links), regexp.MustCompile(`^blast/(raw|udp)/`), 2)
	if len(got) == 0 {
		t.Fatal("nothing")
	}
	for _, c := range got {
		if c.rounds != 2 || !strings.HasPrefix(c.name, "blast/raw/") && !strings.HasPrefix(c.name, "blast/udp/") {
			t.Errorf("%+v", c)
		}
	}
}

// Every case gets its rounds; rounds do not overlap; each has the reverse order of the previous one.
func TestSchedule(t *testing.T) {
	cases := []testCase{{name: "a", rounds: 1}, {name: "b", rounds: 3}, {name: "c", rounds: 2}}
	want := []step{{0, 0}, {1, 0}, {2, 0}, {2, 1}, {1, 1}, {1, 2}}
	if got := schedule(cases); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestParseEngine(t *testing.T) {
	points, err := parseEngine(`goos: linux
BenchmarkEngine/SEND/64-2         	 1000000	       300 ns/op	 213.33 MB/s	       250.0 ns/packet	       0 B/op	       0 allocs/op
BenchmarkEngine/SEND/64-2         	 1000000	       300 ns/op	 213.33 MB/s	       270.0 ns/packet	       0 B/op	       2 allocs/op
BenchmarkEngine/READ/64KiB-2      	    1000	     30000 ns/op	       500.0 ns/packet	       0 B/op	       0 allocs/op
BenchmarkOther-2                  	    1000	     30000 ns/op
ok  	github.com/goroce/roce/qp	1.5s
`)
	if err != nil || len(points) != 2 {
		t.Fatalf("%v, %v", points, err)
	}
	p := points[0]
	value := p.Median(func(m harness.Measure) float64 { return m.Value })
	allocs := p.Median(func(m harness.Measure) float64 { return m.Extra["allocs/op"] })
	if p.Name != "engine/Engine/SEND/64" || p.Spec.Kind != result.Engine || value != 260 || allocs != 1 {
		t.Errorf("%+v: %v ns, %v allocations", p, value, allocs)
	}
	if _, err := parseEngine("PASS\n"); err == nil {
		t.Error("no benchmark, and no error")
	}
}

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"":                   "bench/results",
		"-quick":             "bin/bench",
		"-links raw":         "bin/bench",
		"-run x":             "bin/bench",
		"-render":            "bench/results",
		"-quick -out /tmp/x": "/tmp/x",
	} {
		o, err := parse(strings.Fields(args))
		if err != nil || !strings.HasSuffix(o.out, want) {
			t.Errorf("%q: results in %s, %v; want %s", args, o.out, err, want)
		}
	}
	for _, args := range []string{"-links foo", "-run (", "more", "-rounds x"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
