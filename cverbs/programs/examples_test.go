package programs

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// goExample is a program of the folder examples that does what an example of testdata/manuals does.
type goExample struct {
	name, c        string // of the folder, and of the example in C
	server, client string // command lines; see pair
}

var goExamples = []goExample{
	{"verbs-rc", "RDMA_RC_example", "verbs-rc -d {self} -p {port}", "verbs-rc -d {self} -p {port} {peer}"},
	{"rdma-flow", "flow", "rdma-flow -s {self} 7320", "rdma-flow -c {peer} 7320"},
	{"srq", "srq", "srq -s -a {self}", "srq -a {peer}"},
	{"apm", "apm", "apm -s -dev {self} -p 51217 -c 4", "apm -a {peer} -p 51217 -c 4 -m 2"},
	{"multicast", "mc", "multicast -m 239.77.1.4 -b {self} -c 2", "multicast -s -m 239.77.1.4 -b {self} -c 2"},
	{"kofi", "kofi", "kofi -s {self} 7340", "kofi {peer} 7340"},
}

// TestGoExamples runs each of the examples in Go against the one in C, in both roles. The C program
// runs on the libraries of this module; the Go program does not know of them.
func TestGoExamples(t *testing.T) {
	needs(t, "cc", "ss", "stdbuf")
	inC, inGo := t.TempDir(), t.TempDir()
	a, b := hosts(t, 4200)
	for n, g := range goExamples {
		t.Run(g.name, func(t *testing.T) {
			e := manual(t, g.c)
			e.compile(t, inC)
			build := exec.Command("go", "build", "-o", filepath.Join(inGo, g.name), "./examples/"+g.name)
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", build, err, out)
			}
			goServer, goClient := command{inGo + "/" + g.server, false}, command{inGo + "/" + g.client, false}
			cServer, cClient := command{inC + "/" + e.server, true}, command{inC + "/" + e.client, true}
			if e.tcp { // a port stays in use for a while
				e.port += 100 + 2*n
			}
			t.Run("serves", func(t *testing.T) { e.between(t, a, b, goServer, cClient, conditions[0]) })
			if e.tcp {
				e.port++
			}
			t.Run("calls", func(t *testing.T) { e.between(t, a, b, cServer, goClient, conditions[0]) })
		})
	}
}
