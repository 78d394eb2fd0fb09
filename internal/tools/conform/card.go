package conform

import (
	"slices"
	"time"

	"github.com/goroce/roce/verify"
)

// Status is the result of a step or a rule.
type Status string

// The statuses.
const (
	Pass    Status = "pass"
	Warn    Status = "warning" // a rule that the standard recommends is broken
	Fail    Status = "fail"
	Unknown Status = "unknown" // not judged
)

// rank orders statuses: the largest number is the worst.
var rank = map[Status]int{Unknown: 0, Pass: 1, Warn: 2, Fail: 3}

// Card is the report of a test.
type Card struct {
	Tester  string        `json:"tester"` // software
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took_ns"`
	Driver  string        `json:"driver"`
	Peer    Identity      `json:"peer"`
	Verdict Status        `json:"verdict"`
	Strict  bool          `json:"strict,omitempty"`
	Notes   []string      `json:"notes,omitempty"` // problems that affected the whole test

	Steps    []*StepResult    `json:"steps"`
	Rules    []RuleResult     `json:"rules"`
	Known    []KnownDeparture `json:"known,omitempty"`
	Times    []Times          `json:"times,omitempty"`
	Counters []CounterResult  `json:"counters,omitempty"`
}

// StepResult is the result of a step.
type StepResult struct {
	Section  string        `json:"section"`
	Name     string        `json:"name"`
	About    string        `json:"about"`
	Status   Status        `json:"status"`
	Why      []string      `json:"why,omitempty"` // why it failed, or was not judged
	Packets  int           `json:"packets"`
	Faults   uint64        `json:"faults,omitempty"`  // how many faults were injected
	Repeats  string        `json:"repeats,omitempty"` // how often the peer repeated requests, and why
	Took     time.Duration `json:"took_ns"`
	Findings []Finding     `json:"findings,omitempty"`
	Ladder   string        `json:"ladder,omitempty"`  // its last packets, if the workload failed
	Capture  string        `json:"capture,omitempty"` // file
	Server   string        `json:"server,omitempty"`  // command that starts the peer's end
	Script   string        `json:"script,omitempty"`  // output of the script

	known    []*verify.Departure
	samples  []Sample
	counters []CounterResult
	seen     situations
}

// RuleResult is the result of a rule over all steps.
type RuleResult struct {
	ID        verify.RuleID   `json:"id"`
	Group     verify.Group    `json:"group"`
	Section   string          `json:"section"`
	Severity  verify.Severity `json:"severity"`
	Sentence  string          `json:"sentence"`
	Status    Status          `json:"status"`
	Broken    int             `json:"broken,omitempty"`
	Notes     int             `json:"notes,omitempty"` // findings with severity note, which do not count
	Departure int             `json:"known,omitempty"` // findings that a known departure explains
	Steps     []string        `json:"steps,omitempty"` // the steps in which it was broken
	Why       string          `json:"why,omitempty"`   // why it was not judged
}

// KnownDeparture is a known departure that the peer has shown.
type KnownDeparture struct {
	*verify.Departure
	Rule  verify.RuleID `json:"rule"`
	Times int           `json:"times"`
}

// Times is the distribution of a time of the peer, over all steps.
type Times struct {
	Kind                          verify.LatencyKind `json:"kind"`
	Count                         int                `json:"count"`
	Least, Median, P90, P99, Most time.Duration      `json:"-"`
	Sorted                        []time.Duration    `json:"nanoseconds"`
}

// CounterResult compares a counter of the peer with the packets of a step.
type CounterResult struct {
	Step  string `json:"step"`
	Name  string `json:"name"`
	Peer  uint64 `json:"peer"`
	Trace uint64 `json:"trace"`
}

// Right reports whether the counter of the peer agrees with the packets.
func (c CounterResult) Right() bool { return c.Peer == c.Trace }

