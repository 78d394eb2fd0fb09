package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/stats"
)

// busyModes are the ways to drive a device that are compared with TCP on a busy machine, as in the
// names of the points. The last one is a C program on this stack's libibverbs.
var busyModes = []string{"background", "polling", "polled", result.ByPerftest}

// busyPlaces returns the last parts of the names of points of a kind: how many programs compute, and on
// which cores.
func (d *data) busyPlaces(kind string) (places []string) {
	for _, p := range d.Points {
		if name := strings.Split(p.Name, "/"); p.Spec.Kind == kind && p.Spec.Link == "tcp" && len(p.Rounds) > 0 && len(name) == 4 {
			places = append(places, name[3])
		}
	}
	return places
}

// busy returns a point of a kind, of TCP or one of busyModes.
func (d *data) busy(kind, mode, place string) *result.Point {
	return d.Point(fmt.Sprintf("busy/%s/%s/%s", map[string]string{result.Busy: "goodput", result.BusyTrips: "latency"}[kind], mode, place))
}

func p99(l *harness.Latency) float64 { return l.P99 }

func (d *data) busyTable(w io.Writer) {
	var rows [][]string
	add := func(kind, what string, figure func(harness.Measure) float64, format func(float64) string) {
		for _, place := range d.busyPlaces(kind) {
			tcp := d.busy(kind, "tcp", place).Median(figure)
			row := []string{what + ", " + strings.ReplaceAll(place, "-", ", "), known(tcp, format)}
			for _, mode := range busyModes {
				v := d.busy(kind, mode, place).Median(figure)
				row = append(row, known(v, format)+" ("+known(stats.Ratio(v, tcp), two)+")")
			}
			rows = append(rows, row)
		}
	}
	add(result.Busy, "64 KiB, Gb/s", func(m harness.Measure) float64 { return m.Goodput() / 1e9 }, two)
	add(result.BusyTrips, "64 B there and back, µs, p50", latencyOf(p50), one)
	add(result.BusyTrips, "64 B there and back, µs, p99", latencyOf(p99), one)
	table(w, append([]string{"", "net.Conn TCP"}, busyModes...), rows)
}

// busyTargets adds the targets for a busy machine: each is for the worst result of all places.
func busyTargets(add func(target)) {
	for _, mode := range busyModes {
		worst := func(kind string, figure func(harness.Measure) float64, format func(float64) string, less bool) func(d *data) (float64, string) {
			return func(d *data) (worst float64, of string) {
				for _, place := range d.busyPlaces(kind) {
					v, ratio := ratio(format, figure, d.busy(kind, mode, place), d.busy(kind, "tcp", place))
					if v > 0 && (worst == 0 || (v < worst) == less) {
						worst, of = v, ratio+", "+place
					}
				}
				return worst, of
			}
		}
		add(target{what: "busy machine, 64 KiB, " + mode + ", to net.Conn TCP, the worst", least: 0.7, aim: 1,
			measure: worst(result.Busy, harness.Measure.Goodput, gbit, true)})
		add(target{what: "busy machine, 64 B and back, p50, " + mode + ", to net.Conn TCP, the worst", least: 1, aim: 0.5,
			measure: worst(result.BusyTrips, latencyOf(p50), micros, false)})
		add(target{what: "busy machine, 64 B and back, p99, " + mode + ", to net.Conn TCP, the worst", least: 2, aim: 1,
			measure: worst(result.BusyTrips, latencyOf(p99), micros, false)})
	}
}
