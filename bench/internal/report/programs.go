package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// program returns a test of perftest or of MPI with one contender.
func (d *data) program(link, op string, size int, by string) *result.Point {
	return d.Find(harness.Spec{Kind: result.Programs, Link: link, Op: op, Size: size, PMTU: 4096, By: by})
}

// programFigure is what a test of programs measures: bits or messages per second, or a time.
type programFigure struct {
	of     func(harness.Measure) float64
	format func(float64) string
}

func figureOf(op string, size int) programFigure {
	switch {
	case strings.HasSuffix(op, "_lat"):
		return programFigure{latencyOf(p50), micros}
	case size < 1<<10:
		return programFigure{harness.Measure.Rate, func(v float64) string { return fmt.Sprintf("%.3f M/s", v/1e6) }}
	}
	return programFigure{harness.Measure.Goodput, gbit}
}

// ratio returns the median of the rounds' ratios of two tests that measure the same.
func (f programFigure) ratio(a, b *result.Point) (float64, string) {
	return ratio(f.format, f.of, a, b)
}

// programTargets adds the targets for programs on our libraries, compared with rocectl perf and
// with TCP.
func programTargets(links func(what string, least, aim float64, measure func(d *data, link string) (float64, string))) {
	for _, t := range []struct {
		op         string
		size       int
		least, aim float64
	}{{"send_bw", result.SmallSize, 0.9, 1}, {"write_bw", 64 << 10, 0.9, 1}, {"send_lat", result.SmallSize, 1.15, 1}, {"read_lat", result.SmallSize, 1.15, 1}} {
		links(fmt.Sprintf("ib_%s, %s, %%s, to rocectl perf", t.op, sizeName(t.size)), t.least, t.aim, func(d *data, link string) (float64, string) {
			return figureOf(t.op, t.size).ratio(d.program(link, t.op, t.size, result.ByPerftest), d.program(link, t.op, t.size, result.ByRocectl))
		})
	}
	links("ib_write_lat to ib_send_lat, %s, a core an end", 1.5, 1.1, func(d *data, link string) (float64, string) {
		return figureOf("write_lat", result.SmallSize).ratio(d.program(link, "write_lat", result.SmallSize, result.ByPerftest), d.program(link, "send_lat", result.SmallSize, result.ByPerftest))
	})
	for _, t := range []struct {
		what, op   string
		size       int
		least, aim float64
	}{{"8 B and back", "lat", 8, 0.5, 0.3}, {"1 MiB", "bw", result.TargetSize, 1, 1.5}} {
		links("Open MPI, "+t.what+", UCX on our libraries over %s, to TCP", t.least, t.aim, func(d *data, link string) (float64, string) {
			op := result.MPIPrefix + t.op
			return figureOf(op, t.size).ratio(d.program(link, op, t.size, result.ByOpenMPI), d.program("tcp", op, t.size, result.ByOpenMPI))
		})
	}
}

// programsTable has a row for each test. The columns after a link have the result of rocectl perf
// or TCP, and the ratio to it.
func (d *data) programsTable(w io.Writer) {
	var rows, mpi [][]string
	tcp := func(p *result.Point) *result.Point { return d.program("tcp", p.Spec.Op, p.Spec.Size, result.ByOpenMPI) }
	seen := make(map[string]bool)
	for _, p := range d.Points {
		s := p.Spec
		name := fmt.Sprintf("%s, %s", s.Op, sizeName(s.Size))
		if s.Kind != result.Programs || len(p.Rounds) == 0 || seen[name] {
			continue
		}
		seen[name] = true
		f := figureOf(s.Op, s.Size)
		cell := func(p *result.Point) string { return known(p.Median(f.of), f.format) }
		if s.By == result.ByOpenMPI {
			row := []string{strings.TrimPrefix(name, result.MPIPrefix), cell(tcp(p))}
			for _, l := range d.links {
				q := d.program(l, s.Op, s.Size, result.ByOpenMPI)
				times, _ := f.ratio(q, tcp(p))
				row = append(row, cell(q), known(times, two))
			}
			mpi = append(mpi, row)
			continue
		}
		row := []string{"ib_" + name}
		for _, l := range d.links {
			ours, native := d.program(l, s.Op, s.Size, result.ByPerftest), d.program(l, s.Op, s.Size, result.ByRocectl)
			times, _ := f.ratio(ours, native)
			row = append(row, cell(ours), cell(native), known(times, two))
		}
		rows = append(rows, row)
	}
	table(w, d.byLinks("", "%s", "rocectl perf", "×"), rows)
	table(w, slices.Insert(d.byLinks("Open MPI", "UCX, %s", "× TCP"), 1, "TCP"), mpi)
}
