package verify

import (
	"io"
	"strings"

	"github.com/goroce/roce/internal/junit"
)

// WriteJUnit prints the report as JUnit XML, with a test for each rule. A test fails if the rule has warnings or errors that no departure
// explains, and with [Config.Strict] if it has any findings. Other findings are the output of the test. A rule that was not applied is
// a skipped test.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junit.Suite{Name: strings.Join(r.Files, " ")}
	for i := range rules {
		suite.Cases = append(suite.Cases, r.junitCase(&rules[i]))
	}
	return suite.Write(w)
}

func (r *Report) junitCase(rule *Rule) junit.Case {
	c := junit.Case{Class: string(rule.Group), Name: string(rule.ID)}
	var failures, out []string
	for i := range r.Findings {
		f := &r.Findings[i]
		switch {
		case f.Rule != rule.ID:
		case f.Failure() || r.strict:
			failures = append(failures, f.String())
		default:
			out = append(out, f.String())
		}
	}
	where := " (IBTA " + rule.Section + ")"
	if rule.Section == noSection {
		where = ""
	}
	switch {
	case len(failures) > 0:
		c.Failure = &junit.Message{Message: rule.Sentence + where, Type: rule.Severity.String(), Text: strings.Join(failures, "\n")}
	case r.skipped[rule.ID]:
		c.Skipped = &junit.Message{Message: "left out"}
	case rule.Needs&Where != 0 && r.nowhere:
		c.Skipped = &junit.Message{Message: limitSentences[LimitWhere]}
	case rule.Needs&Complete != 0 && r.partial:
		c.Skipped = &junit.Message{Message: notComplete}
	}
	c.Out = strings.Join(out, "\n")
	return c
}
