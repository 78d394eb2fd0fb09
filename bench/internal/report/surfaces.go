package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/stats"
)

// surface returns a measurement of the interfaces of Go programs, on a link of this stack or over
// TCP.
func (d *data) surface(link, name string) *result.Point {
	return d.Point("surface/" + link + "/" + name)
}

// requestConnections are the numbers of connections that the targets for requests are about.
var requestConnections = []int{1, 16, 256}

func kilo(v float64) string { return fmt.Sprintf("%.1f k/s", v/1e3) }

// processorOf returns the processor time of both ends for each message, in µs.
func processorOf(m harness.Measure) float64 {
	return 1e6 * stats.Ratio(m.Processor, float64(m.Handled))
}

// surfaceTargets adds the targets for the interfaces of Go programs, each compared with the same
// program over TCP.
func surfaceTargets(add func(target), links func(what string, least, aim float64, measure func(d *data, link string) (float64, string))) {
	compare := func(name string, format func(float64) string, figure func(harness.Measure) float64) func(d *data, link string) (float64, string) {
		return func(d *data, link string) (float64, string) {
			return ratio(format, figure, d.surface(link, name), d.surface("tcp", name))
		}
	}
	links("rsocket stream, %s, to net.Conn TCP", 1.5, 2, compare("stream", gbit, harness.Measure.Goodput))
	links("rsocket, 64 B and back, %s, to net.Conn TCP", 0.25, 0.2, compare("trips", micros, latencyOf(p50)))
	overUDP := func(what, name string, least, aim float64) {
		measure := compare(name, kilo, harness.Measure.Rate)
		add(target{what: what, least: least, aim: aim, measure: func(d *data) (float64, string) { return measure(d, "udp") }})
	}
	for _, n := range requestConnections {
		overUDP(fmt.Sprintf("message, requests of 1 KiB over %d connections, udp, to net.Conn TCP", n), fmt.Sprintf("requests/%d", n), 2, 4)
	}
	overUDP("web server over rsocket, 16 connections, udp, to net/http over TCP", "web/16", 1, 1.5)
	add(target{what: "100 000 idle connections, udp: memory of each", least: 8 << 10, aim: 2 << 10, format: octets,
		measure: func(d *data) (float64, string) { return d.idle(result.IdleTrips, manyIdle).Median(value), "" }})
	add(target{what: "100 000 idle connections, udp: SENDs of a busy one, to one alone", least: 0.9, aim: 1, measure: func(d *data) (float64, string) {
		return ratio(mega, harness.Measure.Rate, d.idle(result.IdleStream, manyIdle), d.idle(result.IdleStream, 0))
	}})
	add(target{what: "100 000 idle connections, udp: 64 B and back of a busy one, to one alone", least: 1.1, aim: 1, measure: func(d *data) (float64, string) {
		return latencyRatio(d.idle(result.IdleTrips, manyIdle), d.idle(result.IdleTrips, 0))
	}})
}

// manyIdle is how many idle connections the targets are about.
const manyIdle = 100_000

// idle returns a measurement of a busy queue pair on a device with n idle ones.
func (d *data) idle(kind string, n int) *result.Point {
	s := harness.Spec{Kind: kind, Link: "udp", Wait: true, Idle: n}
	if kind == result.IdleStream {
		s.Op = "SEND"
	}
	return d.small(s)
}

func (d *data) surfaceTable(w io.Writer) {
	links := append([]string{"tcp"}, d.links...)
	head := []string{""}
	for _, l := range links {
		if l == "tcp" {
			head = append(head, "TCP", "µs")
		} else {
			head = append(head, l, "× TCP", "µs")
		}
	}
	var rows [][]string
	for _, p := range d.Points {
		name, isTCP := strings.CutPrefix(p.Name, "surface/tcp/")
		if !isTCP {
			continue
		}
		what, figure, format := surfaceFigure(p.Spec)
		row := []string{what}
		for _, l := range links {
			q := d.surface(l, name)
			row = append(row, known(q.Median(figure), format))
			if l != "tcp" {
				row = append(row, known(q.MedianRatio(p, figure), two))
			}
			row = append(row, known(q.Median(processorOf), one))
		}
		rows = append(rows, row)
	}
	table(w, head, rows)
}

// surfaceFigure returns the name of a measurement, its figure, and the format of the figure.
func surfaceFigure(s harness.Spec) (what string, figure func(harness.Measure) float64, format func(float64) string) {
	switch s.Kind {
	case result.ConnStream:
		return "rsocket, stream of writes of " + sizeName(s.Size), harness.Measure.Goodput, gbit
	case result.ConnTrips:
		return "rsocket, " + sizeName(s.Size) + " there and back", latencyOf(p50), micros
	case result.Requests:
		return fmt.Sprintf("message, requests of %s, %d connections", sizeName(s.Size), s.QPs), harness.Measure.Rate, kilo
	}
	return fmt.Sprintf("net/http over rsocket, %d connections", s.QPs), harness.Measure.Rate, kilo
}

func (d *data) idleTable(w io.Writer) {
	var rows [][]string
	for _, n := range result.Values(d.Run, result.IdleTrips, func(s harness.Spec) int { return s.Idle }) {
		trips := d.idle(result.IdleTrips, n)
		rows = append(rows, []string{strconv.Itoa(n), known(trips.Median(value), octets), known(d.idle(result.IdleStream, n).Rate()/1e6, three),
			known(quantile(trips, p50), one), known(quantile(trips, p99), one)})
	}
	table(w, []string{"idle connections", "memory of each", "SEND of 64 B, M/s", "64 B and back, p50, µs", "p99"}, rows)
}