// timeKinds are the kinds of times of a card, with their meanings.
var timeKinds = []struct {
	kind  verify.LatencyKind
	about string
}{
	{verify.AckLatency, "from the arrival of a request to its acknowledgement"},
	{verify.ReadLatency, "from the arrival of a READ request to the first response"},
	{verify.AtomicLatency, "from the arrival of an atomic to the answer"},
	{verify.NAKGeneration, "from the arrival of a packet behind a gap to the NAK"},
	{verify.NAKReaction, "from the arrival of a NAK to the request again"},
	{verify.Retransmission, "from a request to its repetition"},
	{verify.RNRWait, "from the arrival of an RNR NAK to the request again"},
}

// summarize computes everything else on the card from the results of the steps.
func (c *Card) summarize() {
	seen := situations{}
	byKind := map[verify.LatencyKind][]time.Duration{}
	known := map[string]*KnownDeparture{}
	results := make(map[verify.RuleID]*RuleResult)
	for _, r := range verify.Rules() {
		c.Rules = append(c.Rules, RuleResult{ID: r.ID, Group: r.Group, Section: r.Section, Severity: r.Severity, Sentence: r.Sentence})
	}
	for i := range c.Rules {
		results[c.Rules[i].ID] = &c.Rules[i]
	}
	for _, s := range c.Steps {
		seen.add(s.seen)
		for _, t := range s.samples {
			byKind[t.Kind] = append(byKind[t.Kind], t.Time)
		}
		c.Counters = append(c.Counters, s.counters...)
		for _, d := range s.known {
			if known[d.ID] == nil {
				known[d.ID] = &KnownDeparture{Departure: d, Rule: d.Rule}
			}
		}
		for i := range s.Findings {
			f := &s.Findings[i]
			r := results[f.Rule]
			switch {
			case f.Departure != "":
				known[f.Departure].Times++
				r.Departure++
			case f.failure():
				r.Broken++
				if !slices.Contains(r.Steps, s.Name) {
					r.Steps = append(r.Steps, s.Name)
				}
			default:
				r.Notes++
			}
		}
	}
	for i := range c.Rules {
		c.Rules[i].decide(seen)
	}
	for _, d := range verify.Departures() {
		if k := known[d.ID]; k != nil {
			c.Known = append(c.Known, *k)
		}
	}
	for _, k := range timeKinds {
		if list := byKind[k.kind]; list != nil {
			c.Times = append(c.Times, newTimes(k.kind, list))
		}
	}
	c.judge()
}

// decide sets the status of a rule.
func (r *RuleResult) decide(seen situations) {
	r.Status = Pass
	switch why := seen.unmet(r.ID); {
	case r.Broken > 0 && r.Severity == verify.Error:
		r.Status = Fail
	case r.Broken > 0:
		r.Status = Warn
	case r.Departure+r.Notes > 0:
	case why != "":
		r.Status, r.Why = Unknown, string(why)
	}
}

func newTimes(kind verify.LatencyKind, list []time.Duration) Times {
	slices.Sort(list)
	at := func(percent int) time.Duration { return list[(len(list)-1)*percent/100] }
	return Times{kind, len(list), list[0], at(50), at(90), at(99), list[len(list)-1], list}
}

// judge sets the verdict of the card.
func (c *Card) judge() {
	c.Verdict = Unknown
	worse := func(s Status) {
		if rank[s] > rank[c.Verdict] {
			c.Verdict = s
		}
	}
	for _, s := range c.Steps {
		worse(s.Status)
	}
	if c.differing() > 0 {
		worse(Warn)
	}
}

// count returns how many steps of a section have a status. "" stands for any section or status.
func (c *Card) count(section string, status Status) (n int) {
	for _, s := range c.Steps {
		if (section == "" || s.Section == section) && (status == "" || s.Status == status) {
			n++
		}
	}
	return n
}

// cardSection is a section of a card. The template of the HTML page names its fields.
type cardSection struct {
	Name  string
	Steps []*StepResult
}

// sections returns the sections that the card has, in order.
func (c *Card) sections() (list []cardSection) {
	for _, name := range []string{sectionClean, sectionFaults, sectionScripts} {
		s := cardSection{Name: name}
		for _, step := range c.Steps {
			if step.Section == name {
				s.Steps = append(s.Steps, step)
			}
		}
		if len(s.Steps) > 0 {
			list = append(list, s)
		}
	}
	return list
}
