package mr

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestMisalignedYields: a waiter for the lock of misaligned words lets the holder run, if both share one processor.
// The test runs in a process whose scheduler interrupts no goroutine. A waiter that does not yield waits for ever
// there.
func TestMisalignedYields(t *testing.T) {
	const child = "ROCE_TEST_MISALIGNED"
	if os.Getenv(child) != "" {
		runtime.GOMAXPROCS(1)
		var table Table
		table.excluded.Store(1)
		go table.excluded.Store(0)
		table.lockAtomics()
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestMisalignedYields$")
	cmd.Env = append(os.Environ(), child+"=1", "GODEBUG=asyncpreemptoff=1")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.ENOEXEC) {
		t.Skip("the kernel cannot start a program of another processor: the test runs under an emulator")
	}
	if err != nil {
		t.Errorf("the holder of the lock did not run: %v\n%s", err, out)
	}
}
