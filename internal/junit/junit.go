// Package junit writes the results of tests as JUnit's XML, which CI systems read.
package junit

import (
	"encoding/xml"
	"io"
)

// Suite is a set of tests.
type Suite struct {
	Name  string
	Cases []Case
}

// Case is a test. It has passed if it has neither failed nor been skipped.
type Case struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Seconds float64  `xml:"time,attr,omitempty"`
	Failure *Message `xml:"failure,omitempty"`
	Skipped *Message `xml:"skipped,omitempty"`
	Out     string   `xml:"system-out,omitempty"`
}

// Message says why a test has failed or was skipped.
type Message struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// Write writes the suite. Characters that XML cannot have are replaced.
func (s *Suite) Write(w io.Writer) error { return write(w, s.element()) }

// Suites are several sets of tests.
type Suites []Suite

// Write writes the suites, as one document. Characters that XML cannot have are replaced.
func (s Suites) Write(w io.Writer) error {
	out := struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []suite
	}{}
	for i := range s {
		out.Suites = append(out.Suites, s[i].element())
	}
	return write(w, out)
}

// suite is the element of a Suite.
type suite struct {
	XMLName  xml.Name `xml:"testsuite"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Cases    []Case   `xml:"testcase"`
}

// element counts the tests.
func (s *Suite) element() suite {
	out := suite{Name: s.Name, Tests: len(s.Cases), Cases: s.Cases}
	for i := range s.Cases {
		switch c := &s.Cases[i]; {
		case c.Failure != nil:
			out.Failures++
		case c.Skipped != nil:
			out.Skipped++
		}
	}
	return out
}

func write(w io.Writer, element any) error {
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(element); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
