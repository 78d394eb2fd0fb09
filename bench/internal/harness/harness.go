// Package harness has the common parts of all measurements: the parameters (a [Spec]), the work
// of an end (a [Role]), its counts (a [Measure]), and the steps by which the parent process
// controls both ends during a measurement ([Run], [Serve]).
package harness

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/goroce/roce/bth/frame"
)

// Spec has the parameters of a measurement.
type Spec struct {
	Kind string `json:"kind"`           // names the roles of both ends
	Link string `json:"link,omitempty"` // driver or socket: udp, xdp, raw, tcp
	Op   string `json:"op,omitempty"`   // SEND, WRITE, READ

	Size       int           `json:"size,omitempty"`       // bytes of a message, or of a packet's payload
	PMTU       int           `json:"pmtu,omitempty"`       // path MTU
	QPs        int           `json:"qps,omitempty"`        // queue pairs; 0: 1
	Burst      int           `json:"burst,omitempty"`      // messages that are posted to a queue pair at a time
	Wait       bool          `json:"wait,omitempty"`       // sleep until there are completions instead of polling
	Sleep      bool          `json:"sleep,omitempty"`      // the background goroutine does not poll before it sleeps
	Spin       time.Duration `json:"spin,omitempty"`       // of the device; 0: the default
	Background bool          `json:"background,omitempty"` // the program polls, and the device has a background goroutine, too
	Idle       int           `json:"idle,omitempty"`       // additional connected queue pairs without traffic
	SRQ        bool          `json:"srq,omitempty"`        // receive from a shared receive queue
	Loss       float64       `json:"loss,omitempty"`       // share of the packets that is dropped
	Recovery   bool          `json:"recovery,omitempty"`   // of a lossy stream: selective recovery; otherwise both ends use go-back-N
	Port       bool          `json:"port,omitempty"`       // the driver alone, without the stack

	Processes int  `json:"processes,omitempty"` // pairs of processes that run the same stream at the same time; 0: 1
	Shared    bool `json:"shared,omitempty"`    // the processes of an end share its interface
	Apart     bool `json:"apart,omitempty"`     // each pair has its own core; otherwise each end has a core
	Shards    int  `json:"shards,omitempty"`    // shards of a process on both cores, each with its own stream; 0: one, on one core

	Loops int  `json:"loops,omitempty"` // additional programs that compute without a pause
	Free  bool `json:"free,omitempty"`  // both ends and the loops may use both cores; otherwise one each

	Quota float64 `json:"quota,omitempty"` // of a core that each end may use, as a container; 0: all
	Procs int     `json:"procs,omitempty"` // GOMAXPROCS of each end; 0: as many as it has cores

	By    string `json:"by,omitempty"`    // the program that is measured: perftest, rocectl, Open MPI; empty: this one
	Count int    `json:"count,omitempty"` // messages, where a program counts them

	Warmup   time.Duration `json:"warmup,omitempty"`
	Duration time.Duration `json:"duration,omitempty"`

	// The parent process fills in what differs between the ends.
	Active    bool    `json:"-"` // this end drives the measurement; the other end serves
	Interface string  `json:"-"`
	MTU       int     `json:"-"`
	Local     Address `json:"-"`
	Remote    Address `json:"-"`
}

// Address is the address of an end.
type Address struct {
	IP  netip.Addr
	MAC frame.MAC
}

// Measure is what one end has counted in one round.
type Measure struct {
	Seconds  float64 `json:"seconds,omitempty"`
	Messages uint64  `json:"messages,omitempty"`
	Bytes    uint64  `json:"bytes,omitempty"`   // of payload
	Packets  uint64  `json:"packets,omitempty"` // sent and received by this end

	// Processor is the processor time in seconds that this end has used, and Handled how many messages it has handled
	// in that time, warm-up included.
	Processor float64 `json:"processor,omitempty"`
	Handled   uint64  `json:"handled,omitempty"`

	Mallocs uint64 `json:"mallocs,omitempty"` // allocations of this end
	Retrans uint64 `json:"retrans,omitempty"` // packets sent again
	Drops   uint64 `json:"drops,omitempty"`   // packets lost in a queue of this end

	Latency *Latency           `json:"latency,omitempty"`
	Value   float64            `json:"value,omitempty"` // of kinds that measure something else
	Extra   map[string]float64 `json:"extra,omitempty"`
	Mode    string             `json:"mode,omitempty"` // the mode of the driver, for people
}

// Latency is the distribution of round-trip times in microseconds.
type Latency struct {
	Count     int       `json:"count"`
	P50       float64   `json:"p50"`
	P99       float64   `json:"p99"`
	P999      float64   `json:"p999"`
	Quantiles []float64 `json:"quantiles"` // at [Quantiles]
}

// Quantiles are the quantiles of the latencies that a Measure keeps.
var Quantiles = []float64{0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999}

// Goodput returns the payload in bits per second.
func (m Measure) Goodput() float64 { return m.per(8 * float64(m.Bytes)) }

// Rate returns the messages per second.
func (m Measure) Rate() float64 { return m.per(float64(m.Messages)) }

func (m Measure) per(v float64) float64 {
	if m.Seconds <= 0 {
		return 0
	}
	return v / m.Seconds
}

// Role is the part of one end. Its methods are called in this order, each after the same
// method of the other end has returned. Close is called in any case.
type Role interface {
	// Prepare makes the objects of the measurement. It returns the data that the peer needs: the
	// argument of the peer's Connect, as JSON.
	Prepare() (offer any, err error)
	Connect(offer json.RawMessage) error
	// Run does the work. At the end that measures it returns when the measurement is over, at
	// the other end when ctx is done, which is no error.
	Run(ctx context.Context) (Measure, error)
	Close() error
}

// Roles makes the Role of a Spec, by its kind.
type Roles map[string]func(Spec) (Role, error)

// Alone is embedded in roles that have no data for the peer.
type Alone struct{}

// Prepare has nothing to offer.
func (Alone) Prepare() (any, error) { return "", nil }

// Connect ignores the offer.
func (Alone) Connect(json.RawMessage) error { return nil }

// Close has nothing to close.
func (Alone) Close() error { return nil }
