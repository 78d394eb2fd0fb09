package report

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/stats"
)

// target is a figure with a value to reach (least), and a better one (aim). If aim is below least,
// lower values are better.
type target struct {
	what       string
	least, aim float64
	format     func(float64) string
	// measure returns the value; 0 means that it is unknown, unless zero is set. of names the two
	// figures whose ratio it is.
	measure func(d *data) (v float64, of string)
	zero    bool // the target is 0
}

const notMeasured = "not measured"

// reached reports whether v is as good as the value want or better.
func (t *target) reached(v, want float64) bool {
	return v == want || (v < want) == t.atMost()
}

func (t *target) atMost() bool { return t.aim < t.least || t.zero }

// verdict compares a value with the target.
func (t *target) verdict(v float64) string {
	switch {
	case math.IsNaN(v) || v == 0 && !t.zero:
		return notMeasured
	case t.reached(v, t.aim):
		return "**aim**"
	case t.reached(v, t.least):
		return "reached"
	case t.least == 0:
		return "missed"
	}
	return fmt.Sprintf("missed by %.0f %%", 100*math.Abs(v-t.least)/t.least)
}

func times(v float64) string  { return fmt.Sprintf("%.2f ×", v) }
func mega(v float64) string   { return fmt.Sprintf("%.2f M/s", v/1e6) }
func nanos(v float64) string  { return fmt.Sprintf("%.0f ns", v) }
func number(v float64) string { return fmt.Sprintf("%.4g", v) }
func octets(v float64) string { return fmt.Sprintf("%.0f B", v) }
func gbit(v float64) string   { return fmt.Sprintf("%.1f Gb/s", v/1e9) }
func micros(v float64) string { return fmt.Sprintf("%.1f µs", v) }

// ratio returns the median of the rounds' ratios of a figure of two points.
func ratio(format func(float64) string, figure func(harness.Measure) float64, a, b *result.Point) (float64, string) {
	r := a.MedianRatio(b, figure)
	if r == 0 {
		return 0, ""
	}
	return r, format(a.Median(figure)) + " : " + format(b.Median(figure))
}

func goodputRatio(a, b *result.Point) (float64, string) {
	return ratio(gbit, harness.Measure.Goodput, a, b)
}

func latencyRatio(a, b *result.Point) (float64, string) {
	return ratio(micros, latencyOf(p50), a, b)
}

