//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/conformance/suite"
)

// table has the results of every test in every column. Several columns may be filled at the
// same time, each by one goroutine.
type table struct {
	tests   []suite.Test
	meter   *progress.Meter
	columns []*results
	kernels []string
}

// results is a column with the result of each test.
type results struct {
	column
	of []suite.Result
}

// reserve adds a column.
func (t *table) reserve() *results {
	r := &results{of: slices.Repeat([]suite.Result{{Verdict: suite.Fail, Notes: []string{"not run"}}}, len(t.tests))}
	t.columns = append(t.columns, r)
	return r
}

// begin begins a Markdown file about the kernels.
func begin(b *bytes.Buffer, title string, kernels []string) {
	fmt.Fprintf(b, "# %s\n\nMade by `go run ./interop/conformance %s`", title, strings.Join(os.Args[1:], " "))
	if len(kernels) > 0 {
		fmt.Fprintf(b, " against %s", strings.Join(kernels, " and "))
	}
	b.WriteString(".\n\n")
}

// head begins a Markdown table.
func head(b *bytes.Buffer, columns ...string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

// row formats the line of a step, and notes below it. The name has a column of the given width.
func row(verdict, column string, width int, name string, took time.Duration, notes ...string) string {
	text := fmt.Sprintf("%s  %-18s  %-*s %5.2fs\n", verdict, column, width, name, took.Seconds())
	for _, n := range notes {
		text += "      " + strings.ReplaceAll(n, "\n", "\n      ") + "\n"
	}
	return text
}

// verdicts are the words in the output; CI counts lines that begin with pass and
// FAIL.
var verdicts = map[suite.Verdict]string{suite.Pass: "pass", suite.Deviates: "pass", suite.NotOffered: "none", suite.Fail: "FAIL"}

// record records a result and prints it.
func (t *table) record(c *results, i int, r suite.Result) {
	c.of[i] = r
	if r.Verdict == notApplicable {
		t.meter.Plan(-1, c.usual)
		return
	}
	t.meter.Step(c.usual, row(verdicts[r.Verdict], c.name, 40, t.tests[i].Name, r.Took, r.Notes...))
}

func (t *table) count(v ...suite.Verdict) (n int) {
	for _, c := range t.columns {
		for _, r := range c.of {
			if slices.Contains(v, r.Verdict) {
				n++
			}
		}
	}
	return n
}

func (t *table) failed() int { return t.count(suite.Fail) }

func (t *table) summary(w io.Writer) {
	fmt.Fprintf(w, "\nconformance: %d passed, %d of them with a known deviation of rxe, %d not offered, %d failed\n",
		t.count(suite.Pass, suite.Deviates), t.count(suite.Deviates), t.count(suite.NotOffered), t.failed())
	for _, c := range t.columns {
		for i, r := range c.of {
			if r.Verdict == suite.Fail {
				fmt.Fprintf(w, "failed: %s, %s\n", t.tests[i].Name, c.name)
			}
		}
	}
}

func (t *table) markdown() []byte {
	var b bytes.Buffer
	begin(&b, "Conformance", t.kernels)
	b.WriteString(`A test has the name of the corresponding test of rdma-core (pyverbs), if there is one. The tests are in ` + "`interop/conformance/suite`" + `.
A cell is the result of a test. The tests of pyverbs that need no peer are not in the table: pyverbs itself runs them, on this stack's libibverbs (` + "`make programs`" + `).

- **mem**: roce and roce over a switch in the process.
- **raw**: roce and roce over packet sockets on a veth pair. The network loses 1 %, duplicates 2 % and reorders 2 % of the packets
  in each direction; tests marked ◦ run without these faults, because they need a network that loses nothing.
- **A → B**: A requests, B responds. Tests of one side only are run once for each.
- **pass (n)**: passed; rxe departs from the standard as note n says. If rxe no longer does so, the test fails.
- **no**: rxe does not offer the feature. **no (roce)**: roce does not offer it. **–**: a test of one side only, which the previous column has run.

The verbs of rxe are called through libibverbs 44 (Debian 12). It cannot post FLUSH, which is posted with libibverbs 56.

`)
	columns := []string{"test", "checks"}
	for _, c := range t.columns {
		columns = append(columns, c.heading)
	}
	head(&b, columns...)
	var notes []string
	for i, test := range t.tests {
		mark := ""
		if test.Clean {
			mark = " ◦"
		}
		fmt.Fprintf(&b, "| %s%s | %s |", test.Name, mark, test.Checks)
		for _, c := range t.columns {
			fmt.Fprintf(&b, " %s |", cell(test.Name, c.of[i], &notes))
		}
		b.WriteByte('\n')
	}
	if len(notes) > 0 {
		b.WriteString("\n## Deviations of rxe\n\n")
		for i, n := range notes {
			fmt.Fprintf(&b, "%d. %s\n", i+1, n)
		}
	}
	return b.Bytes()
}

// cell renders one result, numbering its notes.
func cell(name string, r suite.Result, notes *[]string) string {
	switch r.Verdict {
	case suite.Pass:
		return "pass"
	case suite.NotOffered:
		if strings.HasSuffix(r.Notes[0], "roce") {
			return "**no (roce)**"
		}
		return "no"
	case suite.Fail:
		return "**FAIL**"
	case notApplicable:
		return "–"
	}
	var numbers []string
	for _, n := range r.Notes {
		n = name + ": " + n
		i := slices.Index(*notes, n)
		if i < 0 {
			i = len(*notes)
			*notes = append(*notes, n)
		}
		numbers = append(numbers, fmt.Sprint(i+1))
	}
	return "pass (" + strings.Join(numbers, ", ") + ")"
}
