package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/link/linktest"
)

// role is an environment variable. If it is set, the test's program acts as rocectl or as a program that
// rocectl runs.
const role = "ROCECTL_TEST"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(role) == "":
		os.Exit(m.Run())
	case len(os.Args) > 1 && os.Args[1] == "look":
		json.NewEncoder(os.Stdout).Encode(look())
	case len(os.Args) > 1 && os.Args[1] == "die":
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		select {}
	default:
		main()
	}
}

// view is the environment that a program sees if rocectl runs it.
type view struct {
	PID, UID     int
	Flags, Libs  string
	Nodes        map[string]bool   // files of /dev/infiniband; true if it is a character device that can be read and written
	Class        map[string]string // files of /sys/class/infiniband, and their contents
	Folders      []string          // folders of /sys/class/infiniband
	Null, Net    bool              // the rest of /dev and the rest of /sys/class exist
	Capabilities string
}

func look() view {
	v := view{PID: os.Getpid(), UID: os.Getuid(), Flags: os.Getenv(machine.EnvVar), Libs: os.Getenv("LD_LIBRARY_PATH"),
		Nodes: make(map[string]bool), Class: make(map[string]string)}
	nodes, _ := os.ReadDir("/dev/infiniband")
	for _, n := range nodes {
		if f, err := os.OpenFile("/dev/infiniband/"+n.Name(), os.O_RDWR, 0); err == nil {
			info, err := f.Stat()
			v.Nodes[n.Name()] = err == nil && info.Mode()&fs.ModeCharDevice != 0
			f.Close()
		}
	}
	class := os.DirFS("/sys/class/infiniband")
	fs.WalkDir(class, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.IsDir():
			v.Folders = append(v.Folders, name)
		default:
			text, _ := fs.ReadFile(class, name)
			v.Class[name] = strings.TrimSuffix(string(text), "\n")
		}
		return nil
	})
	_, err := os.Stat("/dev/null")
	v.Null = err == nil
	_, err = os.Stat("/sys/class/net/lo")
	v.Net = err == nil
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if c, ok := strings.CutPrefix(line, "CapEff:"); ok {
			v.Capabilities = strings.TrimSpace(c)
		}
	}
	return v
}

// runner runs "rocectl run" in processes of a user.
type runner struct {
	exe, lib string
	uid      int
	env      []string
}

// user is the number of an unprivileged user. The user need not exist.
const user = 12345

// newRunner returns a runner of a user. If this process is not root, it uses the user of this process instead of another unprivileged
// user.
func newRunner(t *testing.T, uid int) *runner {
	t.Helper()
	if me := os.Getuid(); me != 0 && uid != 0 {
		uid = me
	} else if me != 0 {
		cannot(t, "this is not root")
	}
	dir, err := os.MkdirTemp("", "rocectl-run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{exe: filepath.Join(dir, "rocectl"), lib: filepath.Join(dir, "cverbs"), uid: uid}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(r.exe, program, 0o755), os.Mkdir(r.lib, 0o755),
		os.WriteFile(filepath.Join(r.lib, "libibverbs.so.1"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	return r
}

// cannot skips a test that the host cannot run. The test fails if the host must be able to run it.
func cannot(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("ROCE_REQUIRE_NETNS") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// command returns "rocectl run ARGS", or another command line of rocectl.
func (r *runner) command(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, r.exe, args...)
	cmd.Env = append(append(os.Environ(), role+"=1"), r.env...)
	if os.Getuid() == 0 && r.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.uid)}}
	}
	return cmd
}

