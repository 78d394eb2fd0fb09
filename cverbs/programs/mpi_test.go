package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// TestOpenMPI runs a program of four ranks, two on each of two hosts: a ring, an all-to-all and an
// all-reduce, whose results the ranks check, with one packet in a hundred lost.
func TestOpenMPI(t *testing.T) {
	needs(t, "mpirun", "mpicc")
	program := filepath.Join(t.TempDir(), "ring")
	if out, err := exec.Command("mpicc", "-O1", "-Wall", "-o", program, "testdata/ring.c").CombinedOutput(); err != nil {
		t.Fatalf("mpicc: %v\n%s", err, out)
	}
	for name, flags := range map[string][]string{
		"ucx": {"--mca", "pml", "ucx", "--mca", "btl", "^openib", "-x", "UCX_TLS=rc_v,self", "-x", "UCX_NET_DEVICES=roce0:1"},
		"ofi": {"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "btl", "^openib", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := hosts(t, 4200)
			// mpirun starts ranks on the other host with this replacement of ssh.
			agent := filepath.Join(t.TempDir(), "agent")
			script := "#!/bin/sh\nshift\nexec ip netns exec " + string(b.Netns) + " sh -c \"$*\"\n"
			if err := os.WriteFile(agent, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			argv := append([]string{"mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", "--host", fmt.Sprintf("%s:2,%s:2", a.ip4, b.ip4),
				"--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", "10.78.0.0/24", "--mca", "hwloc_base_binding_policy", "none",
			}, flags...)
			argv = append(append(argv, onStack("--loss tx=1% --seed 7")...), program)
			p, err := proc.Start(t.Context(), a.Argv(argv...)...)
			if err != nil {
				t.Fatal(err)
			}
			ended(t, p, 2*time.Minute)
			if good := regexp.MustCompile(`(?m)^4 ranks: ring, all-to-all and all-reduce are right$`); !good.MatchString(p.Output()) {
				t.Errorf("its output lacks %q:\n%s", good, p.Output())
			}
		})
	}
}
