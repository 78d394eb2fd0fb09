package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/roce/verify"
)

// A peer of this stack passes all steps: each operation in both directions, each fault of the wire, all counters.
func TestPasses(t *testing.T) {
	r := newRig(t)
	r.serve(t)
	r.cfg.Captures = filepath.Join(t.TempDir(), "steps")
	c := r.run(t, "")
	c.wantAll(t, Pass)
	if b := c.broken(); b != nil || c.Verdict != Pass && c.Verdict != Warn {
		t.Errorf("%s, broken rules %v", c.Verdict, b)
	}
	for _, k := range c.Counters {
		if !k.Right() {
			t.Errorf("%s: %s is %d, the packets say %d", k.Step, k.Name, k.Peer, k.Trace)
		}
	}
	if len(c.Counters) < 20 {
		t.Errorf("%d counters were compared", len(c.Counters))
	}
	for _, r := range c.Rules {
		// The peer rejects no connection and has no datagram service. The test has no limit for the rate of its CNPs.
		// Counters are compared above.
		beyond := slices.Contains([]verify.RuleID{"cm-mra", "cm-rejected", "cm-rej", "cm-sidr", "cnp-pacing"}, r.ID) || strings.HasPrefix(string(r.ID), "counter-")
		if (r.Status == Unknown) != beyond {
			t.Errorf("rule %s is %s: %s", r.ID, r.Status, r.Why)
		}
	}
	for _, k := range c.Known {
		if k.By != "this stack" {
			t.Errorf("the peer is taken for %s: %s", k.By, k.ID)
		}
	}
	if len(c.Times) < len(timeKinds)-1 {
		t.Errorf("%d times: %v", len(c.Times), c.Times)
	}
	files, err := os.ReadDir(r.cfg.Captures)
	if err != nil || len(files) != len(c.Steps) {
		t.Errorf("%d captures of %d steps: %v", len(files), len(c.Steps), err)
	}
	checkForms(t, c)
}

// checkForms checks that the card can be printed in all forms, each well-formed and complete.
func checkForms(t *testing.T, c *Card) {
	t.Helper()
	var text, page, junit, object bytes.Buffer
	for _, err := range []error{c.WriteText(&text), c.WriteHTML(&page), c.WriteJUnit(&junit), c.WriteJSON(&object)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range map[string][]byte{"HTML": page.Bytes(), "JUnit": junit.Bytes()} {
		for d := xml.NewDecoder(bytes.NewReader(b)); ; {
			_, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, b)
			}
		}
	}
	for _, s := range c.Steps {
		if !strings.Contains(text.String(), s.Name) || !strings.Contains(page.String(), s.Name) || !strings.Contains(junit.String(), s.Name) {
			t.Errorf("%s is missing in a card", s.Name)
		}
	}
	if c.Times != nil && !strings.Contains(page.String(), "<polyline") {
		t.Error("the page has no plot")
	}
	for _, word := range []string{"<script", "http://", "https://"} {
		if at := strings.Index(strings.ReplaceAll(page.String(), `xmlns="http://www.w3.org/2000/svg"`, ""), word); at >= 0 {
			t.Errorf("the page has %q", word)
		}
	}
	var again struct {
		Verdict Status
		Steps   []struct{ Name string }
		Rules   []struct{ ID, Status string }
	}
	if err := json.Unmarshal(object.Bytes(), &again); err != nil || len(again.Steps) != len(c.Steps) || again.Verdict != c.Verdict {
		t.Errorf("JSON: %v, %d steps", err, len(again.Steps))
	}
}

