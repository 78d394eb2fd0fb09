package main

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// parallelism is the suffix that go test appends to the name of a benchmark.
var parallelism = regexp.MustCompile(`-\d+$`)

// parseEngine makes points from the output of go test -bench: the time and the allocations per packet of benchmarks that
// report the time per packet.
func parseEngine(out string) (points []*result.Point, err error) {
	byName := make(map[string]*result.Point)
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		m := harness.Measure{Extra: make(map[string]float64)}
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				break
			}
			switch f[i+1] {
			case "ns/packet":
				m.Value = v
			case "ns/op", "allocs/op":
				m.Extra[f[i+1]] = v
			}
		}
		if m.Value == 0 {
			continue
		}
		name := "engine/" + strings.TrimPrefix(parallelism.ReplaceAllString(f[0], ""), "Benchmark")
		p := byName[name]
		if p == nil {
			p = &result.Point{Name: name, Spec: harness.Spec{Kind: result.Engine}}
			byName[name] = p
			points = append(points, p)
		}
		p.Rounds = append(p.Rounds, m)
	}
	if points == nil {
		return nil, errors.New("no benchmark of the engine has reported ns/packet")
	}
	return points, nil
}
