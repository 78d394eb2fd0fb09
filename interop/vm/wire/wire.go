// Package wire is what the host and the agent in the guest say to each other: a
// stream of JSON values over a virtio-serial port, requests one way and events the
// other. The port carries nothing else, so that no impairment of the network under
// test can touch it.
package wire

// PortName is the name of the virtio-serial port.
const PortName = "roce.agent"

// Op is what a Request asks for.
type Op string

// The requests.
const (
	Start Op = "start" // run Argv as job ID
	Kill  Op = "kill"  // send Signal to every process of job ID

	// AwaitTCP and AwaitRDMA end as job ID when a program listens on Port, over TCP or by
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
	// TimeoutMS ends a job with SIGKILL after so many milliseconds; 0 is never.
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
