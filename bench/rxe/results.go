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
)

// results is everything that was measured.
type results struct {
	Date   string `json:"date"`
	Kernel string `json:"kernel"`
	Guest  string `json:"guest,omitempty"` // KVM or emulated, if it was one
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Rounds int    `json:"rounds"`
	Rows   []*row `json:"rows"`

	links []string
}

// row is one test.
type row struct {
	Test    string             `json:"test"`
	Program string             `json:"program"`
	Size    int                `json:"size"`
	Flags   string             `json:"flags,omitempty"`
	Unit    string             `json:"unit"`
	Better  string             `json:"better"` // higher or lower
	By      map[string]*series `json:"by"`
}

// series is what one contender has done, round by round.
type series struct {
	Rounds []sample `json:"rounds"`
	Median float64  `json:"median"`
	P99    float64  `json:"p99,omitempty"`
	Ratio  float64  `json:"ratio,omitempty"` // how many times as good as rxe
	Failed []string `json:"failed,omitempty"`
}

func (o *options) header() results {
	r := results{Date: time.Now().UTC().Format(time.RFC3339), Guest: o.guest, CPUs: o.cpus, Rounds: o.rounds}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		r.Kernel = strings.TrimSpace(string(b))
	}
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			r.CPU = strings.TrimLeft(strings.TrimSpace(name), ": \t")
			break
		}
	}
	for _, l := range o.links {
		r.links = append(r.links, ours{link: l}.name())
	}
	return r
}

// add notes a measurement.
func (r *results) add(t test, who string, v sample, err error) {
	i := slices.IndexFunc(r.Rows, func(row *row) bool { return row.Test == t.name })
	if i < 0 {
		better := "higher"
		if t.latency() {
			better = "lower"
		}
		i = len(r.Rows)
		r.Rows = append(r.Rows, &row{Test: t.name, Program: t.program, Size: t.size, Flags: t.flags, Unit: t.unit(), Better: better, By: map[string]*series{}})
	}
	s := r.Rows[i].By[who]
	if s == nil {
		s = new(series)
		r.Rows[i].By[who] = s
	}
	if err != nil {
		s.Failed = append(s.Failed, err.Error())
		return
	}
	s.Rounds = append(s.Rounds, v)
}

// settle computes medians and ratios.
func (r *results) settle() {
	for _, row := range r.Rows {
		for _, s := range row.By {
			s.Median = median(s.Rounds, func(v sample) float64 { return v.Value })
			s.P99 = median(s.Rounds, func(v sample) float64 { return v.P99 })
		}
		base := row.By[rxe{}.name()]
		for who, s := range row.By {
			if who == (rxe{}).name() || base == nil || base.Median == 0 || s.Median == 0 {
				continue
			}
			if s.Ratio = s.Median / base.Median; row.Better == "lower" {
				s.Ratio = 1 / s.Ratio
			}
		}
	}
}

// median is the middle one, of two the mean; 0 of none. Zeros do not count:
// perftest now and then prints a rate of 0 behind thousands of iterations.
func median(all []sample, of func(sample) float64) float64 {
	var v []float64
	for _, s := range all {
		if x := of(s); x != 0 {
			v = append(v, x)
		}
	}
	slices.Sort(v)
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[n/2] + v[(n-1)/2]) / 2
}

// markdown is the table for people.
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
		fmt.Fprintf(&b, "| %s | %s | %s |", row.Test, row.Unit, row.cell("rxe"))
		for _, l := range r.links {
			ratio := "–"
			if s := row.By[l]; s != nil && s.Ratio > 0 {
				ratio = fmt.Sprintf("%.2f", s.Ratio)
			}
			fmt.Fprintf(&b, " %s | %s |", row.cell(l), ratio)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell is a median, of a latency with its 99th percentile.
func (r *row) cell(who string) string {
	s := r.By[who]
	switch {
	case s == nil || len(s.Rounds) == 0:
		return "failed"
	case s.P99 > 0:
		return fmt.Sprintf("%.1f (99 %%: %.1f)", s.Median, s.P99)
	}
	return fmt.Sprintf("%.3g", s.Median)
}

// write writes everything.
func (r *results) write(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
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