// A peer with a planted fault fails by the rule that it breaks, in the steps in which it breaks it, and in no other step.
func TestPlanted(t *testing.T) {
	for _, test := range []struct {
		name, rule string // rule is the planted fault, in the form of the flags
		only       string
		broken     []verify.RuleID
		why        string // why a step fails that has no broken rule
		passes     []string
	}{
		{"another version", "rewrite,tx,op=RC_SEND_ONLY,nth=1,set.tver=3", "clean/(send|write)/", []verify.RuleID{"bth-version"}, "", []string{"clean/send/tester", "clean/write/tester", "clean/write/peer"}},
		{"a wrong ICRC", "corrupt,tx,op=RC_WRITE_LAST,nth=1", "clean/(send|write)/", []verify.RuleID{"icrc"}, "", []string{"clean/send/tester", "clean/send/peer", "clean/write/tester"}},
		{"a reserved syndrome", "rewrite,tx,op=RC_ACKNOWLEDGE,nth=2,set.syndrome=0x7f", "clean/(write|read)/", []verify.RuleID{"aeth-syndrome"}, "", []string{"clean/read/tester", "clean/read/peer", "clean/write/peer"}},
		{"a message too many", "rewrite,tx,op=RC_ACKNOWLEDGE,nth=2,set.msn=0x1000", "clean/(write|read)/", []verify.RuleID{"msn-count"}, "", []string{"clean/read/tester", "clean/read/peer", "clean/write/peer"}},
		{"a NAK that it has not counted so", "rewrite,tx,op=RC_ACKNOWLEDGE,rel=11,nth=1,set.syndrome=0x2c", "drop-middle/(read|write)/tester", nil, "", []string{"drop-middle/read/tester"}},
		{"an atomic executed twice", "rewrite,tx,op=RC_ATOMIC_ACKNOWLEDGE,iter=2,set.msn=0", "drop-answer/atomic/tester", []verify.RuleID{"msn-count"}, "", nil},
		{"READ responses twice", "dup,tx,op=RC_READ_RESPONSE_MIDDLE,nth=1", "clean/(write|read)/", []verify.RuleID{"read-gap", "read-redundant"}, "", []string{"clean/read/peer", "clean/write/tester", "clean/write/peer"}},
		{"wrong data", "corrupt,tx,op=RC_READ_RESPONSE_LAST,nth=1,icrc=right", "clean/(write|read)/", nil, "data mismatch", []string{"clean/read/peer", "clean/write/tester", "clean/write/peer"}},
		{"a CNP of another form", "rewrite,tx,op=CNP,nth=1,set.fecn=1", "mark/(send|write)/tester", []verify.RuleID{"cnp-format"}, "", []string{"mark/write/tester"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, rule(t, test.rule))
			r.serve(t)
			c := r.run(t, test.only)
			if got := c.broken(); !slices.Equal(got, test.broken) {
				t.Errorf("broken: %v, want %v", got, test.broken)
			}
			if c.Verdict == Pass || c.Verdict == Unknown {
				t.Errorf("the card says %s", c.Verdict)
			}
			why := ""
			for _, s := range c.Steps {
				why += strings.Join(s.Why, " ")
				if slices.Contains(test.passes, s.Name) && s.Status != Pass {
					t.Errorf("%s is %s: %v %v", s.Name, s.Status, s.Why, s.Findings)
				}
			}
			if !strings.Contains(why, test.why) {
				t.Errorf("the steps say %q, want %q", why, test.why)
			}
			var text bytes.Buffer
			c.WriteText(&text)
			for _, id := range test.broken {
				if !strings.Contains(text.String(), string(id)+" (IBTA") || !strings.Contains(text.String(), "|--") {
					t.Errorf("the card has no ladder of %s:\n%s", id, &text)
				}
			}
			checkForms(t, c)
		})
	}
}

// A peer whose packets have M = 0, as those of rxe, has a known departure from the standard. If the tester is strict, the peer fails.
func TestKnownDeparture(t *testing.T) {
	for _, strict := range []bool{false, true} {
		r := newRig(t, rule(t, "rewrite,tx,set.migreq=0"))
		r.serve(t)
		r.cfg.Strict = strict
		c := r.run(t, "clean/write/")
		known := len(c.Known) == 1 && c.Known[0].ID == "rxe-migreq"
		i := slices.IndexFunc(c.Rules, func(r RuleResult) bool { return r.ID == "bth-migreq" })
		if m := &c.Rules[i]; known == strict || (m.Departure > 0) == strict || (m.Notes > 0) != strict { // a departure is a note, which is no failure
			t.Errorf("strict %v: %s, rule %+v, known %v", strict, c.Verdict, m, c.Known)
		}
	}
}

