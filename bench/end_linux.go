package main

import (
	"os"

	"github.com/goroce/roce/bench/internal/blast"
	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/links"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/surfaces"
	"github.com/goroce/roce/bench/internal/tcp"
	"github.com/goroce/roce/bench/internal/verbs"
)

// kindProbe is the kind of the test that checks whether a link works: see links.NewProbe.
const kindProbe = "probe"

// roles are the roles of all kinds.
var roles = harness.Roles{
	result.Stream:      verbs.NewStream,
	result.Alternating: verbs.NewReadWrite,
	result.Scaling:     verbs.NewScaling,
	result.Loss:        verbs.NewStream,
	result.Processes:   verbs.NewStream,
	result.Latency:     verbs.NewPingPong,
	result.Connect:     verbs.NewDial,
	result.Memory:      verbs.NewMemory,

	result.Busy:      byLink(verbs.NewStream, surfaces.NewStream),
	result.BusyTrips: byLink(verbs.NewPingPong, surfaces.NewPingPong),

	result.IdleStream: verbs.NewStream,
	result.IdleTrips:  verbs.NewPingPong,
	result.ConnStream: surfaces.NewStream,
	result.ConnTrips:  surfaces.NewPingPong,
	result.Requests:   surfaces.NewRequests,
	result.Web:        surfaces.NewWeb,

	kindProbe:         links.NewProbe,
	result.Blast:      blast.New,
	result.Ping:       blast.NewPing,
	result.TCPLatency: surfaces.NewPingPong,
	result.TCPConnect: tcp.NewDial,
}

// byLink chooses between our roles and those of TCP.
func byLink(ours, tcp func(harness.Spec) (harness.Role, error)) func(harness.Spec) (harness.Role, error) {
	return func(s harness.Spec) (harness.Role, error) {
		if s.Link == "tcp" {
			return tcp(s)
		}
		return ours(s)
	}
}

// end is the main function of the process at one end.
func end() error {
	r := roles
	if dir := os.Getenv(profileVariable); dir != "" {
		r = profiled(r, dir)
	}
	return harness.Serve(os.Stdin, os.Stdout, r)
}
