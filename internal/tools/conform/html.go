package conform

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/goroce/roce/verify"
)

//go:embed card.html
var cardHTML string

var page = template.Must(template.New("card").Funcs(template.FuncMap{
	"plot": plot, "round": round, "mark": func(s Status) string { return marks[s] },
	"title":    func(section string) string { return sectionTitles[section] },
	"join":     func(list []string) string { return strings.Join(list, ", ") },
	"failure":  func(f Finding) bool { return f.failure() },
	"line":     func(f Finding) string { return f.String() },
	"severity": func(s verify.Severity) string { return s.String() },
	"date":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") },
	"meaning":  meaning,
}).Parse(cardHTML))

// meaning describes a kind of time.
func meaning(kind verify.LatencyKind) string {
	for _, k := range timeKinds {
		if k.kind == kind {
			return k.about
		}
	}
	return ""
}

// Failed reports whether the page lists the step among the failures.
func (s *StepResult) Failed() bool { return s.Status == Fail || s.Status == Warn }

// Failures counts the steps that failed, or in which the peer broke a recommendation of the standard.
func (c *Card) Failures() int { return c.count("", Fail) + c.count("", Warn) }

// WriteHTML prints the card as one HTML page. The page needs no script, no other file and no network.
func (c *Card) WriteHTML(w io.Writer) error {
	return page.Execute(w, struct {
		*Card
		Sections []cardSection
	}{c, c.sections()})
}
