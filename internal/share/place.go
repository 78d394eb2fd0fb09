package share

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/ids"
	"github.com/goroce/roce/link"
)

// Config configures Join.
type Config struct {
	// Key names the shared address or interface, in the network namespace of the
	// caller: "udp 10.0.0.1".
	Key string

	// Slots is the number of slots for the process: one for each queue.
	Slots int

	// Medium distributes the packets of the address.
	Medium Medium
}

// Medium is the part of a driver that distributes the packets of an address to slots. The
// keeper calls it, one call at a time.
type Medium interface {
	// Sockets returns how many sockets each slot has.
	Sockets() int

	// Hear reports whether all processes receive each connection request.
	Hear() bool

	// Open opens the sockets of all slots, slot by slot, which do not receive yet, and then
	// other files that must stay open as long as a process uses the address. The caller closes
	// the descriptors. notes describe missing features. EADDRINUSE means that a program uses
	// the address without sharing it.
	Open() (files []int, notes []string, err error)

	// Steer makes the kernel distribute the packets. own are the sockets of a slot. services
	// have listeners; requests for other services go to the slot keeper.
	Steer(own []int, services []Service, keeper Slot) error

	// Silence makes the sockets of a slot receive nothing, and empties them.
	Silence(sockets []int)
}

// Sharer is a Port of an address that several processes share.
type Sharer interface {
	link.Port
	Shared() Shared // nil: the Port does not share its address
}

// Teller answers requests of other processes of the host for a report about a device.
type Teller interface {
	// OnReport sets the function that makes the report of this process; detail asks for its queue pairs, too.
	OnReport(f func(detail bool) Report)
}

// Owned is a Port that does not share its address and may have an [Owner].
type Owned interface {
	link.Port
	Owner() Teller // nil: it has none
}

// Presence connects a device with the other processes of the host.
type Presence struct {
	Shared Shared // nil: the device does not share the address
	Teller Teller // nil: no process can request a report about the device
}

// Of returns the presence of the device whose first Port is given.
func Of(p link.Port) (at Presence) {
	if s, ok := link.As[Sharer](p); ok {
		if at.Shared = s.Shared(); at.Shared != nil {
			at.Teller = at.Shared
			return at
		}
	}
	if o, ok := link.As[Owned](p); ok {
		at.Teller = o.Owner()
	}
	return at
}

// Shared is the interface of a [Place] for the rest of the stack. The driver
// closes it.
type Shared interface {
	// Slots returns the slots of the process, one for each queue. Management datagrams go
	// to the first.
	Slots() []Slot

	// Keys returns the numbers for memory keys of this process. Other processes on the address
	// have other numbers.
	Keys() ids.Part

	// Whose returns the slot of a packet, and whether the slot belongs to another process. body
	// begins with the BTH. A request for a service without a listener belongs to the keeper;
	// other packets for no process belong to this process.
	Whose(body []byte) (to Slot, other bool)

	// Heard reports whether all processes have received the packet from the network
	// themselves.
	Heard(body []byte) bool

	// Anybodys reports whether a packet is a management datagram that does not identify its
	// process, so that each process must check it.
	Anybodys(body []byte) bool

	// Others lists the first slot of each other device on the address.
	Others() []Slot

	// NewOut returns an Outlet, which passes packets to other processes.
	NewOut() Outlet

	// Receive starts goroutines that call take for each packet from other processes,
	// until the Place is closed.
	Receive(take func(*Packet)) error

	// Claim makes this process a listener for a service. It fails with EADDRINUSE, and
	// names the process, if another process listens for the service. A process may
	// claim a service several times. Drop ends a Claim.
	Claim(service uint64) error
	Drop(service uint64)

	// Connected records a connection. If this process dies, the keeper tells
	// the connection's peer. Disconnected removes the connection, and zeroes
	// h.
	Connected(c Conn) Handle
	Disconnected(h *Handle)

	// OnOrphans sets the function that tells the peers of a dead process about the end of their connections.
	OnOrphans(f func([]Conn))

	Teller

	Stats() Stats
}

// Outlet collects packets for other processes. One goroutine at a time uses it.
type Outlet interface {
	// Add adds a packet to a slot of another process. network tells whether the packet came
	// from the network.
	Add(to Slot, f *link.Frame, network bool)

	// Flush sends the added packets. Packets for which the other process has no room are
	// lost, as on a network.
	Flush()

	// Crowded reports whether many packets wait for the process of a slot, because it reads
	// more slowly than they arrive, so that further packets may be lost. It returns false if
	// that process reads nothing, for instance because it is stopped: waiting could then be
	// useless.
	Crowded(to Slot) bool
}

// Handle identifies a recorded connection. The zero value means none.
type Handle struct{ entry uint32 }

// Conn is a connection, with the data to tell its peer when the process dies.
type Conn struct {
	LocalID, RemoteID uint32 // communication IDs
	RemoteQPN         bth.QPN
	Local, Remote     bth.GID
}

// Packet is a packet from another process of the host. It is valid until the function that
// receives it returns.
type Packet struct {
	Frame   link.Frame
	Slot    Slot // destination
	Network bool // it had arrived from the network at the wrong process
}

// Member is a process on an address.
type Member struct {
	PID     int           `json:"pid"`
	UID     int           `json:"uid"`
	Slots   []Slot        `json:"slots"`
	Age     time.Duration `json:"age"`
	Keeper  bool          `json:"keeper"`
	Version string        `json:"version"`
	Report  *Report       `json:"report,omitempty"` // nil: the process did not answer, or belongs to another user
}

// Address is an address, and the processes on it.
type Address struct {
	Key       string   `json:"address"`
	Members   []Member `json:"processes"`
	Exclusive bool     `json:"exclusive,omitempty"` // one process has it for itself: it has no slots and no keeper
	Error     string   `json:"error,omitempty"`     // why the keeper, or the one process, did not answer
}

// Stats counts packets between the processes of the host.
type Stats struct {
	Sent, Received uint64 // packets
	Strays         uint64 // received packets that had arrived from the network at the wrong process
	Dropped        uint64 // the other process had no room, or had ended
}
