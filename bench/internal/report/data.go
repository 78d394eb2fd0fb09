package report

import (
	"slices"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// data is a run by what is asked of it.
type data struct {
	*result.Run
	rxe               []*rxe   // what was measured beside rxe
	links, ops        []string // in the order of the report
	listed            []string // ops, and what is in tables only
	pmtus, sizes, qps []int
}

// What the targets are about.
const (
	smallSize  = 64
	targetSize = 1 << 20
	smallPMTU  = 1024
)

func newData(r *result.Run, beside []*rxe) *data {
	d := &data{Run: r, rxe: beside}
	for _, l := range []string{"udp", "xdp", "raw"} {
		for _, p := range r.Points {
			if p.Spec.Link == l && len(p.Rounds) > 0 {
				d.links = append(d.links, l)
				break
			}
		}
	}
	ops := result.Values(r, result.Stream, func(s harness.Spec) string { return s.Op })
	for _, op := range []string{"SEND", "WRITE", "READ"} {
		for _, have := range ops {
			if op == have {
				d.ops = append(d.ops, op)
			}
		}
	}
	d.listed = slices.Clone(d.ops)
	if slices.Contains(ops, result.SplitWrite) {
		d.listed = append(d.listed, result.SplitWrite)
	}
	streams := result.Stream
	if !d.has(streams) {
		streams = result.Alternating
	}
	d.pmtus = result.Values(r, streams, func(s harness.Spec) int { return s.PMTU })
	d.sizes = result.Values(r, streams, func(s harness.Spec) int { return s.Size })
	d.qps = result.Values(r, result.Scaling, func(s harness.Spec) int { return s.QPs })
	return d
}

func (d *data) stream(link, op string, size, pmtu int) *result.Point {
	return d.Find(harness.Spec{Kind: result.Stream, Link: link, Op: op, Size: size, PMTU: pmtu})
}

func (d *data) contest(link string, size, pmtu int) *result.Point {
	return d.Find(harness.Spec{Kind: result.Alternating, Link: link, Op: result.ReadToWrite, Size: size, PMTU: pmtu})
}

// blast is what the link carries of packets with that payload.
func (d *data) blast(link string, size, pmtu int) *result.Point {
	return d.Find(harness.Spec{Kind: result.Blast, Link: link, Size: size, PMTU: pmtu})
}

// driver is blast by our driver instead of sockets.
func (d *data) driver(link string, size, pmtu int) *result.Point {
	return d.Find(harness.Spec{Kind: result.Blast, Link: link, Size: size, PMTU: pmtu, Port: true})
}

// tcp is iperf3 on an interface for that path MTU.
func (d *data) tcp(how string, pmtu int) *result.Point {
	mtu := 1500
	if pmtu > 1024 {
		mtu = 4200
	}
	return d.Find(harness.Spec{Kind: result.IPerf, Link: "tcp", Op: how, PMTU: mtu})
}

func (d *data) latency(link string, wait bool) *result.Point {
	return d.Find(harness.Spec{Kind: result.Latency, Link: link, Size: smallSize, PMTU: smallPMTU, Wait: wait})
}

func (d *data) sleeping(link string) *result.Point {
	return d.Find(harness.Spec{Kind: result.Latency, Link: link, Size: smallSize, PMTU: smallPMTU, Wait: true, Sleep: true})
}

func (d *data) ping(link string, driver bool) *result.Point {
	return d.Find(harness.Spec{Kind: result.Ping, Link: link, Size: smallSize, PMTU: smallPMTU, Port: driver})
}

func (d *data) unconnected(link string) *result.Point {
	return d.Find(harness.Spec{Kind: result.Ping, Link: link, Op: result.Unconnected, Size: smallSize, PMTU: smallPMTU})
}

func (d *data) tcpLatency() *result.Point {
	return d.Find(harness.Spec{Kind: result.TCPLatency, Link: "tcp", Size: smallSize, PMTU: smallPMTU})
}

func (d *data) scaling(link string, qps int) *result.Point {
	return d.Find(harness.Spec{Kind: result.Scaling, Link: link, Op: "SEND", Size: smallSize, PMTU: smallPMTU, QPs: qps})
}

func (d *data) loss(link string, loss float64) *result.Point {
	return d.Find(harness.Spec{Kind: result.Loss, Link: link, Op: "WRITE", Size: targetSize, PMTU: 4096, Loss: loss})
}

// middle is the median of a round trip, in µs; 0 if none was measured.
func middle(m harness.Measure) float64 {
	if m.Latency == nil {
		return 0
	}
	return m.Latency.P50
}

// p50 is the median of the rounds' medians.
func p50(p *result.Point) float64 { return p.Median(middle) }

func quantile(p *result.Point, f func(*harness.Latency) float64) float64 {
	return p.Median(func(m harness.Measure) float64 {
		if m.Latency == nil {
			return 0
		}
		return f(m.Latency)
	})
}
