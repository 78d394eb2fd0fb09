package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/tools/conform"
	"github.com/goroce/roce/internal/tools/nics"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/pcap"
)

// start runs the command in a separate process, in the namespace of a side, or in the namespace of the test if at is nil. It returns
// when the process has printed text, and at once if text is "".
func start(t *testing.T, at *netlab.Side, text string, args ...string) (*process, *announced) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), role+"=1")
	said := &announced{text: text, ready: make(chan struct{})}
	out := struct{ io.Writer }{said}
	cmd.Stdout, cmd.Stderr = out, out
	var err error
	begin := func() { err = cmd.Start() }
	if at != nil {
		at.Do(t, begin)
	} else {
		begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	if text == "" {
		said.once.Do(func() { close(said.ready) })
	}
	p := &process{cmd.Process, make(chan error, 1)}
	go func() {
		p.ended <- cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() { p.kill() })
	select {
	case <-said.ready:
	case err := <-p.ended:
		t.Fatalf("rocectl %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return p, said
}

// process is a process that a test has started. ended gets its result once and is closed after that.
type process struct {
	*os.Process
	ended chan error
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	p.Kill()
	<-p.ended
}

// endServer interrupts a server, and returns its output.
func endServer(t *testing.T, p *process, said *announced) string {
	t.Helper()
	p.Signal(os.Interrupt)
	if err := <-p.ended; err != nil {
		t.Errorf("the server: %v", err)
	}
	return said.String()
}

// eventually waits until is returns true. what describes the condition if the test fails.
func eventually(t *testing.T, what func() string, is func() bool) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-late.C:
			t.Fatalf("it is not so after a minute: %s", what())
		}
	}
}

func says(text string) func() string { return func() string { return text } }

// listed returns the processes that have devices in the namespace of a side.
func listed(t *testing.T, at *netlab.Side) (all []nics.Process) {
	t.Helper()
	at.Do(t, func() {
		list, err := nics.List(t.Context(), 0)
		if err != nil {
			t.Error(err)
		}
		for _, a := range list {
			all = append(all, a.Processes...)
		}
	})
	return all
}

// queuePairs returns the number of queue pairs and connections of all processes of a side.
func queuePairs(t *testing.T, at *netlab.Side) (n int) {
	t.Helper()
	for _, p := range listed(t, at) {
		if p.Does != nil {
			n += p.Does.QueuePairs + p.Does.Connections
		}
	}
	return n
}

// holdings lists the open files of a process, and the shared memory and sockets that it maps.
func holdings(t *testing.T, pid int) (all []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	files, err := os.ReadDir(dir + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(dir + "fd/" + f.Name()); err == nil {
			all = append(all, to)
		}
	}
	maps, err := os.ReadFile(dir + "maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:") || strings.Contains(line, "socket:") {
			all = append(all, strings.Fields(line)[0])
		}
	}
	slices.Sort(all)
	return all
}