// Each rule of package verify has a list of the situations that it needs, and the list names no other rules.
func TestNeeds(t *testing.T) {
	have := map[verify.RuleID]bool{}
	for _, r := range verify.Rules() {
		have[r.ID] = true
		if len(needs[r.ID]) == 0 {
			t.Errorf("rule %s needs no situation", r.ID)
		}
	}
	for id := range needs {
		if !have[id] {
			t.Errorf("no rule is named %s", id)
		}
	}
	reported := map[verify.LatencyKind]bool{}
	for _, k := range timeKinds {
		reported[k.kind] = true
	}
	if len(reported) != 7 {
		t.Errorf("%d kinds of times", len(reported))
	}
}

// Each rule file belongs to an experiment, and each experiment has one.
func TestRuleFiles(t *testing.T) {
	named := map[string]bool{}
	for _, e := range slices.Concat(experiments, rpingOnly) {
		if _, err := e.load(); err != nil {
			t.Error(err)
		}
		if named[e.name] {
			t.Errorf("two experiments are called %s", e.name)
		}
		named[e.name] = true
	}
	all, err := fs.Glob(files, "faults/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if name := strings.TrimSuffix(filepath.Base(f), ".yaml"); !named[name] {
			t.Errorf("%s belongs to no experiment", f)
		}
	}
	for _, n := range rpingExperiments {
		if !named[n] {
			t.Errorf("rping has no experiment %s", n)
		}
	}
}

// The names of steps are unique for each kind of peer, and steps can be chosen by name.
func TestList(t *testing.T) {
	for _, kind := range Peers {
		list, err := List(Config{Peer: kind, Only: regexp.MustCompile("^clean/")})
		if err != nil || len(list) == 0 {
			t.Errorf("%s: %v", kind, err)
		}
		all, err := List(Config{Peer: kind})
		if err != nil || len(all) <= len(list) {
			t.Errorf("%s: %d steps, %v", kind, len(all), err)
		}
		names := map[string]bool{}
		for _, s := range all {
			if names[s.Name] || s.About == "" {
				t.Errorf("%s: step %s is there twice, or says nothing", kind, s.Name)
			}
			names[s.Name] = true
		}
	}
}

// A test without a step is an error.
func TestNoStep(t *testing.T) {
	r := newRig(t)
	r.serve(t)
	r.cfg.Only = regexp.MustCompile("nothing")
	if c, err := Run(t.Context(), r.cfg); err == nil || !strings.Contains(err.Error(), "--list") {
		t.Errorf("%v, %v", c, err)
	}
}

// An interrupted test returns a card of the steps that were done.
func TestInterrupted(t *testing.T) {
	r := newRig(t)
	r.serve(t)
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("the operator has had enough")
	r.cfg.Only = regexp.MustCompile("clean/(send|write)/")
	r.cfg.Stepped = func(StepResult) { stop(why) }
	c, err := Run(ctx, r.cfg)
	if !errors.Is(err, why) || c == nil || len(c.Steps) != 4 || c.Steps[0].Status != Pass || c.Steps[1].Status != Unknown {
		t.Fatalf("%v, %+v", err, c)
	}
	checkForms(t, c)
}

// The scripts for a peer that is a server pass, and fail if the peer has a fault.
func TestScripts(t *testing.T) {
	r := newRig(t)
	r.serve(t)
	r.cfg.Wire, r.cfg.Kind, r.cfg.Captures = r.wire, "us", t.TempDir()
	c := r.run(t, "^script/(sequence|keys)/")
	c.wantAll(t, Pass)
	if len(c.Steps) < 20 || c.Verdict != Pass {
		t.Errorf("%s after %d scripts", c.Verdict, len(c.Steps))
	}
	checkForms(t, c)

	wrong := newRig(t, rule(t, "rewrite,tx,op=RC_ACKNOWLEDGE,set.syndrome=0x62"))
	wrong.serve(t)
	wrong.cfg.Wire, wrong.cfg.Kind = wrong.wire, "us"
	c = wrong.run(t, "^script/(headers/in-order|headers/wrong-icrc)$")
	if c.Verdict != Fail || c.count("", Fail) != 1 {
		t.Errorf("%s, %d scripts fail", c.Verdict, c.count("", Fail))
	}
	var text bytes.Buffer
	c.WriteText(&text)
	if !strings.Contains(text.String(), "script/headers/in-order: ") || !strings.Contains(text.String(), "expected") {
		t.Errorf("the card does not show what was expected:\n%s", &text)
	}
	checkForms(t, c)
}
