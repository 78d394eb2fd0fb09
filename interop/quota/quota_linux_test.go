package quota

import (
	"os/exec"
	"testing"
	"time"

	"github.com/goroce/roce/internal/netlab"
)

// The kernel stops a process with a quota again and again. After the group is closed the process runs
// without a quota.
func TestQuota(t *testing.T) {
	g, err := New(0.1)
	if err != nil {
		netlab.Lacking(t, "quota of processor time", err)
	}
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		n, err := g.Throttled()
		if err != nil {
			t.Fatal(err)
		}
		if n >= 3 {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("the process was stopped in %d periods", n)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