// stallRules writes a rule file that drops each packet of connections in both directions. A step with this file ends when the retries
// are exhausted.
func stallRules(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "stall.yaml")
	if err := os.WriteFile(name, []byte("rules:\n  - {name: all, action: drop, match: {opcode: \"*\"}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// conformAt runs a test of a peer in the namespace of a side.
func conformAt(t *testing.T, at, peer *netlab.Side, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := exitFailed
	at.Do(t, func() {
		code = run(t.Context(), append(append([]string{"conform", "--link", "raw", "--limit", "1m"}, args...), peer.IP4.String()), &out, &out)
	})
	return code, out.String()
}

// A tester that is killed in the middle of a step leaves nothing behind: its host is as before. The server releases the tester's objects,
// logs this, and serves the next tester.
func TestConformTesterKilled(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	server, said := start(t, a, "listening on ", "conform", "--serve", "--link", "raw", a.IP4.String())
	if code, out := conformAt(t, b, a, "--only", "^clean/send/tester$"); code != exitOK { // from now on the server has the files open that it keeps
		t.Fatalf("exit status %d\n%s", code, out)
	}
	eventually(t, says("the server has closed the queue pairs of the first tester"), func() bool { return queuePairs(t, a) == 0 })
	idle, before := holdings(t, server.Pid), state(t, b)
	tester, _ := start(t, b, "", "conform", "--link", "raw", "--rules", stallRules(t), "--only", "^stall/send/tester$", "--limit", "1m", a.IP4.String())
	eventually(t, says("the step runs"), func() bool { return queuePairs(t, a) > 0 })
	tester.kill()
	var more []string
	eventually(t, func() string {
		return fmt.Sprintf("the server has given back what it had: it has %d queue pairs and %q", queuePairs(t, a), more)
	}, func() bool {
		more = holdings(t, server.Pid)
		for _, had := range idle {
			if i := slices.Index(more, had); i >= 0 {
				more = slices.Delete(more, i, i+1)
			}
		}
		return queuePairs(t, a) == 0 && len(more) == 0
	})
	eventually(t, says("no device is left of the tester"), func() bool { return len(listed(t, b)) == 0 })
	wantState(t, b, before)
	if code, out := conformAt(t, b, a, "--only", "^clean/(send|cm)/"); code != exitOK {
		t.Errorf("the next tester: exit status %d\n%s", code, out)
	}
	if out := endServer(t, server, said); strings.Count(out, "the tester is gone, it was killed or its test was ended: 1 queue pair closed") != 1 {
		t.Errorf("the server said\n%s", out)
	}
}

// A server that is killed in the middle of a step leaves nothing behind. The tester reports that the peer is gone, and its next test, with a new
// server, passes.
func TestConformServerKilled(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	before := state(t, a)
	serve := []string{"conform", "--serve", "--link", "raw", a.IP4.String()}
	server, _ := start(t, a, "listening on ", serve...)
	type result struct {
		code int
		out  string
	}
	ended := make(chan result, 1)
	go func() {
		r := result{code: exitFailed}
		defer func() { ended <- r }()
		r.code, r.out = conformAt(t, b, a, "--rules", stallRules(t), "--only", "^stall/send/peer$")
	}()
	eventually(t, says("the step runs"), func() bool { return queuePairs(t, a) > 0 })
	server.kill()
	if r := <-ended; r.code != exitFailed || !strings.Contains(r.out, "the peer is gone: no reply to ") {
		t.Errorf("exit status %d\n%s", r.code, r.out)
	}
	eventually(t, says("no device is left of the server"), func() bool { return len(listed(t, a)) == 0 })
	wantState(t, a, before)
	start(t, a, "listening on ", serve...)
	if code, out := conformAt(t, b, a, "--only", "^clean/(send|cm)/"); code != exitOK {
		t.Errorf("the next server: exit status %d\n%s", code, out)
	}
}

// If a server hangs in the middle of a step, the step ends at the limit. When the server continues, it serves the next tester.
func TestConformServerHangs(t *testing.T) {
	near, far := linktest.Loopback(71), linktest.Loopback(72)
	server, said := start(t, nil, "listening on ", "conform", "--serve", "--link", "udp", far.String())
	var packets atomic.Int32
	c := conform.Config{Host: far, Only: regexp.MustCompile("^clean/write/tester$"), Limit: 500 * time.Millisecond, Wait: time.Minute}
	c.Open = func(wrap func(link.Port) (link.Port, error), _ bool) (conform.Device, error) {
		f := machine.Flags{Link: "udp", Wrap: func(p link.Port) (link.Port, error) {
			p, err := pcap.Wrap(p, nil, pcap.Options{Seen: func(*pcap.Record) {
				if packets.Add(1) == 3 {
					server.Signal(syscall.SIGSTOP)
				}
			}})
			if err != nil {
				return nil, err
			}
			return wrap(p)
		}}
		d, err := f.Open(near, far, io.Discard)
		if err != nil {
			return conform.Device{}, err
		}
		return conform.Device{Device: d.Device, Close: d.Close}, nil
	}
	card, err := conform.Run(t.Context(), c)
	packets.Store(1 << 20) // so that the server is not stopped in the next test, if the step has ended before its third packet
	server.Signal(syscall.SIGCONT)
	if err != nil || card.Verdict != conform.Fail || !strings.Contains(strings.Join(card.Steps[0].Why, " "), "did not end within 500ms") {
		t.Errorf("%v, %+v", err, card)
	}
	c.Limit = time.Minute
	if card, err = conform.Run(t.Context(), c); err != nil || card.Verdict != conform.Pass {
		t.Errorf("the next test: %v, %+v", err, card)
	}
	if out := endServer(t, server, said); strings.Count(out, "the tester is gone") != 1 {
		t.Errorf("the server said\n%s", out)
	}
}