func targets() (all []target) {
	add := func(t target) {
		if t.format == nil {
			t.format = times
		}
		all = append(all, t)
	}
	// writes adds a target for WRITEs of 1 MiB at each path MTU.
	writes := func(link, to string, least, aim float64, of func(d *data, pmtu int) *result.Point) {
		for _, pmtu := range []int{1024, 4096} {
			add(target{what: fmt.Sprintf("WRITE 1 MiB, %s, PMTU %d, to %s", link, pmtu, to), least: least, aim: aim, measure: func(d *data) (float64, string) {
				return goodputRatio(d.stream(link, "WRITE", result.TargetSize, pmtu), of(d, pmtu))
			}})
		}
	}
	// links adds a target for each link.
	links := func(what string, least, aim float64, measure func(d *data, link string) (float64, string)) {
		for _, link := range result.Links {
			add(target{what: fmt.Sprintf(what, link), least: least, aim: aim, measure: func(d *data) (float64, string) { return measure(d, link) }})
		}
	}
	bare := func(link string) func(d *data, pmtu int) *result.Point {
		return func(d *data, pmtu int) *result.Point { return d.blast(link, pmtu, pmtu, false) }
	}
	writes("udp", "bare UDP GSO", 0.6, 0.8, bare("udp"))
	writes("udp", "iperf3 TCP with offloads", 0.6, 0.9, func(d *data, pmtu int) *result.Point { return d.tcp("offloads", pmtu) })
	add(target{what: "SEND 64 B, udp, one queue pair", least: 3e6, aim: 6e6, format: mega,
		measure: func(d *data) (float64, string) {
			return d.stream("udp", "SEND", result.SmallSize, smallPMTU).Rate(), ""
		}})
	writes("xdp", "bare AF_XDP", 0.8, 0.95, bare("xdp"))
	links("READ to WRITE, %s, 1 MiB, the worse of both PMTUs", 0.9, 1, func(d *data, link string) (float64, string) { return d.readToWrite(link, result.TargetSize) })
	links("READ to WRITE, %s, the worst of all sizes", 0.9, 1, func(d *data, link string) (float64, string) { return d.readToWrite(link, 0) })
	for _, link := range result.Links {
		op, what := "", "bare packets"
		if link == "udp" {
			// A RoCE packet cannot be sent by a connected UDP socket: the ICRC covers the IPv4
			// Identification, which such a socket chooses without telling the program.
			op, what = result.Unconnected, "bare packets, not connected"
		}
		add(target{what: "SEND 64 B and back, " + link + ", polled, to " + what, least: 1.5, aim: 1.2,
			measure: func(d *data) (float64, string) { return latencyRatio(d.latency(link, false), d.ping(link, op, false)) }})
	}
	links("SEND 64 B and back, %s, background, to net.Conn TCP", 1, 0.5, func(d *data, link string) (float64, string) {
		return latencyRatio(d.latency(link, true), d.tcpLatency())
	})
	links("10 000 queue pairs to one, %s", 0.8, 0.95, func(d *data, link string) (float64, string) { return manyToOne(d.scaling(link, 10_000)) })
	for _, t := range []struct {
		what, op   string
		size, pmtu int
		format     func(float64) string
		figure     func(harness.Measure) float64
	}{{"SEND 64 B", "SEND", result.SmallSize, smallPMTU, mega, harness.Measure.Rate}, {"WRITE 1 MiB", "WRITE", result.TargetSize, 4096, gbit, harness.Measure.Goodput}} {
		add(target{what: t.what + ", udp, two processes with a core each, to one with two shards", least: 0.9, aim: 1, measure: func(d *data) (float64, string) {
			processes, shards := d.twoCores(t.op, t.size, t.pmtu)
			return ratio(t.format, t.figure, processes, shards)
		}})
	}
	surfaceTargets(add, links)
	busyTargets(add)
	programTargets(links)
	for i, share := range []string{"one processor for both ends", "a processor each"} {
		for _, test := range []string{"WRITE 64 KiB, PMTU 1024", "WRITE 64 KiB, PMTU 4096", "SEND 64 B", "SEND 64 B, lists of 32"} {
			add(target{what: "against rxe in one VM, " + share + ": " + test, least: 2, aim: 4,
				measure: func(d *data) (float64, string) { return d.bestToRXE(i+1, test, false) }})
		}
		for _, test := range []string{"WRITE 64 KiB, PMTU 1024", "WRITE 64 KiB, PMTU 4096", "SEND 64 B"} {
			add(target{what: "against rxe in one VM, " + share + ": " + test + ", perftest on our libraries", least: 2, aim: 4,
				measure: func(d *data) (float64, string) { return d.bestToRXE(i+1, test, true) }})
		}
	}
	for i, share := range []string{"one processor for both ends", "a processor each"} {
		add(target{what: "READ 64 KiB from rxe in one VM, " + share + ", recovery, 1 % loss, to none", least: 0.9, aim: 0.95,
			measure: func(d *data) (float64, string) { return d.lossFromRXE(i + 1) }})
	}
	add(target{what: "engine alone, a packet", least: 150, aim: 80, format: nanos, measure: (*data).engine})
	add(target{what: "allocations a packet, all streams", zero: true, format: number, measure: (*data).allocations})
	add(target{what: "memory of an idle RC queue pair, default sizes", least: 8 << 10, aim: 2 << 10, format: octets,
		measure: func(d *data) (float64, string) { return d.Point("memory").Median(value), "" }})
	add(target{what: "WRITE 1 MiB, udp, 1 % loss, to none", least: 0.3, aim: 0.7,
		measure: func(d *data) (float64, string) {
			return goodputRatio(d.loss("udp", "WRITE", 0.01, false), d.loss("udp", "WRITE", 0, false))
		}})
	for _, t := range []struct{ loss, least, aim float64 }{{0.001, 0.97, 0.995}, {0.01, 0.9, 0.97}, {0.05, 0.7, 0.9}} {
		for _, op := range []string{"WRITE", "READ"} {
			add(target{what: fmt.Sprintf("%s 1 MiB, udp, recovery, %g %% loss, to none", op, 100*t.loss), least: t.least, aim: t.aim,
				measure: func(d *data) (float64, string) {
					return goodputRatio(d.loss("udp", op, t.loss, true), d.loss("udp", op, 0, true))
				}})
		}
	}
	return all
}

