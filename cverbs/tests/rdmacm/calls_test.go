package rdmacm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestCalls runs the tests written in C: each test of a program's table in a separate process.
func TestCalls(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	n, _ := network(t)
	lib := must[string](t)(libraries())
	for _, name := range []string{"objects", "connections", "sockets", "datagrams", "newer"} {
		source := filepath.Join("c", name+".c")
		bin := filepath.Join(t.TempDir(), name)
		if err := output(exec.Command(cc, "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-o", bin, source, filepath.Join("c", "check.c"),
			"-L"+lib, "-l:librdmacm.so.1", "-l:libibverbs.so.1", "-lpthread")); err != nil {
			t.Fatal(err)
		}
		text := must[[]byte](t)(os.ReadFile(source))
		for _, m := range regexp.MustCompile(`(?m)^\t\{"(.*)", \w+\},$`).FindAllSubmatch(text, -1) {
			t.Run(name+"/"+string(m[1]), func(t *testing.T) {
				start(t, n, []string{"AT=" + serverA}, bin, string(m[1])).succeeds(t)
			})
		}
	}
}
