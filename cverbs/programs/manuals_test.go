package programs

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// example is a program of testdata/manuals: teaching examples of libibverbs and librdmacm.
type example struct {
	pair
	wantServer, wantClient []string // lines that each end prints
	libs                   []string // libraries to link
}

const (
	overCM  = false
	overTCP = true
)

// serving makes the row of an example whose server listens at a port.
func serving(name, server, client string, port int, tcp bool) example {
	return example{pair: pair{name: name, server: server, client: client, port: port, tcp: tcp}, libs: []string{"-libverbs", "-lrdmacm", "-lpthread"}}
}

// prints adds lines that the ends must print.
func (e example) prints(server, client string) example {
	e.wantServer, e.wantClient = strings.Split(server, "\n"), strings.Split(client, "\n")
	return e
}

// group returns the row of an example with a multicast group: the server is the receiver, and prints when it has joined.
func (e example) group() example {
	e.lossless, e.up = true, regexp.MustCompile(`joined dgid`)
	return e
}

// onFabric returns the row of a program of libfabric.
func (e example) onFabric() example { e.libs = []string{"-lfabric"}; return e }

// noLosses returns the row of an example that one lost packet delays for minutes.
func (e example) noLosses() example { e.lossless = true; return e }

var examples = []example{
	serving("RDMA_RC_example", "RDMA_RC_example -g 1 -p {port}", "RDMA_RC_example -g 1 -p {port} {peer}", 7330, overTCP).
		prints("Contents of server buffer: 'RDMA write operation'\ntest result is 0",
			"Message is: 'SEND operation      '\nContents of server's buffer: 'RDMA read operation '\ntest result is 0"),
	serving("mckey", "mckey -m 239.77.1.3 -b {self} -C 20", "mckey -s -m 239.77.1.3 -b {self} -C 20", 0, overCM).group().
		prints("data transfers complete\nreturn status 0", "initiating data transfers\nreturn status 0"),
	// Its completion queue has two entries, whatever the number of messages.
	serving("mc", "mc -m 239.77.1.4 -b {self} -c 2", "mc -s -m 239.77.1.4 -b {self} -c 2", 0, overCM).group().
		prints("received message 2", "sent message 2"),
	serving("srq", "srq -s -a {self}", "srq -a {peer}", 51216, overCM).
		prints("send count: 2", "send count: 100, qp_num: \\d+\nrecv count: 2"),
	// There is one port, so the alternate path equals the first one. An event reports the migration.
	serving("apm", "apm -s -p 51217 -c 4", "apm -a {peer} -p 51217 -c 4 -m 2", 51217, overCM).
		prints("QP path migrated\nsend: 4", "QP path migrated\nrecv: 4"),
	// The server exits when its peer disconnects. If its answer is lost, no one repeats it.
	serving("flow", "flow -s {self} 7320", "flow -c {peer} 7320", 7320, overCM).noLosses().
		prints("server: the region is as the client wrote it\ndisconnected", "client: what was read is what was written\ndisconnected"),
	// The server waits for a last message that the client sends only once.
	serving("kofi", "kofi -s {self} 7340", "kofi {peer} 7340", 7340, overCM).onFabric().noLosses().
		prints("received '\\*\\*\\* Client Connected'\nshut down", "\\*\\*\\* Client Connected\nClient private data\\(len \\d+\\): ''"),
}

// TestManuals compiles the examples against the distribution's headers and libraries, and runs each
// of them between two hosts.
func TestManuals(t *testing.T) {
	needs(t, "cc", "ss", "stdbuf")
	programs := t.TempDir()
	a, b := hosts(t, 4200)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			e.compile(t, programs)
			server, client := command{programs + "/" + e.server, true}, command{programs + "/" + e.client, true}
			for i, c := range conditions {
				if e.lossless && c.harms || c.name == "xdp" && !e.tcp && e.up == nil {
					continue
				}
				e := e
				if e.tcp { // the previous run has just used the port
					e.port += i
				}
				t.Run(c.name, func(t *testing.T) { e.between(t, a, b, server, client, c) })
			}
		})
	}
}

// manual returns the example of a name.
func manual(t *testing.T, name string) example {
	t.Helper()
	i := slices.IndexFunc(examples, func(e example) bool { return e.name == name })
	if i < 0 {
		t.Fatalf("testdata/manuals has no %s", name)
	}
	return examples[i]
}

// compile compiles the example into a directory.
func (e example) compile(t *testing.T, dir string) {
	t.Helper()
	// -w: some print a uint64_t with %d.
	argv := []string{"-D_GNU_SOURCE", "-O1", "-w", "-o", filepath.Join(dir, e.name), "testdata/manuals/" + e.name + ".c"}
	if out, err := exec.Command("cc", append(argv, e.libs...)...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
}

// command is a command line of an end, and whether it is a program in C, which uses the libraries of this module.
type command struct {
	line string
	c    bool
}

// start starts the command on a host.
func (c command) start(t *testing.T, e example, self, peer host, flags string) *proc.Proc {
	t.Helper()
	line := strings.NewReplacer("{self}", self.ip4, "{peer}", peer.ip4, "{port}", strconv.Itoa(e.port)).Replace(c.line)
	if c.c {
		return self.start(t, flags, append([]string{"stdbuf", "-oL"}, strings.Fields(line)...)...)
	}
	p, err := proc.Start(t.Context(), self.Argv(strings.Fields(line)...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// between runs the server on a and the client on b, and reads what they print.
func (e example) between(t *testing.T, a, b host, server, client command, c condition) {
	s := server.start(t, e, a, b, c.flags)
	defer func() {
		if s.Running() {
			s.Signal(9)
			s.Wait(t.Context())
		}
	}()
	if e.up != nil {
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		if err := s.WaitFor(ctx, e.up); err != nil {
			t.Fatalf("%s: %v\n%s", s.Line, err, s.Output())
		}
	} else {
		a.listening(t, s, e.tcp, e.port)
	}
	cl := client.start(t, e, b, a, c.flags)
	limit := time.Minute
	if c.harms {
		limit = 2 * time.Minute // disconnecting from a program that has ended takes fifteen tries of four seconds
	}
	ended(t, cl, limit)
	ended(t, s, limit)
	for _, end := range []struct {
		side   string
		output string
		want   []string
	}{{"server", s.Output(), e.wantServer}, {"client", cl.Output(), e.wantClient}} {
		for _, line := range end.want {
			if !regexp.MustCompile(`(?m)` + line + `$`).MatchString(end.output) {
				t.Errorf("the %s does not print %q:\n%s", end.side, line, end.output)
			}
		}
	}
}
