//go:build linux

// Command agent runs in the guest and starts commands for the host.
//
// usage: agent PORTNAME, the name of a virtio-serial port. It speaks package wire.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/vm/wire"
)

func main() {
	name := wire.PortName
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	fmt.Fprintln(os.Stderr, "agent:", serve(name))
	os.Exit(1)
}

// serve executes the requests of the host until the port fails.
func serve(name string) error {
	port, err := openPort(name)
	if err != nil {
		return err
	}
	a := &agent{out: json.NewEncoder(port), jobs: make(map[uint32]*os.Process)}
	a.send(wire.Event{Kind: wire.Ready})
	in := json.NewDecoder(port)
	for {
		var r wire.Request
		if err := in.Decode(&r); err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		switch r.Op {
		case wire.Start:
			a.start(r)
		case wire.Kill:
			a.kill(r)
		case wire.AwaitTCP, wire.AwaitRDMA:
			go a.await(r)
		}
	}
}

// port is a virtio-serial port. The kernel reports end of file while no program on
// the host has the other end open; Read then waits and tries again.
type port struct{ fd int }

func (p port) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(p.fd, b)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n > 0:
			return n, nil
		default:
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (p port) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := syscall.Write(p.fd, b[done:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// openPort finds the device node of the port called name, because the guest has no udev
// that would make a link for it.
func openPort(name string) (port, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return port{}, err
	}
	for _, f := range names {
		b, err := os.ReadFile(f)
		if err != nil || strings.TrimSpace(string(b)) != name {
			continue
		}
		dev := "/dev/" + filepath.Base(filepath.Dir(f))
		fd, err := syscall.Open(dev, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		if err != nil {
			return port{}, fmt.Errorf("opening %s: %w", dev, err)
		}
		return port{fd}, nil
	}
	return port{}, fmt.Errorf("no virtio-serial port is called %q", name)
}

type agent struct {
	mu   sync.Mutex
	out  *json.Encoder
	jobs map[uint32]*os.Process
}

func (a *agent) send(e wire.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.out.Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, "agent: writing an event:", err)
	}
}

func (a *agent) start(r wire.Request) {
	fail := func(err error) {
		a.send(wire.Event{Kind: wire.Exit, ID: r.ID, Code: -1, Error: err.Error()})
	}
	if len(r.Argv) == 0 {
		fail(errors.New("empty command line"))
		return
	}
	cmd := exec.Command(r.Argv[0], r.Argv[1:]...)
	cmd.Stdout = output{a, r.ID}
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a child that outlives the command may hold the output open
	if err := cmd.Start(); err != nil {
		fail(err)
		return
	}
	a.mu.Lock()
	a.jobs[r.ID] = cmd.Process
	a.mu.Unlock()
	go a.attend(cmd, r)
}

// output sends the output of a job.
type output struct {
	agent *agent
	id    uint32
}

func (o output) Write(b []byte) (int, error) {
	o.agent.send(wire.Event{Kind: wire.Output, ID: o.id, Data: b})
	return len(b), nil
}

// attend reports a job's end.
func (a *agent) attend(cmd *exec.Cmd, r wire.Request) {
	var timedOut atomic.Bool
	if r.TimeoutMS > 0 {
		defer time.AfterFunc(time.Duration(r.TimeoutMS)*time.Millisecond, func() {
			timedOut.Store(true)
			a.kill(wire.Request{ID: r.ID, Signal: int(syscall.SIGKILL)})
		}).Stop()
	}
	x := proc.ExitOf(cmd, cmd.Wait())
	a.mu.Lock()
	delete(a.jobs, r.ID)
	a.mu.Unlock()
	e := wire.Event{Kind: wire.Exit, ID: r.ID, Code: x.Code, Signal: x.Signal, TimedOut: timedOut.Load()}
	if x.Err != nil {
		e.Error = x.Err.Error()
	}
	a.send(e)
}

// kill signals a job's whole process group. It is no error if the job has ended, because it
// may have ended before the request arrived.
func (a *agent) kill(r wire.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.jobs[r.ID]; p != nil {
		syscall.Kill(-p.Pid, syscall.Signal(r.Signal))
	}
}