// readToWrite returns the worst ratio of READs to WRITEs of a size, or of all sizes if it is 0.
func (d *data) readToWrite(link string, size int) (worst float64, of string) {
	for _, p := range d.Points {
		if p.Spec.Kind != result.Alternating || p.Spec.Link != link || p.Spec.Size != cmp.Or(size, p.Spec.Size) {
			continue
		}
		if v := p.Median(value); v > 0 && (worst == 0 || v < worst) {
			bits := func(op string) string { return gbit(8 * float64(p.Spec.Size) * p.Median(extra(op))) }
			worst, of = v, fmt.Sprintf("%s : %s at %s, PMTU %d", bits("READ"), bits("WRITE"), result.SizeName(p.Spec.Size, " "), p.Spec.PMTU)
		}
	}
	return worst, of
}

// manyToOne returns the ratio of the rate of many queue pairs to that of one.
func manyToOne(p *result.Point) (v float64, of string) {
	if v = p.Median(value); v == 0 {
		return 0, ""
	}
	return v, mega(p.Rate()) + " : " + mega(p.Median(extra("one")))
}

// bestToRXE returns the best of our ratios to rxe in a test on so many processors: of rocectl, or of
// rxe's program on our libraries.
func (d *data) bestToRXE(cpus int, test string, libraries bool) (best float64, of string) {
	for _, r := range d.rxe {
		if r.CPUs != cpus {
			continue
		}
		for _, row := range r.Rows {
			for _, who := range contenders(r) {
				if s := row.Series(who); row.Test == test && strings.HasPrefix(who, result.LibrariesPrefix) == libraries && s.Ratio > best {
					best, of = s.Ratio, fmt.Sprintf("%.4g : %.4g %s, %s", s.Median, row.Series(rxeName).Median, row.Unit, who)
				}
			}
		}
	}
	return best, of
}

// lossFromRXE returns the worst ratio of READs from rxe with losses to those without, of all links.
func (d *data) lossFromRXE(cpus int) (worst float64, of string) {
	for _, r := range d.rxe {
		clean, lossy := r.Row(result.FromRXE), r.Row(result.FromRXELossy)
		if r.CPUs != cpus || clean == nil || lossy == nil {
			continue
		}
		for _, who := range contenders(r) {
			v := stats.Ratio(lossy.Series(who).Median, clean.Series(who).Median)
			if v > 0 && (worst == 0 || v < worst) {
				worst, of = v, fmt.Sprintf("%.4g : %.4g %s, %s", lossy.Series(who).Median, clean.Series(who).Median, clean.Unit, who)
			}
		}
	}
	return worst, of
}

// engine returns the time per packet in the engine without ICRC and copies, of the slowest
// benchmark.
func (d *data) engine() (slowest float64, of string) {
	for _, p := range d.Points {
		name, alone := strings.CutPrefix(p.Name, "engine/EngineAlone")
		if v := p.Median(value); p.Spec.Kind == result.Engine && alone && v > slowest {
			slowest, of = v, "EngineAlone"+name
		}
	}
	return slowest, of
}

// allocations returns the allocations of both ends per packet of the measuring end.
func (d *data) allocations() (float64, string) {
	var made, moved float64
	for _, p := range d.Points {
		if p.Spec.Kind == result.Stream {
			made += p.Sum(mallocs)
			moved += p.Sum(packets)
		}
	}
	if moved == 0 {
		return math.NaN(), ""
	}
	of := fmt.Sprintf("%.0f in %.3g packets", made, moved)
	if made/moved < 1e-4 { // allocations of the runtime: one for each batch of packets would be a hundred times as many
		return 0, of
	}
	return made / moved, of
}
