//go:build linux

package sharing

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/interop/child"
)

var (
	long    = flag.Bool("sharing.long", false, "long tests, with more processes, repetitions and time: some minutes")
	killing = flag.Duration("sharing.kills", 2*time.Minute, "how long TestKill kills processes in a long test")
)

// pick returns short, or full with -sharing.long.
func pick[T any](short, full T) T {
	if *long {
		return full
	}
	return short
}

// bed is a test bed for processes: two addresses that reach each other.
type bed struct {
	name string
	make func(t *testing.T) [2]side
}

// side is an address that processes share.
type side struct {
	open Open
	key  string
	do   func(f func()) // runs f in the network namespace; nil: in that of the test
}

func (s side) in(f func()) {
	if s.do == nil {
		f()
		return
	}
	s.do(f)
}

var beds = []bed{
	{"address", func(t *testing.T) [2]side { return [2]side{loopback(), loopback()} }},
	{"interface", func(t *testing.T) [2]side { return interfaces(t, "udp") }},
	{"raw", func(t *testing.T) [2]side { return interfaces(t, "raw") }},
}

// each runs a test on every bed. With -short it leaves out interfaces over UDP sockets, because the other two beds
// cover most of that.
func each(t *testing.T, f func(t *testing.T, a, b side)) {
	t.Parallel()
	for _, b := range beds {
		if testing.Short() && b.name == "interface" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := b.make(t)
			f(t, s[0], s[1])
		})
	}
}

var serial atomic.Uint32

// loopback returns an address that no other test and no other run uses.
func loopback() side {
	pid, n := os.Getpid(), serial.Add(1)
	return address(netip.AddrFrom4([4]byte{127, byte(32 + n), byte(pid >> 8), byte(pid)}))
}

func address(a netip.Addr) side {
	return side{open: Open{Addr: a, Driver: "udp"}, key: "udp " + a.String()}
}

// interfaces returns two interfaces in network namespaces.
func interfaces(t *testing.T, driver string) [2]side {
	a, b := netlab.Pair(t, netlab.Config{})
	of := func(s *netlab.Side) side {
		return side{open: Open{Addr: s.IP4, Interface: s.Interface, Driver: driver}, key: fmt.Sprintf("%s #%d", driver, s.Link().Attrs().Index),
			do: func(f func()) { s.Do(t, f) }}
	}
	return [2]side{of(a), of(b)}
}

// process is a member process, as seen by the test.
type process struct {
	*child.Client
	t    *testing.T
	side side
	cmd  *exec.Cmd
	pid  int
	dead chan struct{} // closed when the process has ended
	port uint16        // of its echo service

	closing *rpc.Call // the call that closes the device, if the test has not waited for its end yet
}

// start starts a member without a device.
func (s side) start(t *testing.T, set ...func(*exec.Cmd)) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1", "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, f := range set {
		f(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Client: child.NewClient(fmt.Sprintf("process %d", cmd.Process.Pid), in, out), t: t, side: s, cmd: cmd, pid: cmd.Process.Pid, dead: make(chan struct{})}
	go func() {
		cmd.Process.Wait()
		close(p.dead)
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// kill kills the process, and returns when it has ended.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.dead
}

// signal sends a signal that does not end the process.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	// Wait until all its threads have stopped: a running one could still become the keeper.
	eventually(p.t, func() string {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid))
		for _, task := range tasks {
			stat, _ := os.ReadFile(task)
			if _, state, ok := strings.Cut(string(stat), ") "); ok && !strings.HasPrefix(state, "T") {
				return fmt.Sprintf("process %d is still running", p.pid)
			}
		}
		if err != nil || len(tasks) == 0 {
			return fmt.Sprintf("process %d has no threads: %v", p.pid, err)
		}
		return ""
	})
}

// patience is the time limit for the answer of a member, on a busy machine.
const patience = time.Minute

// call calls a method of a member.
func (p *process) call(method string, arg, result any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Call(ctx, method, arg, result); err != nil {
		p.t.Fatal(err)
	}
}

// settle waits until the device is closed, if the test has begun to close it.
func (p *process) settle() {
	p.t.Helper()
	if p.closing == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Wait(ctx, p.closing); err != nil {
		p.t.Error(err)
	}
	p.closing = nil
}

