//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/conformance/suite"
)

// table has the results of every test in every column. Several columns may be filled at the
// same time.
type table struct {
	tests []suite.Test
	meter *progress.Meter

	mu      sync.Mutex
	columns []column
	results [][]suite.Result // by column and test
	kernels []string
}

// reserve adds a column and returns its index.
func (t *table) reserve() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.columns = append(t.columns, column{})
	t.results = append(t.results, make([]suite.Result, len(t.tests)))
	for i := range t.tests {
		t.results[len(t.results)-1][i] = suite.Result{Verdict: suite.Fail, Notes: []string{"not run"}}
	}
	return len(t.columns) - 1
}

func (t *table) head(at int, c column) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.columns[at] = c
}

// named records the release of a kernel.
func (t *table) named(i int, release string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kernels[i] = "Linux " + release
}

// verdicts are the words in the output; CI counts lines that begin with pass and
// FAIL.
var verdicts = map[suite.Verdict]string{suite.Pass: "pass", suite.Deviates: "pass", suite.NotOffered: "none", suite.Fail: "FAIL"}

// record records a result and prints it.
func (t *table) record(at, i int, r suite.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results[at][i] = r
	usual := t.columns[at].usual
	if r.Verdict == notApplicable {
		t.meter.Plan(-1, usual)
		return
	}
	text := fmt.Sprintf("%s  %-18s  %-40s %5.2fs\n", verdicts[r.Verdict], t.columns[at].name, t.tests[i].Name, r.Took.Seconds())
	for _, n := range r.Notes {
		text += fmt.Sprintf("      %s\n", strings.ReplaceAll(n, "\n", "\n      "))
	}
	t.meter.Step(usual, text)
}

func (t *table) count(v ...suite.Verdict) (n int) {
	for _, c := range t.results {
		for _, r := range c {
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
	for at, c := range t.results {
		for i, r := range c {
			if r.Verdict == suite.Fail {
				fmt.Fprintf(w, "failed: %s, %s\n", t.tests[i].Name, t.columns[at].name)
			}
		}
	}
}

func (t *table) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Conformance\n\nMade by `go run ./interop/conformance %s`", strings.Join(os.Args[1:], " "))
	if len(t.kernels) > 0 {
		fmt.Fprintf(&b, " against %s", strings.Join(t.kernels, " and "))
	}
	b.WriteString(`.

A test has the name of the corresponding test of rdma-core (pyverbs), if there is one. The tests are in ` + "`interop/conformance/suite`" + `.
A cell is the result of a test. The tests of pyverbs that need no peer are not in the table: pyverbs itself runs them, on this stack's libibverbs (` + "`make programs`" + `).

- **mem**: roce and roce over a switch in the process.
- **raw**: roce and roce over packet sockets on a veth pair. The network loses 1 %, duplicates 2 % and reorders 2 % of the packets
  in each direction; tests marked ◦ run without these faults, because they need a network that loses nothing.
- **A → B**: A requests, B responds. Tests of one side only are run once for each.
- **pass (n)**: passed; rxe departs from the standard as note n says. If rxe no longer does so, the test fails.
- **no**: rxe does not offer the feature. **no (roce)**: roce does not offer it. **–**: a test of one side only, which the previous column has run.

The verbs of rxe are called through libibverbs 44 (Debian 12). It cannot post FLUSH, which is posted with libibverbs 56.

`)
	b.WriteString("| test | checks |")
	for _, c := range t.columns {
		fmt.Fprintf(&b, " %s |", c.heading)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(t.columns)) + "\n")
	var notes []string
	for i, test := range t.tests {
		mark := ""
		if test.Clean {
			mark = " ◦"
		}
		fmt.Fprintf(&b, "| %s%s | %s |", test.Name, mark, test.Checks)
		for at := range t.columns {
			fmt.Fprintf(&b, " %s |", cell(test.Name, t.results[at][i], &notes))
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
