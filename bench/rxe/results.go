//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/stats"
)

// results is everything that was measured.
type results struct {
	result.RXE
	links []string
}

// header describes this run.
func (o *options) header() results {
	var u unix.Utsname
	unix.Uname(&u)
	r := results{RXE: result.RXE{Date: time.Now().UTC().Format(time.RFC3339), Guest: o.guest, CPUs: o.cpus, Rounds: o.rounds, Run: o.run.String(),
		Kernel: unix.ByteSliceToString(u.Release[:]), CPU: lab.CPUModel()}}
	for _, l := range o.links {
		r.links = append(r.links, ours{link: l}.name())
	}
	for _, l := range o.links {
		r.links = append(r.links, libraries{link: l}.name())
	}
	return r
}

func (r *results) add(t test, who string, v result.RXESample, err error) {
	i := slices.IndexFunc(r.Rows, func(row *result.RXERow) bool { return row.Test == t.name })
	if i < 0 {
		better := "higher"
		if t.latency() {
			better = "lower"
		}
		i = len(r.Rows)
		r.Rows = append(r.Rows, &result.RXERow{Test: t.name, Program: t.program, Size: t.size, Flags: t.flags, Unit: t.unit(), Better: better, By: map[string]*result.RXESeries{}})
	}
	s := r.Rows[i].By[who]
	if s == nil {
		s = new(result.RXESeries)
		r.Rows[i].By[who] = s
	}
	if err != nil {
		s.Failed = append(s.Failed, err.Error())
		return
	}
	s.Rounds = append(s.Rounds, v)
}

// summarize computes medians and ratios.
func (r *results) summarize() {
	for _, row := range r.Rows {
		for _, s := range row.By {
			s.Median = median(s.Rounds, func(v result.RXESample) float64 { return v.Value })
			s.P99 = median(s.Rounds, func(v result.RXESample) float64 { return v.P99 })
		}
		base := row.Series(rxe{}.name()).Median
		for who, s := range row.By {
			if who == (rxe{}).name() {
				continue
			}
			if s.Ratio = stats.Ratio(s.Median, base); row.Better == "lower" {
				s.Ratio = stats.Ratio(base, s.Median)
			}
		}
	}
}

// median returns the median of the values other than 0: perftest sometimes prints a rate of 0
// after thousands of iterations.
func median(all []result.RXESample, of func(result.RXESample) float64) float64 {
	var v []float64
	for _, s := range all {
		if x := of(s); x != 0 {
			v = append(v, x)
		}
	}
	return stats.Median(v)
}

// markdown returns a table for people.
func (r *results) markdown() string {
	var b strings.Builder
	machine := r.CPU
	if r.Guest != "" {
		machine = "guest " + r.Guest + ", " + machine
	}
	fmt.Fprintf(&b, "Linux %s, %s, %d processor(s), medians of %d rounds. Ratio: how many times as good as rxe.\n\n", r.Kernel, machine, r.CPUs, r.Rounds)
	b.WriteString("| test | | rxe |")
	for _, l := range r.links {
		fmt.Fprintf(&b, " %s | ratio |", l)
	}
	b.WriteString("\n|---|---|---:|" + strings.Repeat("---:|---:|", len(r.links)) + "\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| %s | %s | %s |", row.Test, row.Unit, cell(row, "rxe"))
		for _, l := range r.links {
			ratio := "–"
			if s := row.Series(l); s.Ratio > 0 {
				ratio = fmt.Sprintf("%.2f", s.Ratio)
			}
			fmt.Fprintf(&b, " %s | %s |", cell(row, l), ratio)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell formats a median, for a latency with the 99th percentile.
func cell(r *result.RXERow, who string) string {
	s := r.Series(who)
	switch {
	case len(s.Rounds) == 0 && len(s.Failed) == 0:
		return "–"
	case len(s.Rounds) == 0:
		return "failed"
	case s.P99 > 0:
		return fmt.Sprintf("%.1f (99 %%: %.1f)", s.Median, s.P99)
	}
	return fmt.Sprintf("%.3g", s.Median)
}

func (r *results) write(file string) error {
	b, err := json.MarshalIndent(r.RXE, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(file, append(b, '\n'))
}

func writeFile(file string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
