package conform

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goroce/roce/verify"
)

// marks are the names of statuses on a card.
var marks = map[Status]string{Pass: "pass", Warn: "WARN", Fail: "FAIL", Unknown: "----"}

// WriteText prints the card.
func (c *Card) WriteText(out io.Writer) error {
	w := bufio.NewWriter(out) // keeps the first error
	fmt.Fprintf(w, "conformance of %s (%s): %s\n\n", c.Peer.Host, c.Peer.Kind, c.Sentence())
	c.writePeer(w)
	for _, section := range c.sections() {
		fmt.Fprintf(w, "\n%s\n", sectionTitles[section.Name])
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, s := range section.Steps {
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\n", marks[s.Status], s.Name, s.About, s.Extra())
		}
		tw.Flush()
	}
	c.writeFailures(w)
	c.writeRules(w)
	c.writeKnown(w)
	c.writeTimes(w)
	c.writeCounters(w)
	return w.Flush()
}

// sectionTitles are the headings of a card.
var sectionTitles = map[string]string{sectionClean: "Operations on a sound network", sectionFaults: "Faults in the path", sectionScripts: "Scripts"}

// Sentence returns the verdict with the numbers of steps and rules.
func (c *Card) Sentence() string {
	broken, unjudged := c.ruleCounts()
	parts := []string{map[Status]string{Pass: "PASS", Warn: "WARNINGS", Fail: "FAIL", Unknown: "NOTHING JUDGED"}[c.Verdict]}
	parts = append(parts, fmt.Sprintf("%d of %d steps pass", c.count("", Pass), len(c.Steps)))
	if broken > 0 {
		parts = append(parts, plural(broken, "rule")+" broken")
	}
	if n := c.differing(); n > 0 {
		parts = append(parts, plural(n, "counter")+" wrong")
	}
	if n := len(c.Known); n > 0 {
		parts = append(parts, plural(n, "known departure"))
	}
	if unjudged > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d rules not judged", unjudged, len(c.Rules)))
	}
	return strings.Join(parts, ", ")
}

func (c *Card) ruleCounts() (broken, unjudged int) {
	for i := range c.Rules {
		switch c.Rules[i].Status {
		case Fail, Warn:
			broken++
		case Unknown:
			unjudged++
		}
	}
	return broken, unjudged
}

// differing counts the counters that do not agree with the packets.
func (c *Card) differing() (n int) {
	for i := range c.Counters {
		if !c.Counters[i].Right() {
			n++
		}
	}
	return n
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (c *Card) writePeer(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(tw, "%s\t%s\n", name, value)
		}
	}
	line("peer", cmp.Or(c.Peer.Software, c.Peer.Kind))
	line("addresses", strings.Join(c.Peer.Addrs, ", "))
	line("path MTU", fmt.Sprint(c.Peer.MTU))
	line("tester", c.Tester+", driver "+c.Driver)
	line("date", c.Began.UTC().Format("2006-01-02 15:04 MST")+", "+c.Took.Round(100*time.Millisecond).String())
	tw.Flush()
	for _, h := range c.Peer.Hints {
		fmt.Fprintf(w, "the peer %s\n", h)
	}
	for _, n := range c.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}

// Extra returns further information about a step: faults, repetitions, and why it did not pass.
func (s *StepResult) Extra() string {
	var parts []string
	if s.Faults > 0 {
		parts = append(parts, plural(int(s.Faults), "fault"))
	}
	if s.Repeats != "" {
		parts = append(parts, "repeated: "+s.Repeats)
	}
	if s.Status != Pass {
		parts = append(parts, s.Why...)
	}
	return strings.Join(parts, "; ")
}

