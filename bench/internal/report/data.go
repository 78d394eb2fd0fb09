package report

import (
	"slices"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// data is a run with the values of its parameters.
type data struct {
	*result.Run
	rxe               []*result.RXE // the comparisons with rxe
	links, ops        []string      // in the order of the report
	listed            []string      // ops, and those in tables only
	pmtus, sizes, qps []int
}

// smallPMTU is the path MTU of the measurements of small messages that have targets.
const smallPMTU = 1024

func newData(r *result.Run, rxe []*result.RXE) *data {
	d := &data{Run: r, rxe: rxe}
	ops := result.Values(r, result.Stream, func(s harness.Spec) string { return s.Op })
	only := func(order, have []string) []string {
		return slices.DeleteFunc(slices.Clone(order), func(s string) bool { return !slices.Contains(have, s) })
	}
	var links []string
	for _, p := range r.Points {
		if len(p.Rounds) > 0 {
			links = append(links, p.Spec.Link)
		}
	}
	d.links = only(result.Links, links)
	d.ops = only([]string{"SEND", "WRITE", "READ"}, ops)
	d.listed = only(append(slices.Clone(d.ops), result.SplitWrite), ops)
	streams := result.Stream
	if !d.has(streams) {
		streams = result.Alternating
	}
	d.pmtus = result.Values(r, streams, func(s harness.Spec) int { return s.PMTU })
	d.sizes = result.Values(r, streams, func(s harness.Spec) int { return s.Size })
	d.qps = result.Values(r, result.Scaling, func(s harness.Spec) int { return s.QPs })
	return d
}

// has reports whether there are values of one of the kinds.
func (d *data) has(kinds ...string) bool {
	return slices.ContainsFunc(d.Points, func(p *result.Point) bool { return len(p.Rounds) > 0 && slices.Contains(kinds, p.Spec.Kind) })
}

func (d *data) stream(link, op string, size, pmtu int) *result.Point {
	return d.Find(harness.Spec{Kind: result.Stream, Link: link, Op: op, Size: size, PMTU: pmtu})
}

// blast returns the packets without protocol with that payload, by sockets or by our driver.
func (d *data) blast(link string, size, pmtu int, driver bool) *result.Point {
	return d.Find(harness.Spec{Kind: result.Blast, Link: link, Size: size, PMTU: pmtu, Port: driver})
}

// tcp returns iperf3 on an interface for that path MTU.
func (d *data) tcp(how string, pmtu int) *result.Point {
	return d.Find(harness.Spec{Kind: result.IPerf, Link: "tcp", Op: how, PMTU: result.InterfaceMTU(pmtu)})
}

// small returns a point about small messages or packets.
func (d *data) small(s harness.Spec) *result.Point {
	s.Size, s.PMTU = result.SmallSize, smallPMTU
	return d.Find(s)
}

func (d *data) latency(link string, wait bool) *result.Point {
	return d.small(harness.Spec{Kind: result.Latency, Link: link, Wait: wait})
}

func (d *data) ping(link, op string, driver bool) *result.Point {
	return d.small(harness.Spec{Kind: result.Ping, Link: link, Op: op, Port: driver})
}

func (d *data) tcpLatency() *result.Point {
	return d.small(harness.Spec{Kind: result.TCPLatency, Link: "tcp"})
}

func (d *data) scaling(link string, qps int) *result.Point {
	return d.small(harness.Spec{Kind: result.Scaling, Link: link, Op: "SEND", QPs: qps})
}

// processes returns the streams of n processes that share an interface or, without shared, of one
// process that has it exclusively.
func (d *data) processes(op string, size, pmtu, n int, shared bool) *result.Point {
	return d.Find(harness.Spec{Kind: result.Processes, Link: "udp", Op: op, Size: size, PMTU: pmtu, Wait: true, Processes: n, Shared: shared})
}

// twoCores returns the streams of two processes with a core each, and of one process with a shard
// for each of the two cores.
func (d *data) twoCores(op string, size, pmtu int) (processes, shards *result.Point) {
	s := harness.Spec{Kind: result.Processes, Link: "udp", Op: op, Size: size, PMTU: pmtu, Wait: true, Shared: true}
	apart, both := s, s
	apart.Processes, apart.Apart = 2, true
	both.Processes, both.Shards = 1, 2
	return d.Find(apart), d.Find(both)
}

func (d *data) loss(link, op string, loss float64, recovery bool) *result.Point {
	return d.Find(harness.Spec{Kind: result.Loss, Link: link, Op: op, Size: result.TargetSize, PMTU: 4096, Loss: loss, Recovery: recovery})
}

// latencyOf makes a figure of the latencies, in µs, that is 0 for measures without any.
func latencyOf(f func(*harness.Latency) float64) func(harness.Measure) float64 {
	return func(m harness.Measure) float64 {
		if m.Latency == nil {
			return 0
		}
		return f(m.Latency)
	}
}

// quantile returns the median of a figure of the latencies over all rounds.
func quantile(p *result.Point, f func(*harness.Latency) float64) float64 {
	return p.Median(latencyOf(f))
}

// p50 is the median round-trip time.
func p50(l *harness.Latency) float64 { return l.P50 }

// Figures of a measure that result.Point takes the median or the sum of.
func value(m harness.Measure) float64   { return m.Value }
func packets(m harness.Measure) float64 { return float64(m.Packets) }
func retrans(m harness.Measure) float64 { return float64(m.Retrans) }
func mallocs(m harness.Measure) float64 { return float64(m.Mallocs) }

func extra(name string) func(harness.Measure) float64 {
	return func(m harness.Measure) float64 { return m.Extra[name] }
}
