package perftest

import (
	"fmt"
	"strings"

	"github.com/goroce/roce"
)

// Test is one of perftest's programs.
type Test struct {
	Name  string // the program's, without "ib_"
	Size  int    // default size of a message in bytes
	Fixed bool   // no other size is possible
	Iters int    // default number of messages

	// Latency says that messages are sent one by one, and the time of each is measured.
	Latency bool

	title string // in the output
	types []roce.QPType
	// access has the access rights of the server's queue pair and memory.
	access roce.Access
	// Reads says that the operation is a READ or an atomic, so that the other end limits how many are in flight.
	Reads bool
	// TwoSided says that the messages are SENDs, and that the server also measures. In a one-sided test the
	// server's program does not notice the messages, and gets the result from the client.
	TwoSided bool
	// mutual says that both ends of a latency test send. In bandwidth tests both ends send with -b.
	mutual bool
	inline int // default inline size in bytes
	// work creates the sender's part of a test, and serve that of the other end.
	work  func(e *end, remote Dest) (work, error)
	serve func(e *end) (service, error)
}

// Atomics reports whether the operation is an atomic, which -A chooses.
func (t Test) Atomics() bool { return t.access == roce.RemoteAtomic }

// Writes reports whether the operation is a WRITE.
func (t Test) Writes() bool { return t.access == roce.RemoteWrite }

// Watches reports whether the receiver polls memory for the end of a message, because there is no
// completion.
func (t Test) Watches() bool { return t.mutual && !t.TwoSided }

// Services returns the names of the services that the program has.
func (t Test) Services() string {
	names := make([]string, len(t.types))
	for i, typ := range t.types {
		names[i] = typ.String()
	}
	return strings.Join(names, ", ")
}

var (
	reliable   = []roce.QPType{roce.RC}
	connected  = []roce.QPType{roce.RC, roce.UC}
	everything = []roce.QPType{roce.RC, roce.UC, roce.UD}
)

// Tests are all programs.
var Tests = []Test{
	{Name: "send_bw", title: "Send", Size: 65536, Iters: 1000, types: everything, TwoSided: true,
		work: newSends, serve: newReceives},
	{Name: "send_lat", title: "Send", Size: 2, Iters: 1000, Latency: true, types: everything, TwoSided: true, mutual: true, inline: 236,
		work: newSends, serve: newReceives},
	{Name: "write_bw", title: "RDMA_Write", Size: 65536, Iters: 5000, types: connected, access: roce.RemoteWrite,
		work: newWrites, serve: newTarget},
	{Name: "write_lat", title: "RDMA_Write", Size: 2, Iters: 1000, Latency: true, types: connected, access: roce.RemoteWrite, mutual: true, inline: 220},
	{Name: "read_bw", title: "RDMA_Read", Size: 65536, Iters: 1000, types: reliable, access: roce.RemoteRead, Reads: true,
		work: newReads, serve: newSource},
	{Name: "read_lat", title: "RDMA_Read", Size: 2, Iters: 1000, Latency: true, types: reliable, access: roce.RemoteRead, Reads: true,
		work: newReads, serve: newSource},
	{Name: "atomic_bw", title: "Atomic", Size: 8, Fixed: true, Iters: 1000, types: reliable, access: roce.RemoteAtomic, Reads: true,
		work: newAtomics, serve: newCells},
	{Name: "atomic_lat", title: "Atomic", Size: 8, Fixed: true, Iters: 1000, Latency: true, types: reliable, access: roce.RemoteAtomic, Reads: true,
		work: newAtomics, serve: newCells},
}

func (c *Config) title() string {
	words := []string{c.Test.title}
	if c.Test.Atomics() {
		words = append(words, c.Atomic.String())
	}
	if c.Both {
		words = append(words, "Bidirectional")
	}
	if c.PostList > 1 {
		words = append(words, "Post List")
	}
	if c.Test.Latency {
		return strings.Join(append(words, "Latency Test"), " ")
	}
	return strings.Join(append(words, "BW Test"), " ")
}

// announce prints the parameters of the test.
func (s *side) announce() {
	c := s.cfg
	line := func(name string, value any) { fmt.Fprintf(c.Out, " %-15s : %v\n", name, value) }
	fmt.Fprintf(c.Out, "%s\n                    %s\n", rule, c.title())
	line("Number of qps", c.QPs)
	line("Connection type", c.Service)
	if s.sends() {
		line("TX depth", c.TxDepth)
	}
	if c.PostList > 1 {
		line("Post List", c.PostList)
	}
	if s.receives() {
		line("RX depth", c.RxDepth)
	}
	if !c.Test.Latency {
		line("CQ Moderation", c.CQMod)
	}
	line("Mtu", fmt.Sprintf("%d[B]", s.terms.mtu.Bytes()))
	if c.Test.Reads {
		line("Outstand reads", c.OutReads)
	} else {
		line("Max inline data", fmt.Sprintf("%d[B]", c.InlineSize))
	}
	method := "Ethernet"
	if c.CM {
		method = "rdma_cm"
	}
	line("Data ex. method", method)
	fmt.Fprintln(c.Out, rule)
}
