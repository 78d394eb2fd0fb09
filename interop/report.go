//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// result is the outcome of one case on one kernel.
type result struct {
	kernel string
	name   string
	usual  time.Duration // how long the case usually takes while other cases run
	took   time.Duration
	err    error
	log    string // output of the commands
	notes  []string
}

// then returns the result of the next run of the same case, with the time of both.
func (r result) then(next result) result {
	next.took += r.took
	return next
}

// text returns the line of the result, followed by its error and notes.
func (r result) text(verbose bool) string {
	var w strings.Builder
	verdict := "pass"
	if r.err != nil {
		verdict = "FAIL"
	}
	fmt.Fprintf(&w, "%s  %-5s  %-45s %6.1fs\n", verdict, r.kernel, r.name, r.took.Seconds())
	if r.err != nil {
		fmt.Fprintf(&w, "      %s\n", strings.ReplaceAll(r.err.Error(), "\n", "\n      "))
	}
	for _, n := range r.notes {
		fmt.Fprintf(&w, "      %s\n", n)
	}
	if verbose && r.log != "" {
		fmt.Fprintf(&w, "      %s\n", strings.ReplaceAll(strings.TrimSpace(r.log), "\n", "\n      "))
	}
	return w.String()
}

// kernelLog is the name of the last case of every kernel.
const kernelLog = "kernel-log"

// report prints one row per case with a column per kernel, and returns the exit
// code: 0 if all cases have passed on all kernels that run them.
func report(w io.Writer, o *options, chosen []testCase, results []result, took time.Duration) int {
	var names []string
	for _, j := range jobs(chosen, o.hosts) {
		names = append(names, j.name())
	}
	names = append(names, kernelLog)
	passed, failed, missing := 0, 0, 0
	has := make(map[[2]string]bool) // by kernel and name
	for _, k := range o.kernels {
		for _, j := range jobs(o.casesOf(k, chosen)) {
			has[[2]string{k, j.name()}] = true
			has[[2]string{k, kernelLog}] = true
		}
	}
	cell := func(kernel, name string) string {
		i := slices.IndexFunc(results, func(r result) bool { return r.kernel == kernel && r.name == name })
		switch {
		case i < 0 && has[[2]string{kernel, name}]:
			missing++
			return "not run"
		case i < 0:
			return "–"
		case results[i].err != nil:
			return fmt.Sprintf("FAIL %5.1fs", results[i].took.Seconds())
		}
		return fmt.Sprintf("pass %5.1fs", results[i].took.Seconds())
	}
	for _, r := range results {
		if r.err == nil {
			passed++
		} else {
			failed++
		}
	}
	fmt.Fprintf(w, "\n%-45s", "case")
	for _, k := range o.kernels {
		fmt.Fprintf(w, "  %-12s", "Linux "+k)
	}
	fmt.Fprintln(w)
	for _, n := range names {
		fmt.Fprintf(w, "%-45s", n)
		for _, k := range o.kernels {
			fmt.Fprintf(w, "  %-12s", cell(k, n))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\ninterop: %d passed, %d failed in %.0f s\n", passed, failed, took.Seconds())
	if failed > 0 {
		fmt.Fprintf(w, "logs and captures: %s\n", o.out)
	}
	if failed+missing > 0 {
		return 1
	}
	return 0
}
