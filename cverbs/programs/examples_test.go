package programs

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// goExample is a program of the folder examples that does the same as an example of testdata/manuals.
type goExample struct {
	name, c        string    // of the folder, and of the example in C
	server, client string    // command lines; see pair
	prints         [2]string // output of the server and the client, if it differs from the example in C
}

var goExamples = []goExample{
	{name: "verbs-rc", c: "RDMA_RC_example", server: "verbs-rc -d {self} -p {port}", client: "verbs-rc -d {self} -p {port} {peer}"},
	{name: "rdma-flow", c: "flow", server: "rdma-flow -s {self} 7320", client: "rdma-flow -c {peer} 7320"},
	{name: "srq", c: "srq", server: "srq -s -a {self}", client: "srq -a {peer}"},
	{name: "apm", c: "apm", server: "apm -s -dev {self} -p 51217 -c 4", client: "apm -a {peer} -p 51217 -c 4 -m 2"},
	{name: "multicast", c: "mc", server: "multicast -m 239.77.1.4 -b {self} -c 2", client: "multicast -s -m 239.77.1.4 -b {self} -c 2"},
	{name: "multicast", c: "mckey", server: "multicast -m 239.77.1.3 -b {self} -c 20 -l 100", client: "multicast -s -m 239.77.1.3 -b {self} -c 20 -l 100",
		prints: [2]string{"received message 20", "sent message 20"}},
	{name: "kofi", c: "kofi", server: "kofi -s {self} 7340", client: "kofi {peer} 7340"},
}

// TestGoExamples runs each example in Go against the one in C, in both roles. The C program uses the libraries of
// this module; the Go program does not.
func TestGoExamples(t *testing.T) {
	needs(t, "cc", "ss", "stdbuf")
	inC, inGo := t.TempDir(), t.TempDir()
	a, b := hosts(t, 4200)
	for n, g := range goExamples {
		t.Run(g.name+" and "+g.c, func(t *testing.T) {
			e := manual(t, g.c)
			e.compile(t, inC)
			build := exec.Command("go", "build", "-o", filepath.Join(inGo, g.name), "./examples/"+g.name)
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", build, err, out)
			}
			goServer, goClient := command{inGo + "/" + g.server, false}, command{inGo + "/" + g.client, false}
			cServer, cClient := command{inC + "/" + e.server, true}, command{inC + "/" + e.client, true}
			serves, calls := e, e
			if e.tcp { // a port stays in use for a while
				serves.port += 100 + 2*n
				calls.port += 101 + 2*n
			}
			if g.prints[0] != "" {
				serves.wantServer, calls.wantClient = g.prints[:1], g.prints[1:]
			}
			t.Run("serves", func(t *testing.T) { serves.between(t, a, b, goServer, cClient, conditions[0]) })
			t.Run("calls", func(t *testing.T) { calls.between(t, a, b, cServer, goClient, conditions[0]) })
		})
	}
}
