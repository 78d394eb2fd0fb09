//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/conformance/ours"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
)

// bed is the test bed: two namespaces joined by a veth pair. This process opens devices in one of
// them, the peer runs in the other.
type bed struct{ near, far netns.Netns }

const device = "veth0"

// peerIP is where the peer listens.
const nearIP, peerIP = "10.79.0.1", "10.79.0.2"

func newBed(ctx context.Context) (b *bed, err error) {
	b = &bed{}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.near, err = netns.New(ctx, "soak-near"); err != nil {
		return nil, err
	}
	if b.far, err = netns.New(ctx, "soak-far"); err != nil {
		return nil, err
	}
	if err = b.near.IP(ctx, "link add "+device+" type veth peer name "+device+" netns "+string(b.far)); err != nil {
		return nil, err
	}
	for i, n := range []netns.Netns{b.near, b.far} {
		for _, line := range []string{
			fmt.Sprintf("addr add 10.79.0.%d/24 dev %s", i+1, device), fmt.Sprintf("addr add 10.79.1.%d/24 dev %s", i+1, device), "link set " + device + " up",
		} {
			if err = n.IP(ctx, line); err != nil {
				return nil, err
			}
		}
	}
	return b, b.carrier(ctx)
}

// carrier waits until the kernel reports the link as up.
func (b *bed) carrier(ctx context.Context) error {
	for _, n := range []netns.Netns{b.near, b.far} {
		err := n.Do(func() error {
			for {
				ifi, err := net.InterfaceByName(device)
				if err != nil || ifi.Flags&net.FlagRunning != 0 {
					return err
				}
				if err := pause(ctx, 2*time.Millisecond); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (b *bed) close() {
	for _, n := range []netns.Netns{b.near, b.far} {
		if n != "" {
			n.Remove()
		}
	}
}

func open(n netns.Netns, driver string, clean bool, seed uint64) (d *roce.Device, err error) {
	err = n.Do(func() error {
		d, err = openHere(driver, clean, seed)
		return err
	})
	return d, err
}

func openHere(driver string, clean bool, seed uint64) (*roce.Device, error) {
	c := roce.InterfaceConfig{Driver: driver}
	if !clean {
		c.Wrap = func(p link.Port) (link.Port, error) { return fault.Wrap(p, fault.Config{Seed: seed, Tx: rates}) }
	}
	return roce.OpenInterface(device, c)
}

// sides opens devices at both ends of the pair, in this process.
func (b *bed) sides(driver string, seed uint64) sides {
	return func(clean bool) (verbs.Node, verbs.Node, error) {
		seed += 2
		return both(func() (verbs.Node, error) { return ours.Open(open(b.near, driver, clean, seed)) },
			func() (verbs.Node, error) { return ours.Open(open(b.far, driver, clean, seed+1)) })
	}
}

// process is the peer.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts the peer and waits until it listens.
func (b *bed) start(driver string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), peerVariable+"="+driver)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.in, err = p.cmd.StdinPipe(); err != nil { // the peer ends when this is closed, or when this process ends
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.far.Do(p.cmd.Start); err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	late := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		p.kill()
		return nil, fmt.Errorf("the peer has not started: %q, %w", line, err)
	}
	return p, nil
}

// rest asks the peer, after its connections have ended, whether it uses no more resources than
// before.
func (p *process) rest() error {
	late := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	if _, err := p.in.Write([]byte("rest\n")); err != nil {
		return fmt.Errorf("the peer is gone: %w", err)
	}
	switch line, err := p.out.ReadString('\n'); {
	case err != nil:
		return fmt.Errorf("the peer is gone: %w", err)
	case line != "rest\n":
		return fmt.Errorf("the peer, whose connections are over: %s", strings.TrimSpace(line))
	}
	return nil
}

// kill ends the peer by SIGKILL.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// end makes the peer end by itself, and waits for that.
func (p *process) end() error {
	p.in.Close()
	late := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.cmd.Wait(); err != nil {
		return errors.Join(errors.New("the peer has not ended properly"), err)
	}
	return nil
}
