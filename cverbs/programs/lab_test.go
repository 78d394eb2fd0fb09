package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/proc"
)

// root is the directory of the repository; rocectl is the program, which finds the libraries beside it.
var root, rocectl string

func TestMain(m *testing.M) {
	code, err := setUp(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		code = 1
	}
	os.Exit(code)
}

// setUp builds the libraries and rocectl, and runs the tests.
func setUp(m *testing.M) (code int, err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return 0, err
	}
	rocectl = filepath.Join(root, "bin", "rocectl")
	if os.Geteuid() == 0 {
		netns.Sweep(context.Background())
		for _, argv := range [][]string{{"scripts/cverbs"}, {"go", "build", "-o", "bin/rocectl", "./cmd/rocectl"}} {
			c := exec.Command(argv[0], argv[1:]...)
			if c.Dir = root; !filepath.IsAbs(argv[0]) && strings.Contains(argv[0], "/") {
				c.Path = filepath.Join(root, argv[0])
			}
			if out, err := c.CombinedOutput(); err != nil {
				return 0, fmt.Errorf("%s: %w\n%s", argv[0], err, out)
			}
		}
	}
	return m.Run(), nil
}

// needs skips the test if programs cannot run, or fails it if ROCE_REQUIRE_NETNS is set.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	missing := func(what string) {
		if os.Getenv("ROCE_REQUIRE_NETNS") == "1" {
			t.Fatalf("ROCE_REQUIRE_NETNS=1, but %s", what)
		}
		t.Skip(what)
	}
	if os.Geteuid() != 0 {
		missing("network namespaces need root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing(p + " is not installed: make programs")
		}
	}
}

// host is a network namespace with an interface.
type host struct {
	netns.Netns
	dev      string
	ip4, ip6 string
}

// hosts makes two hosts that a veth pair joins. The end of the test removes them.
func hosts(t *testing.T, mtu int) (a, b host) {
	t.Helper()
	made := make([]host, 2)
	for i := range made {
		ns, err := netns.New(t.Context(), fmt.Sprintf("p%d", i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ns.Remove)
		made[i] = host{ns, fmt.Sprintf("eth%d", i), fmt.Sprintf("10.78.0.%d", i+1), fmt.Sprintf("fd78::%d", i+1)}
	}
	a, b = made[0], made[1]
	a.ip(t, fmt.Sprintf("link add %s type veth peer name %s netns %s", a.dev, b.dev, string(b.Netns)))
	for _, h := range made {
		for _, line := range []string{"link set lo up", fmt.Sprintf("link set %s mtu %d up", h.dev, mtu),
			"addr add " + h.ip4 + "/24 dev " + h.dev, "addr add " + h.ip6 + "/64 dev " + h.dev + " nodad"} {
			h.ip(t, line)
		}
	}
	for _, h := range made { // its link-local address is tentative for a moment
		h.await(t, "addresses", func() bool {
			out, err := proc.Run(t.Context(), h.Argv("ip", "addr", "show", "dev", h.dev, "tentative")...)
			return err == nil && out == ""
		})
	}
	return a, b
}

func (h host) ip(t *testing.T, line string) {
	t.Helper()
	if err := h.IP(t.Context(), line); err != nil {
		t.Fatal(err)
	}
}

// onStack returns the arguments that go before a command line to run it on the stack, with device flags.
func onStack(flags string) []string {
	return append(append([]string{rocectl, "run", "--sysfs=always"}, strings.Fields(flags)...), "--")
}

// start starts a command line on the host.
func (h host) start(t *testing.T, flags string, argv ...string) *proc.Proc {
	t.Helper()
	p, err := proc.Start(t.Context(), h.Argv(append(onStack("--dev "+h.dev+" "+flags), argv...)...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// await calls there until it returns true.
func (h host) await(t *testing.T, what string, there func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	for tick := time.Tick(20 * time.Millisecond); !there(); {
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatalf("%s: no %s within the time limit", string(h.Netns), what)
		}
	}
}

// bound waits until a server has a UDP port.
func (h host) bound(t *testing.T, s *proc.Proc, port int) {
	t.Helper()
	h.await(t, fmt.Sprintf("UDP port %d of %s", port, s.Line), func() bool {
		out, err := proc.Run(t.Context(), h.Argv("ss", "-Hlun", "sport", "=", ":"+strconv.Itoa(port))...)
		return err == nil && out != ""
	})
}

// listening waits until a server listens: at a port of TCP or of rdma_cm.
func (h host) listening(t *testing.T, s *proc.Proc, tcp bool, port int) {
	t.Helper()
	h.await(t, fmt.Sprintf("port %d of %s", port, s.Line), func() bool {
		if !s.Running() {
			t.Fatalf("%s: ended before it could be connected to:\n%s", s.Line, s.Output())
		}
		if tcp {
			out, err := proc.Run(t.Context(), h.Argv("ss", "-Hltn", "sport", "=", ":"+strconv.Itoa(port))...)
			return err == nil && out != ""
		}
		out, err := proc.Run(t.Context(), h.Argv(rocectl, "nic", "--json")...)
		return err == nil && regexp.MustCompile(fmt.Sprintf(`"(TCP|UDP|IB) %d"`, port)).MatchString(out)
	})
}

// ended waits for the end of a command and fails the test if its exit status is not 0.
func ended(t *testing.T, p *proc.Proc, limit time.Duration) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	e, err := p.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%s: has not ended after %v:\n%s", p.Line, limit, p.Output())
	}
	if err == nil {
		err = p.Failed(e)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
}
