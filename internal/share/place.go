package share

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/ids"
	"github.com/goroce/roce/link"
)

// Config says what to join.
type Config struct {
	// Key names what is shared, in the network namespace of the caller: "udp 10.0.0.1".
	Key string

	// Slots is how many slots the process wants: one for each queue.
	Slots int

	// Medium is how packets of the address are dealt.
	Medium Medium
}

// Medium is the part of a driver that deals the packets of an address to slots. The keeper
// calls it, one call at a time.
type Medium interface {
	// Sockets returns how many sockets each slot has.
	Sockets() int

	// Hear reports whether all processes receive each request to connect.
	Hear() bool

	// Open opens the sockets of all slots, slot by slot, which receive nothing yet, and then
	// what else must stay open as long as somebody uses the address. The caller closes the
	// descriptors. notes say what was degraded. An error that is EADDRINUSE says that somebody
	// uses the address who does not share it.
	Open() (files []int, notes []string, err error)

	// Steer has the kernel deal the packets. own are the sockets of a slot. services are those
	// that processes listen for; a request for another service is for the slot keeper.
	Steer(own []int, services []Service, keeper Slot) error

	// Silence makes the sockets of a slot receive nothing, and empties them.
	Silence(sockets []int)
}

// Sharer is a Port of an address that several processes share.
type Sharer interface {
	link.Port
	Shared() Shared // nil: the Port has the address for itself
}

// Of returns what a process has on the address of a Port; nil if the Port has the address for
// itself.
func Of(p link.Port) Shared {
	if s, ok := link.As[Sharer](p); ok {
		return s.Shared()
	}
	return nil
}

// Shared is a [Place] as the rest of the stack sees it. The driver closes it.
type Shared interface {
	// Slots returns the slots of the process, one for each queue. Management datagrams are
	// for the first.
	Slots() []Slot

	// Keys returns the numbers that this process makes memory keys of. Those of other processes
	// on the address are others.
	Keys() ids.Part

	// Whose returns the slot of a packet, which is given from the BTH on, and whether that is
	// another process's. A request for a service that nobody listens for is for the keeper, any
	// other packet for nobody is this process's.
	Whose(body []byte) (to Slot, other bool)

	// Heard reports whether the process that a packet is for has received it from the network
	// itself, as all processes have.
	Heard(body []byte) bool

	// Anybodys reports whether a packet is a management datagram that does not say for which
	// process it is: each has to look.
	Anybodys(body []byte) bool

	// Others lists the first slot of each other device on the address.
	Others() []Slot

	// NewOut returns what passes packets to other processes.
	NewOut() Outlet

	// Receive has take called for each packet from other processes, on other goroutines,
	// until the Place is closed.
	Receive(take func(*Packet)) error

	// Claim says that this process listens for a service from now on. It fails with
	// EADDRINUSE, and says who, if another process does. A process may claim a service
	// several times. Drop ends a Claim.
	Claim(service uint64) error
	Drop(service uint64)

	// Connected notes a connection, whose peer is told when this process dies.
	// Disconnected notes that it is over, and makes h none.
	Connected(c Conn) Handle
	Disconnected(h *Handle)

	// OnOrphans sets what tells the peers of a process that died that their connections are
	// over. OnReport sets what answers the question what this process does; detail asks
	// for its queue pairs, too.
	OnOrphans(f func([]Conn))
	OnReport(f func(detail bool) Report)

	Stats() Stats
}

// Outlet collects packets for other processes. One goroutine at a time uses it.
type Outlet interface {
	// Add adds a packet to a slot of another process. network says that it came from there.
	Add(to Slot, f *link.Frame, network bool)

	// Flush sends what was added. What the other process has no room for is lost, as on a
	// network.
	Flush()

	// Crowded reports whether many packets wait for the process of a slot, which reads slower
	// than they come: more of them may be lost. It is false if that process reads nothing, as
	// when it is stopped: to wait for it may be in vain.
	Crowded(to Slot) bool
}

// Handle is a connection that was noted. The zero value is none.
type Handle struct{ entry uint32 }

// Conn is a connection whose peer is told when the process dies.
type Conn struct {
	LocalID, RemoteID uint32 // communication IDs
	RemoteQPN         bth.QPN
	Local, Remote     bth.GID
}

// Packet is a packet from another process of the host. It is valid until the function that
// takes it returns.
type Packet struct {
	Frame   link.Frame
	Slot    Slot // that it is for
	Network bool // it came from the network, at the wrong process
}

// Member is a process on an address.
type Member struct {
	PID     int           `json:"pid"`
	UID     int           `json:"uid"`
	Slots   []Slot        `json:"slots"`
	Age     time.Duration `json:"age"`
	Keeper  bool          `json:"keeper"`
	Version string        `json:"version"`
	Report  *Report       `json:"report,omitempty"` // nil: the process did not answer, or is another user's
}

// Address is an address that is shared, and who is on it.
type Address struct {
	Key     string   `json:"address"`
	Members []Member `json:"processes"`
	Error   string   `json:"error,omitempty"` // why the keeper did not say
}

// Stats counts packets between the processes of the host.
type Stats struct {
	Sent, Received uint64 // packets
	Strays         uint64 // of those received: came from the network, at the wrong process
	Dropped        uint64 // the other process had no room, or was gone
}
