package impair

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/goroce/roce/link/fault"
)

// ruleReport is a rule in the JSON form of a report.
type ruleReport struct {
	Name    string `json:"name,omitempty"`
	Line    int    `json:"line,omitempty"`
	Rule    string `json:"rule"`
	Matched uint64 `json:"matched"`
	Fired   uint64 `json:"fired"`
}

// describe joins the counters of rules with their names. rules are the rules of the file. all are the rules of the bridge: those of the
// file, and then those of flags.
func (r *Report) describe(rules []Rule, all []fault.Rule) []ruleReport {
	list := make([]ruleReport, 0, len(r.Rules))
	for i, c := range r.Rules {
		d := ruleReport{Rule: all[i].String(), Matched: c.Matched, Fired: c.Fired}
		if i < len(rules) {
			d.Name, d.Line = rules[i].Name, rules[i].Line
		}
		list = append(list, d)
	}
	return list
}

// WriteJSON writes the report as one JSON object on a line.
func (r *Report) WriteJSON(w io.Writer, rules []Rule, all []fault.Rule) error {
	return json.NewEncoder(w).Encode(struct {
		*Report
		Elapsed float64      `json:"seconds"`
		Rules   []ruleReport `json:"rules"`
	}{r, r.Elapsed.Seconds(), r.describe(rules, all)})
}

// WriteText writes the report as tables.
func (r *Report) WriteText(w io.Writer, rules []Rule, all []fault.Rule) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\treceived\tRoCE\tsent\toverrun\tunsent\tunusable\t\n")
	for _, s := range []*Side{&r.A, &r.B} {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Interface, s.Received, s.RoCE, s.Sent, s.Overrun, s.Unsent, s.Unusable)
	}
	fmt.Fprintf(t, "\n\tdropped\tduplicated\treordered\tdelayed\tcorrupted\trewritten\tmarked\tno room\t\n")
	for _, d := range []struct {
		name string
		c    *fault.Counters
	}{{"a-to-b", &r.AToB}, {"b-to-a", &r.BToA}} {
		c := d.c
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", d.name, c.Dropped, c.Duplicated, c.Reordered, c.Delayed, c.Corrupted, c.Rewritten, c.Marked, c.Overflow)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Rules) > 0 {
		fmt.Fprintf(w, "\n%10s %10s  rule\n", "matched", "fired")
	}
	for _, d := range r.describe(rules, all) {
		name := d.Rule
		if d.Name != "" {
			name = fmt.Sprintf("%s (line %d): %s", d.Name, d.Line, d.Rule)
		}
		fmt.Fprintf(w, "%10d %10d  %s\n", d.Matched, d.Fired, name)
	}
	_, err := fmt.Fprintf(w, "\n%d connections in %v\n", r.Connections, r.Elapsed.Round(time.Millisecond))
	if r.ForgottenConnections+r.ForgottenIterations > 0 {
		_, err = fmt.Fprintf(w, "note: there was more traffic at once than is remembered. %d connections in use were forgotten, and their packets counted as new ones; the transmissions to %d queue pairs in use were counted anew. Rules with connection, relative-psn or iteration may have missed packets\n",
			r.ForgottenConnections, r.ForgottenIterations)
	}
	return err
}
