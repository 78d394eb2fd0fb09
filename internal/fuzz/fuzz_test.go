package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestTargets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x_test.go")
	text := `package x

import "testing"

func FuzzOne(f *testing.F)          { f.Fuzz(func(*testing.T, []byte) {}) }
func FuzzHelper(t *testing.T, n int) {}
func TestFuzz(t *testing.T)         {}
func Fuzz2(f *testing.F)            {}
func (x) FuzzMethod(f *testing.F)   {}
func FuzzT(t *testing.T)            {}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := targets(file)
	if want := []string{"FuzzOne", "Fuzz2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("targets are %v, %v, want %v", got, err, want)
	}
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		o    options
		n    int
		want time.Duration
	}{
		{options{time: time.Minute}, 36, time.Minute},
		{options{time: 10 * time.Second, budget: 90 * time.Second}, 36, 5 * time.Second},
		{options{time: 2 * time.Second, budget: 90 * time.Second}, 36, 2 * time.Second},
		{options{time: 10 * time.Second, budget: 90 * time.Second}, 1000, time.Second},
	} {
		if got := tt.o.share(tt.n); got != tt.want {
			t.Errorf("%+v for %d targets: %v, want %v", tt.o, tt.n, got, tt.want)
		}
	}
}

// lateOnly is true only for a target that failed because its time was over.
func TestLateOnly(t *testing.T) {
	const over = "--- FAIL: FuzzX (5.03s)\n    context deadline exceeded\n"
	for _, tt := range []struct {
		out  string
		want bool
	}{
		{over, true},
		{"--- FAIL: FuzzX (0.03s)\n    x_test.go:9: wrong\n", false},
		{over + "    Failing input written to testdata/fuzz/FuzzX/1\n", false},
		{over + "panic: index out of range\n", false},
		{"exit status 2\n", false},
	} {
		if got := lateOnly([]byte(tt.out)); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.out, got, tt.want)
		}
	}
}

func TestExecutions(t *testing.T) {
	out := "fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\nfuzz: elapsed: 3s, execs: 10 (3/sec), new interesting: 1 (total: 4)\n" +
		"fuzz: elapsed: 6s, execs: 25 (5/sec), new interesting: 2 (total: 5)\nPASS\n"
	if got, want := executions([]byte(out)), "execs: 25 (5/sec), new interesting: 2 (total: 5)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := executions([]byte("PASS\n")); got != "" {
		t.Errorf("got %q of a target that says nothing", got)
	}
}
