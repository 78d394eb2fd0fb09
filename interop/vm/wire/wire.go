// Package wire is the protocol between the host and the agent in the guest: a
// stream of JSON values over a virtio-serial port, with requests to the agent and events to the
// host. The protocol does not use the network under test, so impairments do not affect
// it.
package wire

// PortName is the name of the virtio-serial port.
const PortName = "roce.agent"

// Op is the kind of a Request.
type Op string

// The requests.
const (
	Start Op = "start" // run Argv as job ID
	Kill  Op = "kill"  // send Signal to every process of job ID

	// AwaitTCP and AwaitRDMA start job ID, which ends when a program listens on Port of TCP or of
	// rdma_cm, or after TimeoutMS.
	AwaitTCP  Op = "await-tcp"
	AwaitRDMA Op = "await-rdma"
)

// Request goes from the host to the guest.
type Request struct {
	Op     Op
	ID     uint32
	Argv   []string `json:",omitempty"`
	Signal int      `json:",omitempty"`
	Port   int      `json:",omitempty"`
	// TimeoutMS is the time in milliseconds after which SIGKILL ends the job; 0: no limit.
	TimeoutMS int64 `json:",omitempty"`
}

// Kind is what an Event reports.
type Kind string

// The events. Ready comes once, before all others; Exit is the last of its job.
const (
	Ready  Kind = "ready"
	Output Kind = "output" // Data holds what the job wrote, both streams in order
	Exit   Kind = "exit"
)

// Event goes from the guest to the host.
type Event struct {
	Kind Kind
	ID   uint32
	Data []byte `json:",omitempty"`
	// Code is the exit code of a job, or -1 if Signal ended it or Error kept it
	// from starting.
	Code     int    `json:",omitempty"`
	Signal   string `json:",omitempty"`
	TimedOut bool   `json:",omitempty"`
	Error    string `json:",omitempty"`
}
