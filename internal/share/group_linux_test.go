package share

import (
	"os"
	"path/filepath"
	"testing"
)

// The group that may share is the one named in a file that belongs to root and that only root
// can write.
func TestSharingGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have files of root and of another user")
	}
	defer func(name string) { groupFile = name }(groupFile)
	for i, c := range []struct {
		text string
		mode os.FileMode
		user int
		gid  uint32
		ok   bool
	}{
		{"4242\n", 0o644, 0, 4242, true},
		{"root", 0o600, 0, 0, true},
		{"4242", 0o664, 0, 0, false},
		{"4242", 0o646, 0, 0, false},
		{"4242", 0o644, 1, 0, false},
		{"no such group", 0o644, 0, 0, false},
		{"", 0o644, 0, 0, false},
	} {
		groupFile = filepath.Join(t.TempDir(), "group")
		if err := os.WriteFile(groupFile, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(groupFile, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(groupFile, c.user, 0); err != nil {
			t.Fatal(err)
		}
		if gid, ok := sharingGroup(); ok != c.ok || ok && gid != c.gid {
			t.Errorf("case %d: group %d, %v; want %d, %v", i, gid, ok, c.gid, c.ok)
		}
	}
	groupFile = filepath.Join(t.TempDir(), "none")
	if _, ok := sharingGroup(); ok {
		t.Error("a group without a file")
	}
}
