// Package rdmacm tests librdmacm.so.1 with C programs that call it, and with the programs of Debian's package
// rdmacm-utils, between themselves and with rocectl rping.
package rdmacm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce/interop/netns"
)

// root is the root of the repository.
var root = sync.OnceValue(func() string {
	dir, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return dir
})

// libraries builds the libraries and returns their directory.
var libraries = sync.OnceValues(func() (string, error) {
	return filepath.Join(root(), "bin/cverbs"), output(exec.Command(filepath.Join(root(), "scripts/cverbs")))
})

// rocectl builds the command and returns its path.
var rocectl = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(root(), "bin/rocectl")
	return bin, output(exec.Command("go", "build", "-C", root(), "-o", bin, "./cmd/rocectl"))
})

// output runs a command. The error contains the command's output.
func output(c *exec.Cmd) error {
	out, err := c.CombinedOutput()
	if err != nil {
		return errors.New(strings.Join(c.Args, " ") + ": " + err.Error() + "\n" + string(out))
	}
	return nil
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Interface and addresses of the ends of network.
const (
	device  = "v0"
	serverA = "10.77.0.1"
	clientA = "10.77.0.2"
	server6 = "fd77::1"
	client6 = "fd77::2"
)

// flags are the device flags of rocectl and of ROCE_FLAGS.
var flags = []string{"--dev", device, "--link", "udp"}

// network makes two namespaces that a veth pair connects.
func network(t *testing.T) (server, client netns.Netns) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root is needed for network namespaces")
	}
	ctx := context.Background()
	made := func(name string) netns.Netns {
		n := must[netns.Netns](t)(netns.New(ctx, name))
		t.Cleanup(n.Remove)
		return n
	}
	server, client = made("cm-server"), made("cm-client")
	ip := func(n netns.Netns, line string) {
		t.Helper()
		if err := n.IP(ctx, line); err != nil {
			t.Fatal(err)
		}
	}
	ip(server, "link add "+device+" mtu 4200 type veth peer name "+device+" mtu 4200 netns "+string(client))
	for n, addrs := range map[netns.Netns][]string{server: {serverA + "/24", server6 + "/64 nodad"}, client: {clientA + "/24", client6 + "/64 nodad"}} {
		ip(n, "link set "+device+" up")
		for _, a := range addrs {
			ip(n, "addr add dev "+device+" "+a)
		}
	}
	return server, client
}

// program is a program that runs in a namespace.
type program struct {
	*exec.Cmd
	done   chan struct{} // closed when it has ended
	log    *os.File
	cancel context.CancelFunc
}

// patience is how long a program may take.
const patience = 20 * time.Second

// start runs a command with the libraries in its path.
func start(t *testing.T, n netns.Netns, env []string, argv ...string) *program {
	t.Helper()
	lib := must[string](t)(libraries())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	args := n.Argv(argv...)
	p := &program{Cmd: exec.CommandContext(ctx, args[0], args[1:]...), done: make(chan struct{}), cancel: cancel,
		log: must[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "log")))}
	p.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+lib, "ROCE_FLAGS="+strings.Join(flags, " ")), env...)
	p.Stdout, p.Stderr = p.log, p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.Wait()
		close(p.done)
	}()
	t.Cleanup(func() { p.stop() })
	return p
}

// stop ends the program.
func (p *program) stop() {
	p.cancel()
	<-p.done
	p.log.Close()
}

// ended reports whether the program has ended.
func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// said returns the end of the program's output.
func (p *program) said() string {
	out, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return string(out[max(0, len(out)-most):])
}

// over is in the output of rping when its peer has disconnected.
const over = "DISCONNECT EVENT"

// hitOwnRace reports whether rping failed because of its own race at the end: one of its threads destroys the event
// channel and frees memory that the other thread still reads.
func (p *program) hitOwnRace() bool {
	said := p.said()
	return strings.Contains(said, over) && (strings.Contains(said, "rdma_get_cm_event: ") || strings.Contains(p.ProcessState.String(), "segmentation fault"))
}

// succeeds waits for the end of the program and fails the test if its exit status is not 0.
func (p *program) succeeds(t *testing.T) {
	t.Helper()
	<-p.done
	if strings.Contains(strings.Join(p.Args, " "), " rping ") && p.hitOwnRace() {
		return
	}
	if !p.ProcessState.Success() {
		t.Errorf("%s: %v\n%s", strings.Join(p.Args, " "), p.ProcessState, p.said())
	}
}
