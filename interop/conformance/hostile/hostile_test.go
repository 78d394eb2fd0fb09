package hostile

import "testing"

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
