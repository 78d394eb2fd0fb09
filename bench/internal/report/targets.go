package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// target is something to be reached: at least (or at most) this, and better that.
type target struct {
	what    string
	least   float64
	aim     float64
	atMost  bool // the less the better
	format  func(float64) string
	measure func(d *data) (v float64, of string) // 0: unknown, unless zero is allowed; of: two figures it is made of
	zero    bool                                 // 0 is a result
}

// verdict compares a value with what was to be reached.
func (t *target) verdict(v float64) string {
	better := func(v, than float64) bool {
		if t.atMost {
			return v <= than
		}
		return v >= than
	}
	switch {
	case math.IsNaN(v) || v == 0 && !t.zero:
		return "not measured"
	case better(v, t.aim):
		return "**aim**"
	case better(v, t.least):
		return "reached"
	case t.least == 0:
		return "missed"
	}
	return fmt.Sprintf("missed by %.0f %%", 100*abs(v-t.least)/t.least)
}

func abs(v float64) float64 { return max(v, -v) }

func times(v float64) string  { return fmt.Sprintf("%.2f ×", v) }
func mega(v float64) string   { return fmt.Sprintf("%.2f M/s", v/1e6) }
func nanos(v float64) string  { return fmt.Sprintf("%.0f ns", v) }
func number(v float64) string { return fmt.Sprintf("%.4g", v) }
func octets(v float64) string { return fmt.Sprintf("%.0f B", v) }
func gbit(v float64) string   { return fmt.Sprintf("%.1f Gb/s", v/1e9) }
func micros(v float64) string { return fmt.Sprintf("%.1f µs", v) }

// ratio makes a measure of a figure of two points: the median of the rounds' ratios.
func ratio(format func(float64) string, figure func(harness.Measure) float64, a, b func(d *data) *result.Point) func(d *data) (float64, string) {
	return func(d *data) (float64, string) {
		x, y := a(d), b(d)
		r := x.MedianRatio(y, figure)
		if r == 0 {
			return 0, ""
		}
		return r, format(x.Median(figure)) + " : " + format(y.Median(figure))
	}
}

// targets lists all of them.
func targets() (all []target) {
	goodput := harness.Measure.Goodput
	write := func(link string, pmtu int) func(d *data) *result.Point {
		return func(d *data) *result.Point { return d.stream(link, "WRITE", targetSize, pmtu) }
	}
	for _, pmtu := range []int{1024, 4096} {
		all = append(all, target{what: fmt.Sprintf("WRITE 1 MiB, udp, PMTU %d, to bare UDP GSO", pmtu), least: 0.6, aim: 0.8, format: times,
			measure: ratio(gbit, goodput, write("udp", pmtu), func(d *data) *result.Point { return d.blast("udp", pmtu, pmtu) })})
	}
	for _, pmtu := range []int{1024, 4096} {
		all = append(all, target{what: fmt.Sprintf("WRITE 1 MiB, udp, PMTU %d, to iperf3 TCP with offloads", pmtu), least: 0.6, aim: 0.9, format: times,
			measure: ratio(gbit, goodput, write("udp", pmtu), func(d *data) *result.Point { return d.tcp("offloads", pmtu) })})
	}
	all = append(all, target{what: "SEND 64 B, udp, one queue pair", least: 3e6, aim: 6e6, format: mega,
		measure: func(d *data) (float64, string) { return d.stream("udp", "SEND", smallSize, smallPMTU).Rate(), "" }})
	for _, pmtu := range []int{1024, 4096} {
		all = append(all, target{what: fmt.Sprintf("WRITE 1 MiB, xdp, PMTU %d, to bare AF_XDP", pmtu), least: 0.8, aim: 0.95, format: times,
			measure: ratio(gbit, goodput, write("xdp", pmtu), func(d *data) *result.Point { return d.blast("xdp", pmtu, pmtu) })})
	}
	for _, link := range []string{"udp", "xdp", "raw"} {
		all = append(all, target{what: "READ to WRITE, " + link + ", 1 MiB, the worse of both PMTUs", least: 0.9, aim: 1, format: times,
			measure: func(d *data) (float64, string) { return d.readToWrite(link, targetSize) }})
	}
	for _, link := range []string{"udp", "xdp", "raw"} {
		all = append(all, target{what: "READ to WRITE, " + link + ", the worst of all sizes", least: 0.9, aim: 1, format: times,
			measure: func(d *data) (float64, string) { return d.readToWrite(link, 0) }})
	}
	for _, link := range []string{"udp", "xdp", "raw"} {
		bare, what := func(d *data) *result.Point { return d.ping(link, false) }, "bare packets"
		if link == "udp" {
			// A connected socket numbers its IPv4 packets from a number it tells nobody, which
			// the ICRC covers: no RoCE packet can be sent by one.
			bare, what = func(d *data) *result.Point { return d.unconnected(link) }, "bare packets, not connected"
		}
		all = append(all, target{what: "SEND 64 B and back, " + link + ", polled, to " + what, least: 1.5, aim: 1.2, atMost: true, format: times,
			measure: ratio(micros, middle, func(d *data) *result.Point { return d.latency(link, false) }, bare)})
	}
	for _, link := range []string{"udp", "xdp", "raw"} {
		all = append(all, target{what: "SEND 64 B and back, " + link + ", background, to net.Conn TCP", least: 1, aim: 0.5, atMost: true, format: times,
			measure: ratio(micros, middle, func(d *data) *result.Point { return d.latency(link, true) }, (*data).tcpLatency)})
	}
	for _, link := range []string{"udp", "xdp", "raw"} {
		all = append(all, target{what: "10 000 queue pairs to one, " + link, least: 0.8, aim: 0.95, format: times,
			measure: func(d *data) (float64, string) { return manyToOne(d.scaling(link, 10_000)) }})
	}
	for i, share := range []string{"one processor for both ends", "a processor each"} {
		for _, test := range []string{"WRITE 64 KiB, PMTU 1024", "WRITE 64 KiB, PMTU 4096", "SEND 64 B", "SEND 64 B, lists of 32"} {
			all = append(all, target{what: "against rxe in one VM, " + share + ": " + test, least: 2, aim: 4, format: times,
				measure: func(d *data) (float64, string) { return d.rxeOn(i + 1).ratio(test) }})
		}
	}
	return append(all,
		target{what: "engine alone, a packet", least: 150, aim: 80, atMost: true, format: nanos, measure: (*data).engine},
		target{what: "allocations a packet, all streams", least: 0, aim: 0, atMost: true, zero: true, format: number, measure: (*data).allocations},
		target{what: "memory of an idle RC queue pair, default sizes", least: 8 << 10, aim: 2 << 10, atMost: true, format: octets,
			measure: func(d *data) (float64, string) {
				return d.Point("memory").Median(func(m harness.Measure) float64 { return m.Value }), ""
			}},
		target{what: "WRITE 1 MiB, udp, 1 % loss, to none", least: 0.3, aim: 0.7, format: times,
			measure: ratio(gbit, goodput, func(d *data) *result.Point { return d.loss("udp", 0.01) }, func(d *data) *result.Point { return d.loss("udp", 0) })},
	)
}

