package share

import (
	"os"
	"path/filepath"
	"testing"
)

// In a user namespace that does not map all users, the number of nobody may stand for any
// unmapped user.
func TestCertain(t *testing.T) {
	for _, c := range []struct {
		idMap, overflow string
		id              uint32
		want            bool
	}{
		{"         0          0 4294967295\n", "65534\n", 65534, true},
		{"         0          0 4294967295\n", "65534\n", 1000, true},
		{"     65534      65534          1\n", "65534\n", 65534, false},
		{"      1000       1000          1\n", "65534\n", 1000, true},
		{"      1000       1000          1\n", "99\n", 99, false},
		{"         0       1000          1\n         1     100000      65536\n", "65534\n", 65534, false},
		{"         0       1000          1\n         1     100000      65536\n", "65534\n", 0, true},
		{"", "", 65534, true},
		{"     65534      65534          1\n", "", 65534, false},
	} {
		dir := t.TempDir()
		idMap, overflow := filepath.Join(dir, "map"), filepath.Join(dir, "overflow")
		for name, text := range map[string]string{idMap: c.idMap, overflow: c.overflow} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := certain(idMap, overflow)(c.id); got != c.want {
			t.Errorf("%d with map %q: %v, want %v", c.id, c.idMap, got, c.want)
		}
	}
}
