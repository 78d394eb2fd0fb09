package conform

import (
	"context"
	"regexp"

	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/script"
)

// The sections of a card.
const (
	sectionClean   = "clean"
	sectionFaults  = "faults"
	sectionScripts = "scripts"
)

// step is a part of the test: one workload, without faults or with some.
type step struct {
	section string
	name    string
	about   string
	file    *impair.File // the faults; nil: none
	tester  bool         // the tester is the requester
	marks   bool         // packets are marked Congestion Experienced
	server  string       // the command that starts the peer's end; empty: it serves
	program program      // of perftest
	needs   situation    // without it the step has shown nothing; "": nothing is needed

	// script plays a script instead.
	script *script.Script
	port   uint16 // of the program that the script meets
	// run does the workload, with connections that it makes and notes in the stage.
	run func(ctx context.Context, s *stage) error
	// counters returns the peer's counters; nil: it serves none.
	counters func(ctx context.Context) (map[string]uint64, error)
}

// peer is a kind of peers.
type peer interface {
	// identify finds out what the peer is. The error says that it cannot be tested at all.
	identify(ctx context.Context) (Identity, error)
	// plan returns the steps that are possible with it.
	plan() ([]step, error)
	// unable says which rules this kind of peer can never show, and why: what the card says beside the situation.
	unable() string
}

// Identity is what is known of a peer.
type Identity struct {
	Host     string   `json:"host"`
	Kind     string   `json:"kind"`
	Software string   `json:"software,omitempty"`
	Addrs    []string `json:"addresses,omitempty"`
	MTU      int      `json:"path_mtu,omitempty"`
	Hints    []string `json:"hints,omitempty"` // what its packets say of it
}

// who is the last part of the name of a step: who is the requester.
func who(tester bool) string {
	if tester {
		return "tester"
	}
	return "peer"
}

// chosen returns the steps whose names match.
func chosen(steps []step, only *regexp.Regexp) (list []step) {
	for _, s := range steps {
		if only == nil || only.MatchString(s.name) {
			list = append(list, s)
		}
	}
	return list
}
