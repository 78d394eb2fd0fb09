package hostile

import "testing"

// TestNames: cases have names of their own and rules, and departures of rxe have reasons.
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
