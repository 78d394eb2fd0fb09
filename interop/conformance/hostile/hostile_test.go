package hostile

import (
	"testing"

	"github.com/goroce/roce/script"
)

// TestNames: every case has a unique name and a rule, and every departure of rxe has a reason.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		if seen[c.Name] || c.Name == "" || c.Rule == "" || c.Want == "" {
			t.Errorf("%s: %q has no proper title or rule, or its title is there twice", c.Script.Name, c.Name)
		}
		seen[c.Name] = true
		if c.Differs() && c.Why() == "" {
			t.Errorf("%s: a departure without a reason", c.Script.Name)
		}
	}
	if len(seen) < 100 {
		t.Errorf("%d cases", len(seen))
	}
}

// TestRunOutcomes: in a run, a case has the outcome of the same packets one by one, or another right one that depends on
// the time between them.
func TestRunOutcomes(t *testing.T) {
	run := script.Way{Mode: script.InRun}
	timed := Case{Want: "NAK; NAK; recv", Others: []string{"NAK; RNR; recv"}}
	plain := Case{Want: "NAK; recv"}
	for _, tt := range []struct {
		c         Case
		once, got string
		right     bool
	}{
		{timed, "NAK; recv", "NAK; RNR; recv", true},
		{timed, "NAK; RNR; recv", "NAK; recv", true},
		{timed, "NAK; recv", "recv", false},
		{plain, "NAK; RNR", "NAK; RNR", true},
		{plain, "NAK; RNR", "NAK; recv", false},
	} {
		if err := CheckWay(tt.c, run, Result{Got: tt.got}, "mem", tt.once); (err == nil) != tt.right {
			t.Errorf("%q, one by one %q: %v", tt.got, tt.once, err)
		}
	}
}
