package script

import (
	"fmt"
	"slices"
	"strings"
)

// Script is a script that was read.
type Script struct {
	Name  string // of the file
	Title string // one line
	About string // the comment at its beginning
	Rule  string // what the expectations rest on: a section of the standard, an attack, a rule of rocectl pcap verify
	Peer  string // the program that the other end has to run, "" for one that the script controls
	Steps []Step
}

// Step is a statement of a script.
type Step struct {
	Pos  Pos
	Text string // as it is written
	do   action
	on   []Variant
}

// Variant is what a step is replaced by for some peers.
type Variant struct {
	For  Peer
	Why  string // the comment behind it
	Step Step
}

// Variants returns those of a step.
func (s *Step) Variants() []Variant { return s.on }

// action is what a step does.
type action interface {
	run(s *Session, at *Step) error
}

// Peer is the kind of a peer, for expectations that differ.
type Peer struct {
	Kind   string   // "us", "rxe", or any other word, like "adapter"
	Series []string // of Linux, for rxe: "6.1"; in a variant several or none
}

// ParsePeer reads "us", "rxe 6.12", "rxe-6.12".
func ParsePeer(text string) (p Peer, err error) {
	words := strings.Fields(strings.Replace(text, "-", " ", 1))
	if len(words) == 0 || !validName(words[0]) {
		return p, fmt.Errorf("%q is no kind of peer: want us, rxe-6.12, or a word like adapter", text)
	}
	return Peer{words[0], words[1:]}, nil
}

// String prints "rxe 6.12".
func (p Peer) String() string { return strings.Join(append([]string{p.Kind}, p.Series...), " ") }

// is reports whether a peer is one of those that a variant is for.
func (p Peer) is(v Peer) bool {
	if p.Kind != v.Kind {
		return false
	}
	return len(v.Series) == 0 || slices.ContainsFunc(p.Series, func(s string) bool { return slices.Contains(v.Series, s) })
}

// For returns the step that counts for a peer: the first variant that is for it, or the step itself.
func (s *Step) For(p Peer) *Step {
	for i := range s.on {
		if p.is(s.on[i].For) {
			return &s.on[i].Step
		}
	}
	return s
}

// Walk calls f for each step, those in blocks and variants included.
func (s *Script) Walk(f func(*Step)) { walk(s.Steps, f) }

func walk(steps []Step, f func(*Step)) {
	for i := range steps {
		st := &steps[i]
		f(st)
		if b, ok := st.do.(interface{ body() []Step }); ok {
			walk(b.body(), f)
		}
		for j := range st.on {
			walk([]Step{st.on[j].Step}, f)
		}
	}
}

// Departs reports whether something else is expected of a peer than of one that keeps to the standard, and why.
func (s *Script) Departs(p Peer) (departs bool, why string) {
	s.Walk(func(st *Step) {
		for _, v := range st.on {
			if p.is(v.For) && !departs {
				departs, why = true, v.Why
			}
		}
	})
	return departs, why
}

// Kills reports whether the peer does not survive the script: its kernel panics.
func (s *Script) Kills(p Peer) (kills bool) {
	s.walkFor(s.Steps, p, func(do action) {
		_, dies := do.(*diesStep)
		kills = kills || dies
	})
	return kills
}

// Warns reports whether the peer's kernel prints a warning about itself.
func (s *Script) Warns(p Peer) (warns bool) {
	s.walkFor(s.Steps, p, func(do action) {
		o, ok := do.(*outcomeStep)
		warns = warns || ok && o.warns
	})
	return warns
}

// Expected returns the outcomes that are right for a peer, nil if the script does not say. The first is that of a peer that
// does no more than the standard asks for.
func (s *Script) Expected(p Peer) (outcomes []string) {
	s.walkFor(s.Steps, p, func(do action) {
		if o, ok := do.(*outcomeStep); ok {
			outcomes = o.want
		}
	})
	return outcomes
}

// walkFor calls f for what each step does with a peer.
func (s *Script) walkFor(steps []Step, p Peer, f func(action)) {
	for i := range steps {
		do := steps[i].For(p).do
		f(do)
		if b, ok := do.(interface{ body() []Step }); ok {
			s.walkFor(b.body(), p, f)
		}
	}
}

// Controlled reports whether the script needs a [Target].
func (s *Script) Controlled() bool {
	controlled := false
	s.Walk(func(st *Step) {
		if c, ok := st.do.(*connectStep); ok && c.method == "verbs" {
			controlled = true
		}
	})
	return controlled
}

// Interacts reports whether the script looks at answers before its end: then it cannot be sent in other ways.
func (s *Script) Interacts() bool {
	interacts := false
	s.Walk(func(st *Step) {
		switch st.do.(type) {
		case *expectStep, *waitStep:
			interacts = true
		}
	})
	return interacts
}
