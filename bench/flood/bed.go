//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/interop/netns"
)

// roleVariable, in the environment, makes the program one of its children.
const roleVariable = "ROCE_FLOOD_ROLE"

// The addresses.
var (
	serverIP   = netip.MustParseAddr("10.90.0.1")
	clientIP   = netip.MustParseAddr("10.90.0.2")
	attackerIP = netip.MustParseAddr("10.90.0.66")
)

const device = "eth0"

// bed is the switch, and the three processes on it.
type bed struct {
	link                     string
	spaces                   []netns.Netns
	server, client, attacker *process
	macs                     [3]frame.MAC
}

func newBed(ctx context.Context, link string) (b *bed, err error) {
	b = &bed{link: link}
	defer func() {
		if err != nil {
			b.close()
			b = nil
		}
	}()
	sw, err := b.space(ctx, "switch")
	if err != nil {
		return b, err
	}
	if err := sw.IP(ctx, "link add bridge0 type bridge"); err != nil {
		return b, err
	}
	if err := sw.IP(ctx, "link set bridge0 up"); err != nil {
		return b, err
	}
	cores := cores()
	for i, p := range []struct {
		name string
		ip   netip.Addr
		core int
		at   **process
	}{{"server", serverIP, cores[0], &b.server}, {"client", clientIP, cores[0], &b.client}, {"attacker", attackerIP, cores[1], &b.attacker}} {
		ns, err := b.space(ctx, p.name)
		if err != nil {
			return b, err
		}
		port := fmt.Sprintf("port%d", i)
		for _, step := range []struct {
			in   netns.Netns
			line string
		}{
			{sw, fmt.Sprintf("link add %s type veth peer name %s netns %s", port, device, ns)},
			{sw, "link set " + port + " master bridge0"}, {sw, "link set " + port + " up"},
			{ns, fmt.Sprintf("addr add %v/24 dev %s", p.ip, device)}, {ns, "link set " + device + " up"},
		} {
			if err := step.in.IP(ctx, step.line); err != nil {
				return b, err
			}
		}
		err = ns.Do(func() error {
			ifi, err := net.InterfaceByName(device)
			if err == nil {
				copy(b.macs[i][:], ifi.HardwareAddr)
			}
			return err
		})
		if err != nil {
			return b, err
		}
		if *p.at, err = start(ns, p.core, p.name); err != nil {
			return b, err
		}
	}
	var ok struct{}
	if err := b.server.ask(ctx, command{Do: "open", Name: link}, &ok); err != nil {
		return b, err
	}
	if err := b.client.ask(ctx, command{Do: "open", Name: link}, &ok); err != nil {
		return b, err
	}
	return b, nil
}

func (b *bed) space(ctx context.Context, name string) (netns.Netns, error) {
	n, err := netns.New(ctx, "flood-"+name)
	if err == nil {
		b.spaces = append(b.spaces, n)
	}
	return n, err
}

func (b *bed) close() {
	for _, p := range []*process{b.attacker, b.client, b.server} {
		if p != nil {
			p.close()
		}
	}
	for _, n := range b.spaces {
		n.Remove()
	}
}

// cores are a processor for the server and one for the attacker; the same one if there
// is no other.
func cores() (c [2]int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return c
	}
	n := 0
	for i := range 1024 {
		if set.IsSet(i) && n < len(c) {
			c[n] = i
			n++
		}
	}
	if n == 1 {
		c[1] = c[0]
	}
	return c
}

// process is a child, which answers commands.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// command is what a child is told to do.
type command struct {
	Do     string        `json:"do"`
	Name   string        `json:"name,omitempty"`
	Time   time.Duration `json:"time,omitempty"`
	Target target        `json:"target,omitzero"`
}

// answer is what it says.
type answer struct {
	Err   string          `json:"err,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// start starts a child in a namespace on a processor: it inherits those of the thread.
func start(ns netns.Netns, core int, role string) (*process, error) {
	p := &process{name: role, cmd: exec.Command(executable())}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, ns.Do(func() error {
		var before, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			return err
		}
		one.Set(core)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		err := p.cmd.Start()
		return errors.Join(err, unix.SchedSetaffinity(0, &before))
	})
}

// ask has the child do something and waits for the answer.
func (p *process) ask(ctx context.Context, c command, value any) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { p.cmd.Process.Kill() })
	defer stop()
	late := time.AfterFunc(c.Time+60*time.Second, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("%s: %s: %w", p.name, c.Do, err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s: %s: %w", p.name, c.Do, err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("%s: %s: %w", p.name, c.Do, err)
	}
	if a.Err != "" {
		return fmt.Errorf("%s: %s: %s", p.name, c.Do, a.Err)
	}
	return json.Unmarshal(a.Value, value)
}

func (p *process) close() {
	p.in.Close() // the child ends
	late := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	p.cmd.Wait()
}

// child is the life of a child.
func child(role string) error {
	var do func(command) (any, error)
	var end func()
	switch role {
	case "server":
		s := &server{}
		do, end = s.do, s.close
	case "client":
		c := &client{}
		do, end = c.do, c.close
	case "attacker":
		a := &attacker{}
		do, end = a.do, a.close
	default:
		return fmt.Errorf("no role %q", role)
	}
	defer end()
	in := json.NewDecoder(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			return nil // the parent process is gone
		}
		var a answer
		v, err := do(c)
		if err == nil {
			a.Value, err = json.Marshal(v)
		}
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}
