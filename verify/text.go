package verify

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// maxListed is how many findings of a rule the text lists.
const maxListed = 10

// WriteText prints the report: the verdict, the findings, the known departures, the limits, the connections and the times.
func (r *Report) WriteText(out io.Writer) error {
	w := bufio.NewWriter(out) // keeps the first error
	fmt.Fprintf(w, "%s: %s, %d packets", cmp.Or(strings.Join(r.Files, " "), "-"), r.verdict(), r.Packets)
	if r.Doubles > 0 {
		fmt.Fprintf(w, ", %d captured twice", r.Doubles)
	}
	fmt.Fprintln(w)
	r.writeFindings(w)
	r.writeKnown(w)
	r.writeLimits(w)
	r.writeHalves(w)
	r.writeTimes(w)
	return w.Flush()
}

// verdict counts the findings by severity. With strict, those that are known departures are among them.
func (r *Report) verdict() string {
	var n [Error + 1]int
	known := 0
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Departure != nil {
			known++
		}
		if f.Departure == nil || r.strict {
			n[f.Severity]++
		}
	}
	var parts []string
	for s, n := range slices.Backward(n[:]) {
		if n > 0 {
			parts = append(parts, count(n, Severity(s).String()))
		}
	}
	if len(parts) == 0 {
		parts = []string{"right"}
	}
	switch {
	case known > 0 && r.strict:
		parts = append(parts, count(known, "known departure")+" among them")
	case known > 0:
		parts = append(parts, count(known, "known departure"))
	}
	return strings.Join(parts, ", ")
}

// count puts a number before a noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (r *Report) writeFindings(w io.Writer) {
	listed := map[RuleID]int{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Departure != nil {
			continue
		}
		if listed[f.Rule]++; listed[f.Rule] <= maxListed {
			fmt.Fprintln(w, f)
		}
	}
	for _, rule := range rules {
		if n := listed[rule.ID] - maxListed; n > 0 {
			fmt.Fprintf(w, "… and %d more of %s\n", n, rule.ID)
		}
	}
	if r.More > 0 {
		fmt.Fprintf(w, "… and %d more that are not kept\n", r.More)
	}
}

// writeKnown prints a line for each departure.
func (r *Report) writeKnown(w io.Writer) {
	for _, d := range departures {
		times, first := 0, Frame{}
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Departure != nil && f.Departure.ID == d.ID {
				if times++; times == 1 {
					first = f.Frames[len(f.Frames)-1]
				}
			}
		}
		if times > 0 {
			fmt.Fprintf(w, "known: %s, %s from frame %v, rule %s: %s (%s, %s)\n", d.ID, count(times, "time"), first, d.Rule, d.Sentence, d.By, d.Doc)
		}
	}
}

// writeLimits prints a line for each kind of limit.
func (r *Report) writeLimits(w io.Writer) {
	var kinds []string
	byKind := map[string][]Limit{}
	for _, l := range r.Limits {
		kind := string(l.Kind)
		if l.Rule != "" {
			kind += ", rule " + string(l.Rule)
		}
		if byKind[kind] == nil {
			kinds = append(kinds, kind)
		}
		byKind[kind] = append(byKind[kind], l)
	}
	for _, k := range kinds {
		first, times := byKind[k][0], 0
		for _, l := range byKind[k] {
			times += l.Count
		}
		where := ""
		if n := len(byKind[k]); n > 1 {
			where = fmt.Sprintf(" in %d flows, the first %s", n, first.Flow)
		} else if first.Flow != "" {
			where = " in " + first.Flow
		}
		from := ""
		if first.First.Number != 0 {
			from = fmt.Sprintf(" from frame %v", first.First)
		}
		fmt.Fprintf(w, "cannot tell: %s%s, %s%s: %s\n", k, where, count(times, "time"), from, first.Sentence)
	}
}

func (r *Report) writeHalves(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, h := range r.Halves {
		fmt.Fprintf(tw, "%s > %s\t%s\t%d requests\t%d messages\t%d responses\t%s\n", h.Requester, h.Responder, h.Transport, h.Requests, h.Messages, h.Responses, h.events())
	}
	tw.Flush()
}

// events lists losses and repetitions, "-" if there are none.
func (h *Half) events() string {
	var s []string
	c := &h.Repeated
	for _, e := range []struct {
		n    int
		what string
	}{
		{c.total(), "repeated:"}, {c.NAK, "after NAKs"}, {c.RNR, "after RNR NAKs"}, {c.Implied, "after later responses"}, {c.Timeout, "after timeouts"},
		{c.Early, "as probes"}, {c.GoBack, "behind a repeated one"}, {c.Needless, "in vain"}, {c.Copies, "copies by the network"},
		{h.Missing, "missing"}, {h.NAKs, "NAKs"}, {h.RNRs, "RNR NAKs"}, {h.Fatal, "fatal NAKs"},
	} {
		if e.n > 0 {
			s = append(s, fmt.Sprintf("%d %s", e.n, e.what))
		}
	}
	return strings.ReplaceAll(cmp.Or(strings.Join(s, ", "), "-"), ":,", ":")
}

func (r *Report) writeTimes(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(r.Times) > 0 {
		fmt.Fprintln(tw, "time\tcount\tleast\tmedian\t90 %\t99 %\tmost\t")
	}
	for _, l := range r.Times {
		fmt.Fprintf(tw, "%s\t%d\t%v\t%v\t%v\t%v\t%v\t\n", l.Kind, l.Count, round(l.Least), round(l.Median), round(l.P90), round(l.P99), round(l.Most))
	}
	tw.Flush()
	for _, c := range r.CNPs {
		fmt.Fprintf(w, "CNPs of one %s: %d distances, %v at least\n", c.Scope, c.Count, round(c.Least))
	}
}

// RulesText returns the tables of rules and departures as Markdown. It is the part of docs/verify-rules.md from the first table on.
func RulesText() string {
	var b strings.Builder
	var group Group
	for _, r := range rules {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "\n## %s%s\n\n| rule | IBTA | severity | |\n|---|---|---|---|\n", strings.ToUpper(string(group[:1])), group[1:])
		}
		mark := ""
		if r.Needs&Complete != 0 {
			mark += " ◇"
		}
		if r.Needs&Where != 0 {
			mark += " ◆"
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s |\n", r.ID, mark, r.Section, r.Severity, r.Sentence)
	}
	fmt.Fprintf(&b, "\n## Known departures and extensions\n\n| name | of | rule | | described in |\n|---|---|---|---|---|\n")
	sorted := slices.SortedStableFunc(slices.Values(departures), func(a, b Departure) int { return cmp.Compare(a.By, b.By) })
	for _, d := range sorted {
		page := strings.TrimPrefix(d.Doc, "docs/")
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | [%s](%s) |\n", d.ID, d.By, d.Rule, d.Sentence, page, page)
	}
	return b.String()
}
