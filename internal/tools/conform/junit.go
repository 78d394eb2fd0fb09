package conform

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The elements of JUnit's XML that are used.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr,omitempty"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr,omitempty"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
	if c.Skipped != nil {
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

// WriteJUnit prints the card as JUnit's XML: a suite for each section with a test for each step, one with a test for each rule, and one for the counters.
func (c *Card) WriteJUnit(w io.Writer) error {
	var all junitSuites
	for _, section := range c.sections() {
		suite := junitSuite{Name: section}
		for _, s := range c.Steps {
			if s.Section == section {
				suite.add(s.junit())
			}
		}
		all.Suites = append(all.Suites, suite)
	}
	rules := junitSuite{Name: "rules"}
	for i := range c.Rules {
		rules.add(c.Rules[i].junit())
	}
	all.Suites = append(all.Suites, rules)
	if len(c.Counters) > 0 {
		counters := junitSuite{Name: "counters"}
		for i := range c.Counters {
			k := &c.Counters[i]
			t := junitCase{Class: k.Step, Name: k.Name}
			if !k.Right() {
				t.Failure = &junitMessage{Message: fmt.Sprintf("the counter is %d, the packets say %d", k.Peer, k.Trace)}
			}
			counters.add(t)
		}
		all.Suites = append(all.Suites, counters)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *StepResult) junit() junitCase {
	t := junitCase{Class: s.Section, Name: s.Name, Time: fmt.Sprintf("%.3f", s.Took.Seconds())}
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
		t.Failure = &junitMessage{Message: why, Type: string(s.Status), Text: strings.Join(failures, "\n")}
	case Unknown:
		t.Skipped = &junitMessage{Message: why}
	}
	t.Out = strings.Join(out, "\n")
	return t
}

func (r *RuleResult) junit() junitCase {
	t := junitCase{Class: string(r.Group), Name: string(r.ID)}
	switch r.Status {
	case Fail, Warn:
		t.Failure = &junitMessage{Message: r.Sentence + " (IBTA " + r.Section + ")", Type: r.Severity.String(), Text: fmt.Sprintf("broken %s in %s", plural(r.Broken, "time"), strings.Join(r.Steps, ", "))}
	case Unknown:
		t.Skipped = &junitMessage{Message: r.Why}
	}
	return t
}
