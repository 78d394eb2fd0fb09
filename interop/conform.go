//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// The rows of rocectl conform: it tests rxe, with common programs as the peer. The report card must contain only the
// known departures of rxe from the standard.

// tested is the extent of the test in such a row.
type tested struct {
	peer string // of rocectl conform --peer; empty: not a row of rocectl conform
	only string // steps that run without -all
	args []string
}

var (
	byPerftest = tested{peer: "perftest", args: []string{"--peer-args", "-x 1"},
		only: "clean/(send|write|read)-(1|mtu)/tester|clean/(atomic|uc-send|ud)/tester|clean/(send|write|read)-long/|(drop-middle|drop-nak|corrupt)/"}
	byRping = tested{peer: "rping"}
)

// operations matches all steps except the scripts, which have separate tests (make conformance).
const operations = "^[^s]"

// judged is the scenario of these rows.
var judged = scenario{run: (*caseRun).conform, limit: 10 * time.Minute}

// reportCard has the parts of a report card that are checked.
type reportCard struct {
	Verdict string
	Known   []struct {
		ID, By string
		Times  int
	}
	Steps []struct {
		Name, Status string
		Why          []string
	}
	Rules []struct {
		ID, Status string
		Steps      []string
	}
}

// conform tests the peer, and checks the report card.
func (r *caseRun) conform() error {
	g, ok := r.sides[server].(*guest)
	if !ok {
		return errors.New("the case needs a guest as the server")
	}
	t := r.tested
	args := append([]string{"conform", "--peer", t.peer, "--dev", r.bed.peer.dev, "--kind", "rxe-" + r.bed.kernel, "--port", fmt.Sprint(r.par.port)}, t.args...)
	only := operations
	if t.only != "" && !r.bed.o.all {
		only = t.only
	}
	args = append(args, "--only", only)
	argv := func(more ...string) []string {
		return r.bed.ns.Argv(slices.Concat([]string{r.bed.o.rocectl}, args, more, []string{g.addr(r.v6)})...)
	}
	commands, err := proc.Run(r.ctx, argv("--commands")...)
	if err != nil {
		return err
	}
	servers, err := g.vm.Start(r.limit(), "sh", "-c", commands)
	if err != nil {
		return err
	}
	r.procs = append(r.procs, &started{Proc: servers, side: g})
	p, err := proc.Start(r.ctx, argv("--json", "--wait", "60s", "--limit", "2m", "--captures", filepath.Join(r.dir, "steps"), "--html", filepath.Join(r.dir, "card.html"))...)
	if err != nil {
		return err
	}
	s := &started{Proc: p, role: client, side: r.sides[client]}
	r.procs = append(r.procs, s)
	e, err := r.wait(s)
	if err != nil {
		return err
	}
	return r.judgeCard(e, p.Output())
}

// judgeCard checks that the card contains only known departures of rxe.
func (r *caseRun) judgeCard(e proc.Exit, output string) error {
	at := strings.Index(output, `{"tester"`)
	if at < 0 {
		return fmt.Errorf("rocectl conform printed no card: %v", e)
	}
	var c reportCard
	if err := json.NewDecoder(strings.NewReader(output[at:])).Decode(&c); err != nil {
		return fmt.Errorf("the card: %w", err)
	}
	passed := 0
	var wrong []string
	for _, s := range c.Steps {
		switch s.Status {
		case "pass":
			passed++
		case "fail", "warning":
			wrong = append(wrong, s.Name+": "+strings.Join(s.Why, "; "))
		default:
			r.notes = append(r.notes, s.Name+": "+strings.Join(s.Why, "; "))
		}
	}
	for _, rule := range c.Rules {
		if rule.Status == "fail" || rule.Status == "warning" {
			wrong = append(wrong, fmt.Sprintf("rule %s in %s", rule.ID, strings.Join(rule.Steps, ", ")))
		}
	}
	var known []string
	recognised := false
	for _, k := range c.Known {
		recognised = recognised || k.ID == "rxe-migreq"
		if k.By != "Linux rxe" {
			wrong = append(wrong, "rxe has the extension "+k.ID+" of this stack")
		}
		known = append(known, fmt.Sprintf("%s %d", k.ID, k.Times))
	}
	r.notes = append(r.notes, fmt.Sprintf("%d steps pass, known departures: %s", passed, strings.Join(known, ", ")))
	switch {
	case len(wrong) > 0:
		return fmt.Errorf("the card is %s: %s", c.Verdict, strings.Join(wrong, "; "))
	case passed == 0:
		return fmt.Errorf("no step passed: %v", e)
	case !recognised:
		return errors.New("the card does not know rxe by its M bit")
	}
	return nil
}

// conformCases are the rows of rocectl conform.
func conformCases() []testCase {
	var all []testCase
	for _, t := range []struct {
		tool *tool
		tested
	}{{writeBW, byPerftest}, {rping, byRping}} {
		all = append(all, testCase{tool: t.tool, linux: server, impair: impairment{name: clean.name}, scenario: judged, mtu: defaultMTU, tested: t.tested})
	}
	return all
}
