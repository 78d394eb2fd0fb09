package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// surface is a measurement of an interface that Go programs use, on this stack and over TCP.
type surface struct {
	name string
	spec harness.Spec
	udp  bool // a run of all cases measures it on the link udp only
}

// webSpin is the Spin of a server that has the machine for itself, as examples/webserver sets it.
const webSpin = 200 * time.Microsecond

// surfaceCases returns the measurements with targets.
func surfaceCases() (all []surface) {
	all = []surface{
		{"stream", harness.Spec{Kind: result.ConnStream, Size: 64 << 10, PMTU: 4096}, false},
		{"trips", harness.Spec{Kind: result.ConnTrips, Size: result.SmallSize, PMTU: 1024}, false},
	}
	for _, n := range []int{1, 16, 256} {
		all = append(all, surface{fmt.Sprintf("requests/%d", n), harness.Spec{Kind: result.Requests, Size: 1 << 10, PMTU: 4096, QPs: n}, true})
	}
	return append(all, surface{"web/16", harness.Spec{Kind: result.Web, PMTU: 4096, QPs: 16, Spin: webSpin}, true})
}

// idle adds measurements of a busy queue pair on a device with many idle ones, each next to one on a device
// without.
func (s scale) idle(add adder, links []string) {
	if !slices.Contains(links, "udp") {
		return
	}
	for _, n := range []int{0, s.idleQPs} {
		for _, spec := range []harness.Spec{{Kind: result.IdleStream, Op: "SEND"}, {Kind: result.IdleTrips}} {
			name := "trips"
			if spec.Kind == result.IdleStream {
				name = "SEND"
			}
			spec.Link, spec.Size, spec.PMTU, spec.Wait, spec.Idle, spec.Duration = "udp", result.SmallSize, 1024, true, n, s.surfaceDuration
			add(min(s.rounds, 2), fmt.Sprintf("idle/udp/%s/%d", name, n), spec)
		}
	}
}

// surfaces adds the measurements of interfaces, each on this stack's links next to TCP.
func (s scale) surfaces(add adder, links []string) {
	for _, c := range surfaceCases() {
		for _, link := range append([]string{"tcp"}, links...) {
			if c.udp && link != "udp" && link != "tcp" && !s.everyProgram {
				continue
			}
			spec := c.spec
			spec.Link, spec.Duration = link, s.surfaceDuration
			add(s.rounds, "surface/"+link+"/"+c.name, spec)
		}
	}
}
