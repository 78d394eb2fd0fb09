package conform

import (
	"fmt"
	"io"
	"strings"

	"github.com/goroce/roce/internal/junit"
)

// WriteJUnit prints the card as JUnit XML: a suite for each section with a test for each step, a suite with a test for each rule, and a suite for the counters.
func (c *Card) WriteJUnit(w io.Writer) error {
	var all junit.Suites
	for _, section := range c.sections() {
		suite := junit.Suite{Name: section.Name}
		for _, s := range section.Steps {
			suite.Cases = append(suite.Cases, s.junit())
		}
		all = append(all, suite)
	}
	rules := junit.Suite{Name: "rules"}
	for i := range c.Rules {
		rules.Cases = append(rules.Cases, c.Rules[i].junit())
	}
	all = append(all, rules)
	if len(c.Counters) > 0 {
		counters := junit.Suite{Name: "counters"}
		for i := range c.Counters {
			k := &c.Counters[i]
			t := junit.Case{Class: k.Step, Name: k.Name}
			if !k.Right() {
				t.Failure = &junit.Message{Message: fmt.Sprintf("the counter is %d, the packets say %d", k.Peer, k.Trace)}
			}
			counters.Cases = append(counters.Cases, t)
		}
		all = append(all, counters)
	}
	return all.Write(w)
}

func (s *StepResult) junit() junit.Case {
	t := junit.Case{Class: s.Section, Name: s.Name, Seconds: s.Took.Seconds()}
	var failures, out []string
	for i := range s.Findings {
		if f := &s.Findings[i]; f.failure() {
			failures = append(failures, f.String())
		} else {
			out = append(out, f.String())
		}
	}
	why := strings.Join(s.Why, "; ")
	switch s.Status {
	case Fail, Warn:
		if why == "" {
			why = plural(len(failures), "finding")
		}
		t.Failure = &junit.Message{Message: why, Type: string(s.Status), Text: strings.Join(failures, "\n")}
	case Unknown:
		t.Skipped = &junit.Message{Message: why}
	}
	t.Out = strings.Join(out, "\n")
	return t
}

func (r *RuleResult) junit() junit.Case {
	t := junit.Case{Class: string(r.Group), Name: string(r.ID)}
	switch r.Status {
	case Fail, Warn:
		t.Failure = &junit.Message{Message: r.Sentence + " (IBTA " + r.Section + ")", Type: r.Severity.String(), Text: fmt.Sprintf("broken %s in %s", plural(r.Broken, "time"), strings.Join(r.Steps, ", "))}
	case Unknown:
		t.Skipped = &junit.Message{Message: r.Why}
	}
	return t
}
