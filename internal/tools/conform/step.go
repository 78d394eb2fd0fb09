package conform

import (
	"context"

	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/script"
)

// The sections of a card.
const (
	sectionClean   = "clean"
	sectionFaults  = "faults"
	sectionScripts = "scripts"
)

// step is a part of the test: one workload, with or without faults, or a script.
type step struct {
	section string
	name    string
	about   string
	file    *impair.File // the faults; nil: none
	tester  bool         // the tester is the requester
	marks   bool         // packets are marked Congestion Experienced
	server  string       // the command that starts the peer's end; empty: the peer runs Serve
	program program      // perftest's program
	needs   situation    // a situation that must occur, otherwise the step has shown nothing; "": none is needed

	// script is a script that is played in place of a workload; nil: none.
	script *script.Script
	port   uint16 // port of the program to which the script connects

	// run does the workload. It adds connections that it makes out of band to the stage.
	run func(ctx context.Context, s *stage) error
	// counters returns the peer's counters; nil: the peer does not report any.
	counters func(ctx context.Context) (map[string]uint64, error)
}

// peer is a kind of peer.
type peer interface {
	// identify returns the identity of the peer. An error means that the peer cannot be tested at all.
	identify(ctx context.Context) (Identity, error)
	// plan returns the steps that are possible with this kind of peer.
	plan() ([]step, error)
	// unable returns a note for the card about operations that this kind of peer does not have, "" if it has all.
	unable() string
}

// Identity describes a peer.
type Identity struct {
	Host     string   `json:"host"`
	Kind     string   `json:"kind"`
	Software string   `json:"software,omitempty"`
	Addrs    []string `json:"addresses,omitempty"`
	MTU      int      `json:"path_mtu,omitempty"`
	Hints    []string `json:"hints,omitempty"` // properties that its packets show
}

// requesterName returns the last part of the name of a step: the end that is the requester.
func requesterName(tester bool) string {
	if tester {
		return "tester"
	}
	return "peer"
}
