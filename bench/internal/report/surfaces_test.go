package report

import (
	"strings"
	"testing"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// Each target for the interfaces of Go programs compares a link with TCP, or many idle connections
// with none.
func TestSurfaces(t *testing.T) {
	rate := func(name string, s harness.Spec, messages uint64) *result.Point {
		return &result.Point{Name: name, Spec: s, Rounds: []harness.Measure{{Seconds: 1, Messages: messages, Handled: 2 * messages, Processor: 0.5}}}
	}
	stream := harness.Spec{Kind: result.ConnStream, Size: 64 << 10, PMTU: 4096}
	requests := harness.Spec{Kind: result.Requests, Size: 1 << 10, PMTU: 4096, QPs: 16}
	trips := harness.Spec{Kind: result.IdleTrips, Link: "udp", Size: 64, PMTU: 1024, Wait: true}
	beside := trips
	beside.Idle = manyIdle
	r := &result.Run{Points: []*result.Point{
		point("surface/tcp/stream", stream, 10), point("surface/udp/stream", stream, 16), point("surface/raw/stream", stream, 5),
		latency("surface/tcp/trips", harness.Spec{Kind: result.ConnTrips, Size: 64, PMTU: 1024}, 50), latency("surface/udp/trips", harness.Spec{Kind: result.ConnTrips, Size: 64, PMTU: 1024}, 5),
		rate("surface/tcp/requests/16", requests, 100_000), rate("surface/udp/requests/16", requests, 150_000),
		latency("idle/udp/trips/0", trips, 20), latency("idle/udp/trips/100000", beside, 21),
	}}
	for _, p := range r.Points[1:] {
		if strings.HasPrefix(p.Name, "surface/udp") {
			p.Spec.Link = "udp"
		}
	}
	r.Points[len(r.Points)-1].Rounds[0].Value = 1500
	d := newData(r, nil)
	verdicts := map[string]string{
		"rsocket stream, udp, to net.Conn TCP":                                     "reached",
		"rsocket stream, raw, to net.Conn TCP":                                     "missed by 67 %",
		"rsocket stream, xdp, to net.Conn TCP":                                     notMeasured,
		"rsocket, 64 B and back, udp, to net.Conn TCP":                             "**aim**",
		"message, requests of 1 KiB over 16 connections, udp, to net.Conn TCP":     "missed by 25 %",
		"message, requests of 1 KiB over 1 connections, udp, to net.Conn TCP":      notMeasured,
		"100 000 idle connections, udp: memory of each":                            "**aim**",
		"100 000 idle connections, udp: 64 B and back of a busy one, to one alone": "reached",
		"100 000 idle connections, udp: SENDs of a busy one, to one alone":         notMeasured,
		"web server over rsocket, 16 connections, udp, to net/http over TCP":       notMeasured,
	}
	for _, target := range targets() {
		want, ok := verdicts[target.what]
		if !ok {
			continue
		}
		delete(verdicts, target.what)
		if v, of := target.measure(d); target.verdict(v) != want {
			t.Errorf("%s: %v (%s) is %q, want %q", target.what, v, of, target.verdict(v), want)
		}
	}
	for what := range verdicts {
		t.Errorf("there is no target %q", what)
	}
	var out strings.Builder
	d.surfaceTable(&out)
	d.idleTable(&out)
	for _, row := range []string{
		"| rsocket, stream of writes of 64 KiB | 10.0 Gb/s | – | 16.0 Gb/s | 1.60 | – |",
		"| message, requests of 1 KiB, 16 connections | 100.0 k/s | 2.5 | 150.0 k/s | 1.50 | 1.7 |",
		"| 100000 | 1500 B | – | 21.0 | 42.0 |",
	} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %s in\n%s", row, out.String())
		}
	}
}
