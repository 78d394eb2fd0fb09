//go:build linux

// Package vm boots a Debian kernel with rxe under QEMU and runs commands in it.
// One boot serves any number of commands, several at a time.
package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/vm/wire"
)

// Image builds or finds the image of a kernel series ("6.1", "6.12", "7") and returns
// its folder. dir is the folder of this package's scripts.
func Image(ctx context.Context, dir, series string) (string, error) {
	image, err := lastLine(ctx, filepath.Join(dir, "build.sh"), series)
	if err != nil {
		return "", fmt.Errorf("building the image of kernel %s: %w", series, err)
	}
	return image, nil
}

// QEMU fetches the QEMU of the Debian release after this one and returns the program for [Config].QEMU. dir is
// the folder of this package's scripts.
func QEMU(ctx context.Context, dir string) (string, error) {
	program, err := lastLine(ctx, filepath.Join(dir, "qemu.sh"))
	if err != nil {
		return "", fmt.Errorf("fetching another QEMU: %w", err)
	}
	return program, nil
}

// lastLine runs a script and returns the last line of its output.
func lastLine(ctx context.Context, argv ...string) (string, error) {
	out, err := proc.Run(ctx, argv...)
	if err != nil {
		return "", err
	}
	out = strings.TrimSpace(out)
	return out[strings.LastIndex(out, "\n")+1:], nil
}

// Config says how to boot a guest.
type Config struct {
	Scripts string // folder of this package's scripts
	Image   string // what Image returned
	Netns   string // network namespace that has the tap
	Tap     string // an existing tap device
	IP4     string // address of eth0 with prefix length
	IP6     string
	MAC     string
	MTU     int
	CPUs    int    // 0: one
	Accel   string // "kvm" or "tcg,thread=multi"; empty: the value of VM_ACCEL, or else the latter
	CPU     string // qemu's model and features; empty: the value of VM_CPU, or else max
	Console string // file for the console's output

	// Cards are additional interfaces of the guest, eth1 and so on. In Linux 6.13 and later their
	// driver supports zero copy of AF_XDP. The guest's init does not configure them.
	Cards []Card

	// Model is the device of the cards: "igb", or virtio_net if it is empty.
	Model string
	QEMU  string // what QEMU returned; empty: that of this system

	// Files are put into the guest's file system, by their paths there.
	Files map[string]string
}

// Card is an interface of a guest.
type Card struct {
	Tap    string // an existing tap device, with several queues for virtio_net
	MAC    string
	Queues int // at least two
}

// VM is a running guest.
type VM struct {
	qemu *proc.Proc
	dir  string // holds the sockets of the agent and of QEMU's monitor
	conn net.Conn

	monitor string // path of the socket

	mu    sync.Mutex
	enc   *json.Encoder
	jobs  map[uint32]*proc.Proc
	last  uint32
	ready chan struct{}
	dead  error
}