// look runs a program that reports its environment, and returns the report and the text on stderr.
func (r *runner) look(t *testing.T, flags ...string) (view, string) {
	t.Helper()
	cmd := r.command(t, slices.Concat([]string{"run"}, flags, []string{"--", r.exe, "look"})...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var v view
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if v.PID != cmd.Process.Pid {
		t.Errorf("the program is process %d, rocectl was %d", v.PID, cmd.Process.Pid)
	}
	if v.UID != r.uid || r.uid != 0 && strings.Trim(v.Capabilities, "0") != "" {
		t.Errorf("the program is user %d with capabilities %s", v.UID, v.Capabilities)
	}
	if libs := r.lib + ":/other"; v.Libs != libs || !v.Null || !v.Net {
		t.Errorf("libraries in %s, want %s; /dev/null %v, /sys/class/net %v", v.Libs, libs, v.Null, v.Net)
	}
	return v, errs.String()
}

// checkSeen checks that a program has seen two devices on the loopback interface.
func (v view) checkSeen(t *testing.T) {
	t.Helper()
	if len(v.Nodes) != 3 || !v.Nodes["uverbs0"] || !v.Nodes["uverbs1"] || !v.Nodes["rdma_cm"] {
		t.Errorf("/dev/infiniband has %v", v.Nodes)
	}
	for name, want := range map[string]string{
		"roce0/ports/1/gids/0": "0000:0000:0000:0000:0000:ffff:7f00:003f", "roce1/ports/1/gids/0": "0000:0000:0000:0000:0000:ffff:7f00:0040",
		"roce0/ports/1/gid_attrs/types/0": "RoCE v2", "roce0/ports/1/gid_attrs/ndevs/0": "lo", "roce0/node_type": "1: CA", "roce0/ports/1/link_layer": "Ethernet",
	} {
		if got := v.Class[name]; got != want {
			t.Errorf("/sys/class/infiniband/%s is %q, want %q", name, got, want)
		}
	}
	if !slices.Contains(v.Folders, "roce1/device/net/lo") {
		t.Errorf("/sys/class/infiniband has %q", v.Folders)
	}
}

var lookFlags = []string{"--dev", "127.0.0.63", "--dev", "127.0.0.64", "--spin", "5us"}

// A program sees the devices in /dev and /sys, and gets its environment variables.
func TestRun(t *testing.T) {
	for name, uid := range map[string]int{"root": 0, "user": user} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, uid)
			if r.uid != 0 {
				needUserNamespaces(t)
			}
			r.env = []string{"LD_LIBRARY_PATH=/other", machine.EnvVar + "=--dev lo"}
			v, stderr := r.look(t, slices.Concat(lookFlags, []string{"--sysfs=always"})...)
			v.checkSeen(t)
			if stderr != "" {
				t.Errorf("stderr: %s", stderr)
			}
			if want := "--dev=127.0.0.63 --dev=127.0.0.64 --spin=5µs"; v.Flags != want {
				t.Errorf("flags %q, want %q", v.Flags, want)
			}
			for _, outside := range []string{"/dev/infiniband/uverbs1", "/sys/class/infiniband/roce1"} {
				if _, err := os.Stat(outside); err == nil {
					t.Errorf("%s is there outside", outside)
				}
			}
		})
	}
}

// needUserNamespaces skips a test if an unprivileged user cannot make a user namespace.
func needUserNamespaces(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("unshare"); err != nil {
		cannot(t, err.Error())
	}
	if n, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(n)) == "0" {
		t.Skip("the kernel has no user namespaces for users")
	}
	if n, err := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); err == nil && strings.TrimSpace(string(n)) != "0" {
		t.Skip("the kernel has no user namespaces for users: AppArmor restricts them")
	}
}

// With --sysfs=never the program sees the folders of the host. If the command has no flags, the flags of the environment remain.
func TestRunWithoutSysfs(t *testing.T) {
	r := newRunner(t, user)
	r.env = []string{"LD_LIBRARY_PATH=/other", machine.EnvVar + "=--dev lo"}
	v, stderr := r.look(t, "--sysfs=never", "--lib", r.lib)
	if v.Nodes["uverbs0"] || len(v.Class) > 0 || v.Flags != "--dev lo" || stderr != "" {
		t.Errorf("%+v, stderr %q", v, stderr)
	}
}

