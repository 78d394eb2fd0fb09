//go:build linux

package vm

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// withFiles keeps the archive of the image, and appends an archive that cpio can read.
func TestWithFiles(t *testing.T) {
	image, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(t.TempDir(), "x")
	for name, text := range map[string]string{filepath.Join(image, "vmlinuz"): "kernel", filepath.Join(image, "initrd.gz"): "first ", file: "12345"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := withFiles(dir, image, map[string]string{"/usr/bin/x": file, "/odd": file, "/opt/a/b": file}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "vmlinuz")); err != nil || string(b) != "kernel" {
		t.Errorf("%q, %v", b, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "initrd.gz"))
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := bytes.CutPrefix(b, []byte("first "))
	if !ok {
		t.Fatal("the archive of the image has changed")
	}
	z, err := gzip.NewReader(bytes.NewReader(rest))
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	cmd := exec.Command(cpio, "-t", "-v", "--quiet")
	cmd.Stdin = bytes.NewReader(archive)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "-rwxr-xr-x") != 3 || strings.Count(string(out), "drwxr-xr-x") != 4 || !strings.Contains(string(out), " 5 ") || !strings.Contains(string(out), "usr/bin/x\n") {
		t.Errorf("%v:\n%s", err, out)
	}
	if err := withFiles(t.TempDir(), image, map[string]string{"/x": "/no/such/file"}); err == nil {
		t.Error("a file that does not exist was added")
	}
}
