package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// built is the directory of the C library, the fake engine and the test programs.
var built string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "cverbs"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(built)
	build := exec.Command("../../scripts/cverbs", "verbs")
	build.Env = append(os.Environ(), "OUT="+built)
	if out, err := build.CombinedOutput(); err != nil {
		os.Stderr.Write(out)
		return 1
	}
	return m.Run()
}

// compile makes a program, or with more flags a library, from the C files in front.
func compile(t *testing.T, out string, args ...string) string {
	t.Helper()
	out = filepath.Join(built, out)
	args = append([]string{"-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-o", out}, args...)
	if text, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return out
}

func fakeEngine(t *testing.T) string {
	t.Helper()
	return compile(t, "fake.so", "-shared", "-fPIC", "front/fake.c", "-lpthread")
}

func runWith(t *testing.T, engine, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "ROCE_ENGINE="+engine, "LD_LIBRARY_PATH="+built)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s", filepath.Base(program), err, &out)
	}
	return out.String()
}

// TestFront runs the C programs in front on an engine that only records calls. The name of a program is its
// subject; its first comment says what it tests.
func TestFront(t *testing.T) {
	engine := fakeEngine(t)
	for _, name := range []string{"answers", "collect", "doorbell", "events", "extended", "forks", "lists", "objects", "receives", "recvlock", "signals"} {
		t.Run(name, func(t *testing.T) {
			program := compile(t, name, "front/"+name+".c", "-L"+built, "-l:libibverbs.so.1", "-ldl", "-lpthread")
			runWith(t, engine, program)
		})
	}
	t.Run("loads", func(t *testing.T) {
		program := compile(t, "loads", "front/loads.c", "-ldl", "-lpthread")
		runWith(t, engine, program, filepath.Join(built, "libibverbs.so.1"))
	})
}

// TestReserve runs front/reserve.c with the engine's mmap and pthread_create.
func TestReserve(t *testing.T) {
	args := []string{"front/reserve.c", "../engine/reserve.c", "-lpthread"}
	for _, name := range []string{"mmap", "munmap", "pthread_create", "pthread_detach"} {
		args = append(args, "-Wl,--wrap="+name)
	}
	runWith(t, "", compile(t, "reserve", args...))
}

// TestNoEngine: without an engine there are no devices, and the library prints why.
func TestNoEngine(t *testing.T) {
	text := "#include <infiniband/verbs.h>\n#include <errno.h>\nint main(void) { return ibv_get_device_list(0) || errno != ENOSYS || ibv_get_device_list(0); }\n"
	source := filepath.Join(built, "none.c")
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	program := compile(t, "none", source, "-L"+built, "-l:libibverbs.so.1")
	out := runWith(t, "/nonexistent/engine.so", program)
	if strings.Count(out, "no engine") != 1 {
		t.Errorf("stderr is %q, which does not say once that there is no engine", out)
	}
}

// TestNames: names and rates equal those of the distribution's library.
func TestNames(t *testing.T) {
	theirs, err := filepath.Glob("/usr/lib/*/libibverbs.so.1")
	if err != nil || len(theirs) == 0 {
		t.Skip("libibverbs1 is not installed")
	}
	program := compile(t, "names", "front/names.c", "-ldl")
	ours := runWith(t, "", program, filepath.Join(built, "libibverbs.so.1"))
	if want := runWith(t, "", program, theirs[0]); ours != want {
		t.Errorf("names differ:\n%s\nof the distribution:\n%s", ours, want)
	}
}

// TestExports: our library has every symbol of each committed list of a release of rdma-core, in the same version
// node. For release 44 the default versions are the same, too.
func TestExports(t *testing.T) {
	out, err := exec.Command("go", "run", "-C", "..", "./symbols", "read", filepath.Join(built, "libibverbs.so.1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		ours[line] = true
		ours[strings.Replace(line, "@@", "@", 1)] = true
	}
	lists, err := filepath.Glob("../symbols/libibverbs-*.txt")
	if err != nil || len(lists) == 0 {
		t.Fatal("no lists", err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if !strings.HasSuffix(list, "-44.txt") {
				line = strings.Replace(line, "@@", "@", 1)
			}
			if !ours[line] {
				t.Errorf("%s: %s is not exported", filepath.Base(list), line)
			}
		}
	}
}

// TestEngine runs traffic between two devices of the real engine, on addresses of the loopback.
func TestEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the engine")
	}
	build := exec.Command("../../scripts/cverbs", "engine")
	build.Env = append(os.Environ(), "OUT="+built)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pid := os.Getpid()
	t.Setenv("ROCE_FLAGS", fmt.Sprintf("--link udp --dev 127.78.%d.%d,127.79.%[1]d.%[2]d", pid>>8&0xff, pid&0xff|1))
	for _, name := range []string{"real", "placement"} {
		t.Run(name, func(t *testing.T) {
			program := compile(t, name, "front/"+name+".c", "-L"+built, "-l:libibverbs.so.1", "-ldl", "-lpthread")
			runWith(t, filepath.Join(built, "libroce-engine.so"), program)
		})
	}
}