// Boot starts a guest and returns when its agent answers: rxe0 is up then.
func Boot(ctx context.Context, c Config) (*VM, error) {
	dir, err := os.MkdirTemp("", "roce-vm-")
	if err != nil {
		return nil, err
	}
	v := &VM{dir: dir, jobs: make(map[uint32]*proc.Proc), ready: make(chan struct{})}
	if err := v.boot(ctx, c); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *VM) boot(ctx context.Context, c Config) error {
	sock := filepath.Join(v.dir, "agent")
	image := c.Image
	if len(c.Files) > 0 {
		image = v.dir
		if err := withFiles(image, c.Image, c.Files); err != nil {
			return err
		}
	}
	env := []string{fmt.Sprintf("VM_MTU=%d", c.MTU), "VM_IP4=" + c.IP4, "VM_IP6=" + c.IP6, "VM_MAC=" + c.MAC, fmt.Sprintf("VM_CPUS=%d", max(1, c.CPUs))}
	for _, v := range []struct{ name, value string }{{"VM_ACCEL", c.Accel}, {"VM_CPU", c.CPU}, {"VM_QEMU", c.QEMU}} {
		if v.value != "" {
			env = append(env, v.name+"="+v.value)
		}
	}
	var cards []string
	for _, card := range c.Cards {
		cards = append(cards, fmt.Sprintf("%s,%s,%d", card.Tap, card.MAC, card.Queues))
	}
	env = append(env, "VM_CARDS="+strings.Join(cards, " "), "VM_CARD="+c.Model)
	// The end of ctx does not stop a booted guest: only Close does.
	argv := append([]string{"ip", "netns", "exec", c.Netns, "env"}, env...)
	q, err := proc.Start(context.WithoutCancel(ctx), append(argv, filepath.Join(c.Scripts, "boot.sh"), image, c.Tap, sock)...)
	if err != nil {
		return err
	}
	v.qemu, v.monitor = q, sock+".monitor"
	go func() {
		q.Wait(context.Background())
		os.WriteFile(c.Console, []byte(q.Output()), 0o644)
	}()
	for {
		if v.conn, err = net.Dial("unix", sock); err == nil {
			break
		}
		if !q.Running() {
			return fmt.Errorf("qemu ended: %s", q.Output())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	v.enc = json.NewEncoder(v.conn)
	go v.read()
	select {
	case <-v.ready:
		return v.err()
	case <-ctx.Done():
		return fmt.Errorf("the guest's agent has not answered: %w; console: %s", context.Cause(ctx), q.Output())
	}
}

func (v *VM) err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.dead
}

// read passes the agent's events to their commands.
func (v *VM) read() {
	dec := json.NewDecoder(v.conn)
	for {
		var e wire.Event
		if err := dec.Decode(&e); err != nil {
			v.died(fmt.Errorf("the guest is gone: %w", err))
			return
		}
		if e.Kind == wire.Ready {
			close(v.ready)
			continue
		}
		v.mu.Lock()
		p := v.jobs[e.ID]
		if e.Kind == wire.Exit {
			delete(v.jobs, e.ID)
		}
		v.mu.Unlock()
		if p == nil {
			continue
		}
		switch e.Kind {
		case wire.Output:
			p.Write(e.Data)
		case wire.Exit:
			x := proc.Exit{Code: e.Code, Signal: e.Signal, TimedOut: e.TimedOut}
			if e.Error != "" {
				x.Err = errors.New(e.Error)
			}
			p.Done(x)
		}
	}
}

func (v *VM) died(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dead = err
	for id, p := range v.jobs {
		p.Done(proc.Exit{Code: -1, Err: err})
		delete(v.jobs, id)
	}
	select {
	case <-v.ready:
	default:
		close(v.ready)
	}
}

// panics matches the line with the reason why a kernel has stopped.
var panics = regexp.MustCompile(`(?m)^.*(PANIC: .*|Oops: .*|BUG: .*|Kernel panic - .*)$`)

// oops matches the messages of a kernel about its own faults.
var oops = regexp.MustCompile(`(?m)^.*(BUG:|WARNING:|Oops|general protection|hung_task|soft lockup).*$`)

// Complaints returns the first messages in a kernel's log about its own faults.
func Complaints(log string) []string { return oops.FindAllString(log, 5) }

// Gone returns nil while the guest is running, and afterwards the reason why it is not, with
// the message of its kernel if that is known. console is the whole output of its console.
func (v *VM) Gone() (console string, err error) {
	if err = v.err(); err == nil {
		return "", nil
	}
	console = v.qemu.Output()
	if line := panics.FindString(console); line != "" {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(line))
	}
	return console, err
}

func (v *VM) send(r wire.Request) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dead != nil {
		return v.dead
	}
	return v.enc.Encode(r)
}

// Start runs argv in the guest; limit ends it there if it is not 0. Output is
// line buffered, as on a terminal.
func (v *VM) Start(limit time.Duration, argv ...string) (*proc.Proc, error) {
	full := append([]string{"stdbuf", "-oL"}, argv...)
	return v.begin(proc.Quote(argv), wire.Request{Op: wire.Start, Argv: full, TimeoutMS: limit.Milliseconds()})
}

// Await starts a job that ends when a program in the guest listens on a port, of TCP or of rdma_cm.
func (v *VM) Await(limit time.Duration, port int, tcp bool) (*proc.Proc, error) {
	op := wire.AwaitRDMA
	if tcp {
		op = wire.AwaitTCP
	}
	return v.begin(fmt.Sprintf("%s %d", op, port), wire.Request{Op: op, Port: port, TimeoutMS: limit.Milliseconds()})
}

// begin sends the request of a job. line describes the job.
func (v *VM) begin(line string, r wire.Request) (*proc.Proc, error) {
	v.mu.Lock()
	v.last++
	r.ID = v.last
	p := proc.New(line, func(s syscall.Signal) error {
		return v.send(wire.Request{Op: wire.Kill, ID: r.ID, Signal: int(s)})
	})
	v.jobs[r.ID] = p
	v.mu.Unlock()
	if err := v.send(r); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Line, err)
	}
	return p, nil
}

// Run runs argv in the guest to its end and returns its output; an exit code
// other than 0 is an error.
func (v *VM) Run(ctx context.Context, argv ...string) (string, error) {
	p, err := v.Start(time.Minute, argv...)
	if err != nil {
		return "", err
	}
	return p.Finish(ctx)
}

// Close stops the guest at once and waits until it is gone.
func (v *VM) Close() {
	if v.conn != nil {
		v.conn.Close()
	}
	if v.qemu != nil {
		v.qemu.Signal(syscall.SIGKILL)
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		v.qemu.Wait(ctx)
	}
	os.RemoveAll(v.dir)
}
