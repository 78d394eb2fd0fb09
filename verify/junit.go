package verify

import (
	"encoding/xml"
	"io"
	"strings"
)

// The elements of JUnit's XML that are used.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
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

// WriteJUnit prints the report as JUnit's XML: a test for each rule, which fails if there are warnings or errors of it that no departure
// explains. Other findings are its output. Rules that were not applied at all are skipped.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{Name: strings.Join(r.Files, " ")}
	for i := range rules {
		c := r.junitCase(&rules[i])
		suite.Tests++
		if c.Failure != nil {
			suite.Failures++
		}
		if c.Skipped != nil {
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Report) junitCase(rule *Rule) junitCase {
	c := junitCase{Class: string(rule.Group), Name: string(rule.ID)}
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
		c.Failure = &junitMessage{rule.Sentence + where, rule.Severity.String(), strings.Join(failures, "\n")}
	case r.skipped[rule.ID]:
		c.Skipped = &junitMessage{Message: "left out"}
	case rule.Needs&Where != 0 && r.nowhere:
		c.Skipped = &junitMessage{Message: limitSentences[LimitWhere]}
	case rule.Needs&Complete != 0 && r.partial:
		c.Skipped = &junitMessage{Message: notComplete}
	}
	c.Out = strings.Join(out, "\n")
	return c
}
