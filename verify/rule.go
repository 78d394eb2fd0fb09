package verify

import (
	"fmt"
	"slices"
	"strings"
)

// Severity says how bad it is to break a rule.
type Severity uint8

// The severities, in ascending order.
const (
	Note    Severity = iota // permitted, but worth knowing
	Warning                 // the standard discourages it, or it costs speed
	Error                   // the standard forbids it
)

var severityNames = [...]string{"note", "warning", "error"}

// String returns "note", "warning" or "error".
func (s Severity) String() string {
	if int(s) < len(severityNames) {
		return severityNames[s]
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler].
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// RuleID names a rule. It does not change between versions, because programs and command lines contain it.
type RuleID string

// Group is the subject of a rule.
type Group string

// The groups, in the order of the documentation.
const (
	Headers    Group = "headers"
	Lengths    Group = "lengths and order"
	Requester  Group = "requester"
	Responder  Group = "responder"
	Reads      Group = "READ"
	Atomics    Group = "atomics"
	RNR        Group = "receiver not ready"
	Management Group = "connection manager"
	Congestion Group = "congestion"
	Counting   Group = "counters"
)

// Needs is a set of conditions. A rule is applied only to a capture that meets its conditions.
type Needs uint8

// The conditions. A rule that needs Nothing is applied to every capture.
const (
	Nothing Needs = 0

	// Where: it is known that a packet was captured as it was sent, or as it arrived.
	Where Needs = 1 << 0

	// Complete: the capture has every packet that passed its place. Otherwise a missing packet could explain why the rule seems to
	// be broken.
	Complete Needs = 1 << 1

	// Clock: packets have times.
	Clock Needs = 1 << 2
)

// Rule is a row of the table of rules.
type Rule struct {
	ID       RuleID
	Section  string // of the InfiniBand Architecture Specification, volume 1: "9.7.5.1.2"; A17 is its annex 17
	Group    Group
	Severity Severity

	Needs Needs

	Sentence string // what the rule demands
}

// Rules returns all rules, in the order of the documentation.
func Rules() []Rule { return slices.Clone(rules) }

// byID finds a rule by its ID. It never changes.
var byID = func() map[RuleID]*Rule {
	m := make(map[RuleID]*Rule, len(rules))
	for i := range rules {
		m[rules[i].ID] = &rules[i]
	}
	return m
}()

// UnknownRuleError says that there is no rule with this ID.
type UnknownRuleError struct{ ID RuleID }

// Error names the rules that are similar.
func (e *UnknownRuleError) Error() string {
	var similar []string
	word, _, _ := strings.Cut(string(e.ID), "-")
	for _, r := range rules {
		if word != "" && strings.HasPrefix(string(r.ID), word) {
			similar = append(similar, string(r.ID))
		}
	}
	if len(similar) > 0 {
		return fmt.Sprintf("verify: no rule is named %q; similar: %s", e.ID, strings.Join(similar, ", "))
	}
	return fmt.Sprintf("verify: no rule is named %q", e.ID)
}
