package rdmacm

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/interop/netns"
)

// exchange is a run of two programs, a server and a client.
type exchange struct {
	name           string
	server, client string
	endless        bool   // the server does not exit by itself
	ready          string // if set, the group in /proc/net/igmp that the server joins
	twin           bool   // rocectl has the program, too
	local          bool   // the programs wait for each datagram, and a network may lose some
}

// group is the multicast group of mckey, and joined its form in /proc/net/igmp.
const group, joined = "239.1.2.3", "030201EF"

// exchanges are the runs. The addresses belong to the two namespaces.
var exchanges = []exchange{
	{name: "rping", server: "rping -s -a " + serverA + " -C 10 -v", client: "rping -c -a " + serverA + " -C 10 -v", twin: true},
	{name: "rping verified", server: "rping -s -a " + serverA + " -C 20 -S 5000", client: "rping -c -a " + serverA + " -C 20 -S 5000 -V", twin: true},
	{name: "rping persistent", server: "rping -s -P -a " + serverA, client: "rping -c -a " + serverA + " -C 10 -V", endless: true},
	{name: "rping IPv6", server: "rping -s -a " + server6 + " -C 10", client: "rping -c -a " + server6 + " -C 10 -V", twin: true},
	{name: "ucmatose", server: "ucmatose -c 5", client: "ucmatose -c 5 -s " + serverA},
	{name: "ucmatose many messages", server: "ucmatose -C 100 -S 4000", client: "ucmatose -C 100 -S 4000 -s " + serverA},
	{name: "ucmatose migrated", server: "ucmatose -m", client: "ucmatose -m -s " + serverA},
	{name: "udaddy", server: "udaddy -c 3", client: "udaddy -c 3 -s " + serverA},
	{name: "udaddy bursts", server: "udaddy -c 5 -C 2000 -S 1000", client: "udaddy -c 5 -C 2000 -S 1000 -s " + serverA, local: true},
	{name: "mckey", server: "mckey -m " + group + " -C 5 -b " + serverA, client: "mckey -s -m " + group + " -C 5 -b " + clientA, ready: joined},
	{name: "rdma_server", server: "rdma_server", client: "rdma_client -s " + serverA},
	{name: "rdma_xserver", server: "rdma_xserver", client: "rdma_xclient -s " + serverA},
	{name: "rdma_xserver XRC", server: "rdma_xserver -c x", client: "rdma_xclient -c x -s " + serverA},
	{name: "cmtime", server: "cmtime", client: "cmtime -c 100 -s " + serverA, endless: true},
}

// ends say which of the two programs come from the distribution and use the libraries.
var ends = []struct {
	name           string
	server, client bool
}{{"both", true, true}, {"server", true, false}, {"client", false, true}}

// TestPrograms runs the programs of rdmacm-utils. If rocectl has the same program, it also runs at either end.
func TestPrograms(t *testing.T) {
	server, client := network(t)
	for _, x := range exchanges {
		for _, e := range ends {
			if !x.twin && !(e.server && e.client) || x.local {
				continue
			}
			t.Run(x.name+"/"+e.name, func(t *testing.T) {
				x.run(t, server, client, argv(t, x.server, e.server), argv(t, x.client, e.client))
			})
		}
	}
}

// TestSharedAddress runs the programs in one namespace, where both ends have the same device.
func TestSharedAddress(t *testing.T) {
	n, _ := network(t)
	for _, x := range exchanges {
		t.Run(x.name, func(t *testing.T) {
			if x.ready != "" {
				x.client = strings.ReplaceAll(x.client, clientA, serverA)
			}
			x.run(t, n, n, argv(t, x.server, true), argv(t, x.client, true))
		})
	}
}

// argv returns a command line: of the distribution's program, or of rocectl's.
func argv(t *testing.T, line string, theirs bool) []string {
	t.Helper()
	words := strings.Fields(line)
	if !theirs {
		return append(append([]string{must[string](t)(rocectl())}, words...), flags...)
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		t.Skip(words[0] + " is not installed: package rdmacm-utils")
	}
	return words
}

// run starts the server and, when it is ready, the client.
func (x exchange) run(t *testing.T, at, from netns.Netns, server, client []string) {
	s := start(t, at, nil, server...)
	// The port of RoCE in /proc/net: a request would be lost before the device is open.
	ready := []string{"grep", "-qi", ":12B7 ", "/proc/net/udp", "/proc/net/udp6"}
	if x.ready != "" {
		ready = []string{"grep", "-q", x.ready, "/proc/net/igmp"}
	}
	await(t, s, at.Argv(ready...))
	// Servers do not print when they begin to listen. A client that starts too early is refused, and is started again.
	// A client that was connected is not started again: its server has ended or is about to end.
	c := start(t, from, nil, client...)
	for end := time.Now().Add(patience / 2); ; c = start(t, from, nil, client...) {
		<-c.done
		if c.ProcessState.Success() || strings.Contains(c.said(), over) || s.ended() || time.Now().After(end) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.succeeds(t)
	if x.endless && !s.ended() {
		s.stop()
		return
	}
	s.succeeds(t)
}

// await waits until a command succeeds.
func await(t *testing.T, s *program, argv []string) {
	t.Helper()
	for end := time.Now().Add(patience / 2); ; time.Sleep(20 * time.Millisecond) {
		err := exec.Command(argv[0], argv[1:]...).Run()
		if err == nil {
			return
		}
		if s.ended() || time.Now().After(end) {
			t.Fatalf("the server is not ready: %v\n%s", err, s.said())
		}
	}
}