// If no mount namespace is possible, the program runs without the folders, and a line on stderr says why. With --sysfs=always rocectl
// fails instead.
func TestRunImpossible(t *testing.T) {
	r := newRunner(t, user)
	r.env = []string{"LD_LIBRARY_PATH=/other", "PATH="}
	for name, tt := range map[string]struct {
		flags []string
		why   string
	}{
		"no unshare": {lookFlags, "or the program unshare of util-linux"},
		"raw":        {[]string{"--dev", "lo", "--link", "raw"}, "in a user namespace only --link udp works"},
	} {
		v, stderr := r.look(t, tt.flags...)
		if v.Nodes["uverbs0"] || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, " runs without ") || !strings.Contains(stderr, tt.why) {
			t.Errorf("%s: %+v\nstderr %q", name, v, stderr)
		}
		out, err := r.command(t, slices.Concat([]string{"run", "--sysfs=always"}, tt.flags, []string{r.exe, "look"})...).CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), "rocectl: --sysfs=always: ") || !strings.Contains(string(out), tt.why) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	if os.Getuid() == 0 { // processes of user nobody can share addresses only outside of user namespaces
		r := newRunner(t, 65534)
		r.env = []string{"LD_LIBRARY_PATH=/other"}
		if v, stderr := r.look(t, lookFlags...); v.Nodes["uverbs0"] || !strings.Contains(stderr, "user nobody") {
			t.Errorf("nobody: %+v\nstderr %q", v, stderr)
		}
	}
}

// rocectl ends as the program ends. If the program cannot be run, rocectl ends as a shell does.
func TestRunExit(t *testing.T) {
	r := newRunner(t, user)
	r.env = []string{machine.EnvVar + "=--dev lo"}
	for _, tt := range []struct {
		args []string
		want string // the error of the process
		says string // part of the output
	}{
		{[]string{"run", r.exe, "--", "version"}, "exit status 2", `no command "version"`}, // the program gets the second "--"
		{[]string{"run", r.exe, "version"}, "", "rocectl "},
		{[]string{"run", "--", r.exe, "--bogus"}, "exit status 2", "unknown flag: --bogus"},
		{[]string{"run", r.exe, "die"}, "signal: terminated", ""},
		{[]string{"run", "nosuchprogram"}, "exit status 127", "rocectl: nosuchprogram: executable file not found"},
		{[]string{"run", r.lib + "/libibverbs.so.1"}, "exit status 126", "permission denied"},
		{[]string{"run"}, "exit status 2", "a program is missing"},
		{[]string{"run", "--sysfs=sometimes", r.exe}, "exit status 2", "--sysfs sometimes: want auto, never or always"},
		{[]string{"run", "--dev=lo", "--link=mem", r.exe}, "exit status 2", "--link mem: want raw, udp or xdp"},
		{[]string{"run", "--dev=bogus", r.exe}, "exit status 1", "no such network interface: bogus"},
		{[]string{"run", "--lib", "/bogus", r.exe}, "exit status 1", "--lib: there is no libibverbs.so.1 in /bogus: build it"},
	} {
		out, err := r.command(t, tt.args...).CombinedOutput()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || !strings.Contains(string(out), tt.says) {
			t.Errorf("%v: %s, %s; want %s, %s", tt.args[1:], got, out, tt.want, tt.says)
		}
	}
	r.env = []string{machine.EnvVar + "=--spin x"}
	if out, err := r.command(t, "run", r.exe, "version").CombinedOutput(); err == nil || !strings.Contains(string(out), "ROCE_FLAGS: --spin x: want a time") {
		t.Errorf("%v, %s", err, out)
	}
}

// Programs of one user can share an address, whether each of them has its own user namespace or none.
func TestRunShares(t *testing.T) {
	r := newRunner(t, user)
	needUserNamespaces(t)
	addr := linktest.Loopback(65)
	at := []string{"--link", "udp", "-C", "2", "-a", addr.String()}
	for _, sysfs := range [][2]string{{"always", "always"}, {"never", "always"}, {"always", "never"}} {
		command := func(sysfs string, args ...string) *exec.Cmd {
			return r.command(t, slices.Concat([]string{"run", "--dev", addr.String(), "--sysfs", sysfs, r.exe, "rping"}, args, at)...)
		}
		server := command(sysfs[0], "-s")
		srv := &announced{ready: make(chan struct{})}
		out := struct{ io.Writer }{srv} // io.Copy must not read into the buffer
		server.Stdout, server.Stderr = out, out
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- server.Wait() }()
		select {
		case <-srv.ready:
		case err := <-served:
			t.Fatalf("%v: server: %v, %s", sysfs, err, srv)
		}
		if out, err := command(sysfs[1], "-c", "-I", addr.String()).CombinedOutput(); err != nil {
			t.Errorf("%v: client: %v, %s", sysfs, err, out)
			server.Process.Kill()
		}
		if err := <-served; err != nil {
			t.Errorf("%v: server: %v, %s", sysfs, err, srv)
		}
	}
}