// writeFailures prints the failures of steps and the findings, with ladders.
func (c *Card) writeFailures(w io.Writer) {
	first := true
	head := func() {
		if first {
			fmt.Fprintf(w, "\nFailures\n")
		}
		first = false
	}
	for _, s := range c.Steps {
		if s.Status == Fail && len(s.Why) > 0 {
			head()
			fmt.Fprintf(w, "  %s: %s\n", s.Name, strings.Join(s.Why, "; "))
			indent(w, s.Ladder)
		}
		listed := map[verify.RuleID]int{}
		for i := range s.Findings {
			f := &s.Findings[i]
			if !f.failure() {
				continue
			}
			head()
			if listed[f.Rule]++; listed[f.Rule] > maxListed {
				continue
			}
			fmt.Fprintf(w, "  %s: %s\n", s.Name, f)
			indent(w, f.Ladder)
		}
		for _, r := range verify.Rules() {
			if n := listed[r.ID] - maxListed; n > 0 {
				fmt.Fprintf(w, "  %s: … and %d more of %s\n", s.Name, n, r.ID)
			}
		}
		if s.Script != "" && s.Status == Fail {
			head()
			indent(w, s.Script)
		}
	}
}

// maxListed is how many findings of a rule a step lists.
const maxListed = 3

// String describes the finding on a line.
func (f *Finding) String() string {
	var frames []string
	for _, n := range f.Frames {
		if n > 0 {
			frames = append(frames, strconv.Itoa(n))
		}
	}
	return fmt.Sprintf("%s %s (IBTA %s), frame %s: %s", f.Severity, f.Rule, f.Section, strings.Join(frames, ", "), f.Sentence)
}

// indent prints the lines of a text, indented.
func indent(w io.Writer, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "    %s\n", strings.TrimRight(line, " \n"))
	}
}

// writeRules prints the rules by their results: each rule that was broken, the number of rules that were kept, and the rules that were not judged.
func (c *Card) writeRules(w io.Writer) {
	fmt.Fprintf(w, "\nRules\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	kept := 0
	byWhy := map[string][]string{}
	var whys []string
	for i := range c.Rules {
		switch r := &c.Rules[i]; r.Status {
		case Fail, Warn:
			fmt.Fprintf(tw, "  %s\t%s\tbroken %s in %s: %s\n", marks[r.Status], r.ID, plural(r.Broken, "time"), strings.Join(r.Steps, ", "), r.Sentence)
		case Pass:
			kept++
		case Unknown:
			if byWhy[r.Why] == nil {
				whys = append(whys, r.Why)
			}
			byWhy[r.Why] = append(byWhy[r.Why], string(r.ID))
		}
	}
	fmt.Fprintf(tw, "  %s\t%s kept\n", marks[Pass], plural(kept, "rule"))
	tw.Flush()
	for _, why := range whys {
		fmt.Fprintf(w, "  %s  not judged, %s: %s\n", marks[Unknown], why, strings.Join(byWhy[why], ", "))
	}
}

func (c *Card) writeKnown(w io.Writer) {
	if len(c.Known) == 0 {
		return
	}
	fmt.Fprintf(w, "\nKnown departures and extensions\n")
	for _, k := range c.Known {
		fmt.Fprintf(w, "  %s, %s, rule %s: %s (%s, %s)\n", k.ID, plural(k.Times, "time"), k.Rule, k.Sentence, k.By, k.Doc)
	}
}

func (c *Card) writeTimes(w io.Writer) {
	if len(c.Times) == 0 {
		return
	}
	fmt.Fprintf(w, "\nTimes of the peer\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "time\tcount\tleast\tmedian\t90 %\t99 %\tmost\t")
	for _, t := range c.Times {
		fmt.Fprintf(tw, "%s\t%d\t%v\t%v\t%v\t%v\t%v\t\n", t.Kind, t.Count, round(t.Least), round(t.Median), round(t.P90), round(t.P99), round(t.Most))
	}
	tw.Flush()
}

// round rounds a duration, so that it has few digits.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(time.Millisecond)
	case d > time.Millisecond:
		return d.Round(time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}

func (c *Card) writeCounters(w io.Writer) {
	if len(c.Counters) == 0 {
		return
	}
	fmt.Fprintf(w, "\nCounters of the peer and the packets\n  %d of %d agree\n", len(c.Counters)-c.differing(), len(c.Counters))
	for i := range c.Counters {
		if k := &c.Counters[i]; !k.Right() {
			fmt.Fprintf(w, "  %s  %s: %s is %d, the packets say %d\n", marks[Warn], k.Step, k.Name, k.Peer, k.Trace)
		}
	}
}

// WriteJSON prints the card as one object.
func (c *Card) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(c)
}
