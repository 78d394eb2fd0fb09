package script

import (
	"fmt"
	"slices"
	"strings"
)

// Script is a parsed script.
type Script struct {
	Name  string // of the file, without [Extension]
	Title string // one line
	About string // the comment at its beginning
	Rule  string // the source of the expectations: a section of the standard, an attack, or a rule of rocectl pcap verify
	Peer  string // the program that the peer has to run, "" for a peer that the script controls
	Steps []Step
}

// Step is a statement of a script.
type Step struct {
	Pos  Pos
	Text string // the statement in the script, without its comment
	do   action
	on   []Variant
}

// Variant is a statement that replaces a step for some peers.
type Variant struct {
	For  Peer
	Why  string // the comment behind it
	Step Step
}

// Variants returns the variants of a step.
func (s *Step) Variants() []Variant { return s.on }

// action executes a step.
type action interface {
	run(s *Session, at *Step) error
}

// Peer names an implementation, because expectations may differ between implementations.
type Peer struct {
	Kind   string   // "us" is this stack, "rxe" that of Linux; it may be any other word, like "adapter"
	Series []string // version of Linux, for rxe: "6.1"; a variant may have several, or none for all versions
}

// ParsePeer parses a peer, like "us", "rxe 6.12" or "rxe-6.12".
func ParsePeer(text string) (p Peer, err error) {
	words := strings.Fields(strings.Replace(text, "-", " ", 1))
	if len(words) == 0 || !validName(words[0]) {
		return p, fmt.Errorf("%q is no kind of peer: want us, rxe-6.12, or a word like adapter", text)
	}
	return Peer{words[0], words[1:]}, nil
}

// String returns the peer in the form "rxe 6.12".
func (p Peer) String() string { return strings.Join(append([]string{p.Kind}, p.Series...), " ") }

// is reports whether a variant for v applies to the peer p.
func (p Peer) is(v Peer) bool {
	if p.Kind != v.Kind {
		return false
	}
	return len(v.Series) == 0 || slices.ContainsFunc(p.Series, func(s string) bool { return slices.Contains(v.Series, s) })
}

// For returns the step that is executed with a peer: that of the first variant for this peer, or the step itself.
func (s *Step) For(p Peer) *Step {
	for i := range s.on {
		if p.is(s.on[i].For) {
			return &s.on[i].Step
		}
	}
	return s
}

// Walk calls f for each step, including steps in blocks and in variants.
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

// Departs reports whether a variant of the script applies to the peer, because the peer departs from the standard. why is the comment
// of the first such variant.
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

// Kills reports whether the peer's kernel panics because of the script.
func (s *Script) Kills(p Peer) (kills bool) {
	s.walkFor(s.Steps, p, func(do action) {
		_, dies := do.(*diesStep)
		kills = kills || dies
	})
	return kills
}

// Warns reports whether the script makes the peer's kernel print a warning (WARN or BUG).
func (s *Script) Warns(p Peer) (warns bool) {
	s.walkFor(s.Steps, p, func(do action) {
		o, ok := do.(*outcomeStep)
		warns = warns || ok && o.warns
	})
	return warns
}

// Expected returns the outcomes that are right for a peer, nil if the script has no outcome statement. The first is that of a peer
// that does no more than the standard demands.
func (s *Script) Expected(p Peer) (outcomes []string) {
	s.walkFor(s.Steps, p, func(do action) {
		if o, ok := do.(*outcomeStep); ok {
			outcomes = o.want
		}
	})
	return outcomes
}

// walkFor calls f for the action of each step, or of the variant that replaces the step for this peer.
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

// Interacts reports whether the script waits or expects packets before its end. Such a script can be played in the zero [Way] only.
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
