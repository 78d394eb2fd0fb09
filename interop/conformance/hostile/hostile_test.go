package hostile

import "testing"

// TestNames: cases have names of their own, and differences belong to one.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		if seen[c.Name] || c.Name == "" || c.Rule == "" || c.Want == "" || c.Do == nil {
			t.Errorf("%q: no proper case, or twice", c.Name)
		}
		seen[c.Name] = true
	}
	for name, d := range differences {
		if !seen[name] || d.why == "" || len(d.rxe) == 0 {
			t.Errorf("%q: a difference without a case, or without words", name)
		}
	}
}
