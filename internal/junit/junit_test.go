package junit

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// Write writes valid XML, whatever characters names and messages have, and the right counts.
func TestWrite(t *testing.T) {
	odd := "<a> & \"b\" 'c' ]]> \x00\x1b[31m\x7f\xff\ufffe é\n\t"
	s := Suite{Name: odd, Cases: []Case{
		{Class: odd, Name: odd, Seconds: 0.5},
		{Name: "failed", Failure: &Message{odd, odd, odd}, Out: odd},
		{Name: "failed, too", Failure: &Message{}},
		{Name: "skipped", Skipped: &Message{Message: odd}},
	}}
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Cases    []Case `xml:"testcase"`
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	if err := d.Decode(&got); err != nil {
		t.Fatalf("%v in:\n%s", err, b.String())
	}
	if got.Tests != 4 || got.Failures != 2 || got.Skipped != 1 || len(got.Cases) != 4 {
		t.Errorf("%+v", got)
	}
	want := "<a> & \"b\" 'c' ]]> \ufffd\ufffd[31m\x7f\ufffd\ufffd é\n\t"
	if f := got.Cases[1].Failure; got.Name != want || f == nil || f.Message != want || f.Text != want || got.Cases[1].Out != want {
		t.Errorf("got %q, want %q", got.Name, want)
	}
	if got.Cases[0].Seconds != 0.5 || got.Cases[0].Failure != nil {
		t.Errorf("%+v", got.Cases[0])
	}
}

// Several suites are one document, each with its own counts.
func TestWriteSuites(t *testing.T) {
	s := Suites{{Name: "one", Cases: []Case{{Name: "a"}, {Name: "b", Failure: &Message{Message: "no"}}}}, {Name: "none"}, {Name: "two", Cases: []Case{{Name: "c", Skipped: &Message{}}}}}
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []suite  `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatalf("%v in:\n%s", err, b.String())
	}
	counts := func(i int) [3]int { return [3]int{got.Suites[i].Tests, got.Suites[i].Failures, got.Suites[i].Skipped} }
	if len(got.Suites) != 3 || counts(0) != [3]int{2, 1, 0} || counts(1) != [3]int{} || counts(2) != [3]int{1, 0, 1} || got.Suites[2].Cases[0].Name != "c" {
		t.Errorf("%+v in:\n%s", got, b.String())
	}
}

// Write returns the error of its writer, at whatever byte the writer fails.
func TestWriteFails(t *testing.T) {
	s := Suite{Name: "x", Cases: []Case{{Name: "y"}}}
	var all strings.Builder
	if err := s.Write(&all); err != nil {
		t.Fatal(err)
	}
	for n := range all.Len() {
		if err := s.Write(&limited{n}); !errors.Is(err, io.ErrShortWrite) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

// limited takes n bytes.
type limited struct{ n int }

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.n {
		return 0, io.ErrShortWrite
	}
	l.n -= len(b)
	return len(b), nil
}