// readToWrite is the worst ratio of READ to WRITE of a size, or of all if it is 0.
func (d *data) readToWrite(link string, size int) (worst float64, of string) {
	for _, p := range d.Points {
		if p.Spec.Kind != result.Alternating || p.Spec.Link != link || size != 0 && p.Spec.Size != size {
			continue
		}
		if v := p.Median(ratioOf); v > 0 && (worst == 0 || v < worst) {
			worst, of = v, fmt.Sprintf("%s at %s, PMTU %d", contestants(p), sizeName(p.Spec.Size), p.Spec.PMTU)
		}
	}
	return worst, of
}

// ratioOf is that of a contest, in the slower direction, or of many queue pairs to one.
func ratioOf(m harness.Measure) float64 { return m.Value }

// contestants are the goodputs of READ and WRITE in a contest, in the slower direction.
func contestants(p *result.Point) string {
	bits := func(op string) string {
		return gbit(p.Median(func(m harness.Measure) float64 { return 8 * float64(p.Spec.Size) * m.Extra[op] }))
	}
	return bits("READ") + " : " + bits("WRITE")
}

// manyToOne is the rate of many queue pairs to that of one, which took turns with them.
func manyToOne(p *result.Point) (v float64, of string) {
	one := func(m harness.Measure) float64 { return m.Extra["one"] }
	if v = p.Median(ratioOf); v == 0 {
		return 0, ""
	}
	return v, mega(p.Rate()) + " : " + mega(p.Median(one))
}

// engine is the time a packet takes in the engine without ICRC and copies, the
// slowest of the benchmarks that measure it.
func (d *data) engine() (slowest float64, of string) {
	for _, p := range d.Points {
		v := p.Median(func(m harness.Measure) float64 { return m.Value })
		if p.Spec.Kind == result.Engine && strings.HasPrefix(p.Name, "engine/EngineAlone") && v > slowest {
			slowest, of = v, strings.TrimPrefix(p.Name, "engine/")
		}
	}
	return slowest, of
}

// allocations are those of both ends to the packets of the measuring one.
func (d *data) allocations() (float64, string) {
	var mallocs, packets float64
	for _, p := range d.Points {
		if p.Spec.Kind == result.Stream {
			mallocs += p.Sum(func(m harness.Measure) float64 { return float64(m.Mallocs) })
			packets += p.Sum(func(m harness.Measure) float64 { return float64(m.Packets) })
		}
	}
	if packets == 0 {
		return math.NaN(), ""
	}
	of := fmt.Sprintf("%.0f in %.3g packets", mallocs, packets)
	if mallocs/packets < 1e-4 { // one in a batch would be a hundred times as many: these are the runtime's
		return 0, of
	}
	return mallocs / packets, of
}