// try opens the device of a member.
func (p *process) try(change ...func(*Open)) (r Opened) {
	p.t.Helper()
	o := p.side.open
	for _, f := range change {
		f(&o)
	}
	p.call("Open", o, &r)
	return r
}

// member starts a member and opens its device.
func (s side) member(t *testing.T, change ...func(*Open)) *process {
	t.Helper()
	p := s.start(t)
	if r := p.try(change...); r.Text != "" {
		t.Fatalf("process %d: %s", p.pid, r.Text)
	}
	return p
}

// members starts n members at the same time and opens their devices.
func (s side) members(t *testing.T, n int, change ...func(*Open)) []*process {
	t.Helper()
	list := make([]*process, n)
	for i := range list {
		list[i] = s.start(t)
	}
	together(list, func(p *process) {
		if r := p.try(change...); r.Text != "" {
			t.Errorf("process %d: %s", p.pid, r.Text)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return list
}

// together calls f for all processes at the same time.
func together(list []*process, f func(p *process)) {
	var wg sync.WaitGroup
	for _, p := range list {
		wg.Go(func() { f(p) })
	}
	wg.Wait()
}

// echo starts the echo service of a member on a port.
func (p *process) echo(port uint16) {
	p.t.Helper()
	var f Failure
	if p.call("Echo", port, &f); f.Text != "" {
		p.t.Fatalf("process %d: %s", p.pid, f.Text)
	}
	p.port = port
}

// at returns the address and port of the echo service of a member.
func (p *process) at() string { return netip.AddrPortFrom(p.side.open.Addr, p.port).String() }

// exchange makes a member exchange messages with others.
func (p *process) exchange(a Exchange) (r Exchanged) {
	p.t.Helper()
	if a.Patience == 0 {
		a.Patience = patience / 2
	}
	p.call("Exchange", a, &r)
	if want := len(a.To) * a.Conns; r.Conns != want {
		p.t.Errorf("process %d: %d of %d connections: %s", p.pid, r.Conns, want, strings.Join(r.Failures, "\n\t"))
	}
	return r
}

// wants checks that an operation was refused, with an errno and texts.
func wants(t *testing.T, what string, f Failure, errno syscall.Errno, texts ...string) {
	t.Helper()
	if !errors.Is(f.Errno, errno) || f.Text == "" {
		t.Errorf("%s: %q, want %v", what, f.Text, errno)
		return
	}
	for _, text := range texts {
		if !strings.Contains(f.Text, text) {
			t.Errorf("%s: %q does not contain %q", what, f.Text, text)
		}
	}
}

var keeperPID = regexp.MustCompile(`process (\d+)`)

// keeper returns the pid of the present keeper; 0: there is none.
func (s side) keeper() (pid int) {
	s.in(func() {
		if m := keeperPID.FindStringSubmatch(share.Holder(s.key)); m != nil {
			pid, _ = strconv.Atoi(m[1])
		}
	})
	return pid
}

// names returns the names of the remaining sockets of an address.
func (s side) names(t *testing.T) (list []string) {
	t.Helper()
	s.in(func() {
		text, err := os.ReadFile("/proc/thread-self/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if _, name, ok := strings.Cut(line, "@goroce/"+s.key); ok && (name == "\n" || name[0] == '#' || name[0] == '@') {
				list = append(list, strings.TrimSpace(line))
			}
		}
	})
	return list
}

// nothing checks that an address whose processes have ended has no names left, and that
// its port is free.
func (s side) nothing(t *testing.T) {
	t.Helper()
	eventually(t, func() string { return strings.Join(s.names(t), "\n") })
	eventually(t, func() (left string) {
		s.in(func() {
			c, err := net.ListenUDP("udp", &net.UDPAddr{IP: s.open.Addr.AsSlice(), Port: 4791})
			if err != nil {
				left = err.Error()
				return
			}
			c.Close()
		})
		return left
	})
}

// eventually waits until f returns "". If that takes longer than patience, it fails with the last string that f has
// returned. It returns the time that it took.
func eventually(t *testing.T, f func() string) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		what := f()
		if what == "" {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			t.Fatalf("after %v still: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
