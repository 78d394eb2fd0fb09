package tests

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var (
	fuzzSeed = flag.Uint64("fuzz-seed", 1, "first `seed` of the fuzzer of libibverbs.so.1 and librdmacm.so.1")
	fuzzTime = flag.Duration("fuzz-time", 2*time.Second, "how long each run of the fuzzer takes")
	fuzzRuns = flag.Int("fuzz-runs", 1, "how many seeds are tried in each way")
)

// TestFuzz runs the program in fuzz on the real engine: one thread that uses freed objects, one that also
// connects with rdma_cm and forks, and several threads. The test fails on a crash, a hanging call, a call that
// accepts what it must refuse, and a leaked descriptor, and prints the last calls of each thread.
func TestFuzz(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the engine")
	}
	libs, err := filepath.Abs(built)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("../../scripts/cverbs")
	build.Env = append(os.Environ(), "OUT="+libs)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sources, err := filepath.Glob("fuzz/*.c")
	if err != nil {
		t.Fatal(err)
	}
	program := compile(t, "fuzz", append(sources, "-O1", "-L"+built, "-l:librdmacm.so.1", "-l:libibverbs.so.1", "-lpthread")...)
	pid := os.Getpid()
	t.Setenv("ROCE_FLAGS", fmt.Sprintf("--link udp --dev 127.80.%d.%d,127.81.%[1]d.%[2]d", pid>>8&0xff, pid&0xff|1))
	// Odd seeds use freed objects: see fuzz.h.
	for _, way := range []struct {
		name    string
		odd     uint64
		threads int
	}{{"freed", 1, 1}, {"connections", 0, 1}, {"threads", 0, 3}} {
		t.Run(way.name, func(t *testing.T) {
			for i := range uint64(*fuzzRuns) {
				seed := 2*(*fuzzSeed+i) + way.odd
				out := runWith(t, filepath.Join(libs, "libroce-engine.so"), program, fmt.Sprint(seed), fmt.Sprint(max(1, int(fuzzTime.Seconds()))), fmt.Sprint(way.threads))
				if t.Failed() {
					return
				}
				t.Log(out)
			}
		})
	}
}
