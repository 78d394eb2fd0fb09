package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHostile runs the programs in hostile on the real engine: each does something that no program should do. A
// program must exit with 0, in time.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the engine")
	}
	build := exec.Command("../../scripts/cverbs", "engine")
	build.Env = append(os.Environ(), "OUT="+built)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pid := os.Getpid()
	t.Setenv("ROCE_FLAGS", fmt.Sprintf("--link udp --dev 127.82.%d.%d,127.83.%[1]d.%[2]d", pid>>8&0xff, pid&0xff|1))
	programs := make(map[string]string)
	for _, line := range []string{
		"ends handler 2000", "ends handler 5777", "ends handler 9999", "ends handler 20000", "ends threads", "ends main",
		"memory target", "memory source", "memory file", "memory reuse",
		"faults sigaction", "faults signal", "faults early", "faults file", "faults past", "faults chain",
		"faults back", "faults once", "faults default", "faults sent", "faults fork",
		"fails", "orphan", "urgent", "receives limit", "receives threads", "receives full",
		"faults again", "faults meanwhile", "faults ignored", "faults nested", "faults stack", "faults vfork",
	} {
		argv := strings.Fields(line)
		if programs[argv[0]] == "" {
			programs[argv[0]] = compile(t, "hostile-"+argv[0], "-O1", "hostile/"+argv[0]+".c", "-L"+built, "-l:libibverbs.so.1", "-ldl", "-lpthread")
		}
		t.Run(strings.ReplaceAll(line, " ", "_"), func(t *testing.T) {
			runWith(t, filepath.Join(built, "libroce-engine.so"), "timeout", append([]string{"-s", "ABRT", "20", programs[argv[0]]}, argv[1:]...)...)
		})
	}
}
