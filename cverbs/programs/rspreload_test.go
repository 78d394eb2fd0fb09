package programs

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// rspreload is rdma-core's library that replaces calls of sockets by rsockets.
const rspreload = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"

// TestRspreload has curl fetch a file from a web server several times, with librspreload in both. No process listens
// for TCP at the port, so the file cannot have come over TCP.
func TestRspreload(t *testing.T) {
	web := newWeb(t)
	for _, flags := range []string{"--link udp", "--link raw --loss tx=4% --seed 7"} {
		t.Run(flags, func(t *testing.T) {
			const fetches = 3
			s := web.serve(t, flags, fetches)
			web.server.listening(t, s, false, webPort)
			for range fetches {
				web.check(t, web.fetch(t, flags))
			}
			ended(t, s, time.Minute)
		})
	}
}

// TestRspreloadFork does the same with a server that forks for each request. librspreload then connects over TCP
// first, and switches to an rsocket in the child.
func TestRspreloadFork(t *testing.T) {
	web := newWeb(t)
	const fetches, flags, safe = 3, "--link raw", "RDMAV_FORK_SAFE=1"
	s := web.serve(t, flags, fetches, safe)
	web.server.listening(t, s, true, webPort)
	before := web.segments(t)
	for range fetches {
		web.check(t, web.fetch(t, flags, safe))
	}
	ended(t, s, time.Minute)
	if n := web.segments(t) - before; n > 20*fetches {
		t.Errorf("the client got %d TCP segments: the files came over TCP", n)
	}
}

const webPort = 7313

// web is a web server and a client, each on its host.
type web struct {
	server, client host
	program, file  string
	content        []byte
}

func newWeb(t *testing.T) *web {
	needs(t, "curl", "cc", "ss", "nstat")
	if _, err := os.Stat(rspreload); err != nil {
		t.Skipf("librspreload is not installed: %v", err)
	}
	dir := t.TempDir()
	w := &web{program: filepath.Join(dir, "httpd"), file: filepath.Join(dir, "file"), content: make([]byte, 3<<20+17)}
	rand.Read(w.content)
	if err := os.WriteFile(w.file, w.content, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-O1", "-Wall", "-Wextra", "-o", w.program, "testdata/httpd.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	w.server, w.client = hosts(t, 4200)
	return w
}

// preloaded returns a command line with librspreload and more environment variables.
func preloaded(env []string, argv ...string) []string {
	return append(append([]string{"env", "LD_PRELOAD=" + rspreload}, env...), argv...)
}

// serve starts the server for n requests. The server forks if env has the variable that tells librspreload so.
func (w *web) serve(t *testing.T, flags string, n int, env ...string) *proc.Proc {
	argv := []string{w.program, w.server.ip4, strconv.Itoa(webPort), w.file, strconv.Itoa(n)}
	if len(env) > 0 {
		argv = append(argv, "fork")
	}
	return w.server.start(t, flags, preloaded(env, argv...)...)
}

// fetch gets the file.
func (w *web) fetch(t *testing.T, flags string, env ...string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "fetched")
	p := w.client.start(t, flags, preloaded(env, "curl", "-sS", "-o", out, fmt.Sprintf("http://%s:%d/", w.server.ip4, webPort))...)
	ended(t, p, time.Minute)
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (w *web) check(t *testing.T, got []byte) {
	t.Helper()
	if !bytes.Equal(got, w.content) {
		t.Errorf("%d bytes came, which are not the %d of the file", len(got), len(w.content))
	}
}

// segments returns how many TCP segments the client's host has received.
func (w *web) segments(t *testing.T) int { return w.client.counter(t, "TcpInSegs") }

// counter returns a counter of the kernel's network stack.
func (h host) counter(t *testing.T, name string) int {
	t.Helper()
	out, err := proc.Run(t.Context(), h.Argv("nstat", "-asz", name)...)
	m := regexp.MustCompile(name + `\s+(\d+)`).FindStringSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("nstat: %v\n%s", err, out)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// TestRspreloadDatagrams has a program echo datagrams over sockets that librspreload replaces. Over raw sockets the
// kernel counts only the datagrams that did not travel between the queue pairs.
func TestRspreloadDatagrams(t *testing.T) {
	needs(t, "cc", "ss", "nstat")
	if _, err := os.Stat(rspreload); err != nil {
		t.Skipf("librspreload is not installed: %v", err)
	}
	program := filepath.Join(t.TempDir(), "echo")
	if out, err := exec.Command("cc", "-O1", "-Wall", "-Wextra", "-o", program, "testdata/echo.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	a, b := hosts(t, 4200)
	const echoes = 300
	echo := pair{server: program + " {self} 7315", client: fmt.Sprint(program, " {peer} 7315 ", echoes), port: 7315, udp: true, endless: true,
		good: regexp.MustCompile(fmt.Sprint(echoes, " echoes")), env: preloaded(nil)}
	for _, c := range conditions {
		if !strings.Contains(c.flags, "raw") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			before := a.counter(t, "UdpInDatagrams")
			echo.run(t, a, b, c)
			if n := a.counter(t, "UdpInDatagrams") - before; n == 0 || n > echoes/2 {
				t.Errorf("the kernel delivered %d datagrams, want 1 to %d: the others go between the queue pairs", n, echoes/2)
			}
		})
	}
}

// TestRocectlStream runs rstream and riostream against rocectl's, which do not use the libraries.
func TestRocectlStream(t *testing.T) {
	needs(t, "rstream", "riostream")
	a, b := hosts(t, 4200)
	const flags = "-S 16384 -I 2 -C 100 -T v -p 7311"
	for _, program := range []string{"rstream", "riostream"} {
		t.Run(program, func(t *testing.T) {
			line := func(end, addr string) []string { return append([]string{program, end, addr}, strings.Fields(flags)...) }
			ours := func(h host, argv []string) *proc.Proc {
				p, err := proc.Start(t.Context(), h.Argv(append([]string{rocectl}, append(argv, "--dev", h.dev, "--link", "raw")...)...)...)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			s := a.start(t, "--link raw", line("-b", a.ip4)...)
			a.listening(t, s, false, 7311)
			c := ours(b, line("-s", a.ip4))
			ended(t, c, time.Minute)
			ended(t, s, time.Minute)

			s = ours(a, line("-b", a.ip4))
			a.listening(t, s, false, 7311)
			c = b.start(t, "--link raw", line("-s", a.ip4)...)
			ended(t, c, time.Minute)
			ended(t, s, time.Minute)
		})
	}
}
