// Package impair is a bridge between two interfaces. It forwards every frame, and injects faults into RoCE packets as a rule file
// says. The ends need no change: they may be any two RoCE peers, hardware or software, in network namespaces, virtual machines or
// other hosts.
//
// The rules and their engine are those of link/fault. This package adds the file format (see Load),
// the bridge over two packet sockets, or in one interface (Run, on Linux), and the trace. All kernel objects of the bridge belong to
// its descriptors, so the kernel removes them when the process is killed.
package impair

import (
	"fmt"
	"strings"
	"time"

	"github.com/goroce/roce/link/fault"
)

// Interface names one of the two interfaces of a bridge.
type Interface struct {
	Name  string
	Netns string // name or path of a network namespace; empty: that of the process
}

// ParseInterface reads "IFACE" or "IFACE@NETNS".
func ParseInterface(text string) (Interface, error) {
	name, ns, found := strings.Cut(text, "@")
	if name == "" || found && ns == "" {
		return Interface{}, fmt.Errorf("%q is not IFACE or IFACE@NETNS", text)
	}
	return Interface{name, ns}, nil
}

// String returns the form that ParseInterface reads.
func (i Interface) String() string {
	if i.Netns == "" {
		return i.Name
	}
	return i.Name + "@" + i.Netns
}

// MaxBuffer is the largest Config.Buffer: the kernel doubles the value, and stores it in 31 bits.
const MaxBuffer = 1<<30 - 1

// Config configures a bridge.
type Config struct {
	A, B   Interface    // B zero: the bridge is in interface A, and its ends are the host's stack and the wire
	Faults fault.Config // Tx is from A to B, Rx from B to A
	Trace  *Trace       // nil: none
	Buffer int          // receive buffer of each interface in bytes; 0: 64 MiB

	// Note is called with a message about an interface, for example that it is down. It may be nil.
	Note func(text string)

	// Ready is called when the bridge begins to forward packets. It may be nil.
	Ready func()
}

// Ends returns the names of both ends.
func (c *Config) Ends() []string {
	if c.B == (Interface{}) {
		return []string{c.A.String() + " host", c.A.String() + " wire"}
	}
	return []string{c.A.String(), c.B.String()}
}

// Side counts the frames of one interface.
type Side struct {
	Interface string `json:"interface"`
	Received  uint64 `json:"received"` // frames; a super-packet of RoCE counts as its packets
	Sent      uint64 `json:"sent"`
	RoCE      uint64 `json:"roce"`     // of the received ones
	Overrun   uint64 `json:"overrun"`  // the kernel dropped them before the bridge read them
	Unsent    uint64 `json:"unsent"`   // the interface did not accept them
	Unusable  uint64 `json:"unusable"` // super-packets that the kernel could not pass on, and damaged frames
}

// Report says what a bridge did.
type Report struct {
	A           Side                `json:"a"`
	B           Side                `json:"b"`
	AToB        fault.Counters      `json:"a_to_b"`
	BToA        fault.Counters      `json:"b_to_a"`
	Rules       []fault.RuleCounter `json:"rules"`
	Connections int                 `json:"connections"`
	Elapsed     time.Duration       `json:"elapsed_ns"`

	// These count state that the engine dropped because there was too much, although it was in use: see fault.Forgotten.
	ForgottenConnections uint64 `json:"forgotten_connections"`
	ForgottenIterations  uint64 `json:"forgotten_iterations"`
}

// directions names the directions of faults, as rule files do.
var directions = map[string]fault.Direction{"a-to-b": fault.Tx, "b-to-a": fault.Rx, "both": 0}
