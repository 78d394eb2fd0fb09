// Package trial is what a measurement is to its two ends: what is to be measured
// (a [Spec]), what an end does (a [Role]), what comes of it (a [Measure]), and the
// pipe by which the runner leads both ends through it.
package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce/bth/frame"
)

// Spec says what is measured, and where.
type Spec struct {
	Kind string `json:"kind"`           // names the roles of both ends
	Link string `json:"link,omitempty"` // driver or socket: udp, xdp, raw, tcp
	Op   string `json:"op,omitempty"`   // SEND, WRITE, READ

	Size  int     `json:"size,omitempty"`  // bytes of a message, or of a packet's payload
	PMTU  int     `json:"pmtu,omitempty"`  // path MTU
	QPs   int     `json:"qps,omitempty"`   // queue pairs; 0: 1
	Burst int     `json:"burst,omitempty"` // messages a queue pair is given at a time
	Wait  bool    `json:"wait,omitempty"`  // sleep until there is something to do, instead of polling
	Sleep bool    `json:"sleep,omitempty"` // at once, instead of looking for packets a while first
	SRQ   bool    `json:"srq,omitempty"`   // receive by a shared receive queue
	Loss  float64 `json:"loss,omitempty"`  // share of the packets that is dropped
	Port  bool    `json:"port,omitempty"`  // by the driver alone, without the stack

	Warmup   time.Duration `json:"warmup,omitempty"`
	Duration time.Duration `json:"duration,omitempty"`

	// Where an end is; the runner fills it in.
	Active    bool    `json:"-"` // drives the measurement; the other end serves
	Interface string  `json:"-"`
	MTU       int     `json:"-"`
	Local     Address `json:"-"`
	Remote    Address `json:"-"`
}

// Address is where an end is reached.
type Address struct {
	IP  netip.Addr
	MAC frame.MAC
}

// Measure is what one end has counted in one round.
type Measure struct {
	Seconds  float64 `json:"seconds,omitempty"`
	Messages uint64  `json:"messages,omitempty"`
	Bytes    uint64  `json:"bytes,omitempty"`   // of payload
	Packets  uint64  `json:"packets,omitempty"` // this end has sent and received meanwhile

	Mallocs uint64 `json:"mallocs,omitempty"` // allocations of this end meanwhile
	Retrans uint64 `json:"retrans,omitempty"` // packets sent again
	Drops   uint64 `json:"drops,omitempty"`   // packets lost in a queue of this end

	Latency *Latency           `json:"latency,omitempty"`
	Value   float64            `json:"value,omitempty"` // of kinds that measure something else
	Extra   map[string]float64 `json:"extra,omitempty"`
	Mode    string             `json:"mode,omitempty"` // how the driver ran, for people
}

// Latency is the distribution of round trips in microseconds.
type Latency struct {
	Count     int       `json:"count"`
	P50       float64   `json:"p50"`
	P99       float64   `json:"p99"`
	P999      float64   `json:"p999"`
	Quantiles []float64 `json:"quantiles"` // at [Quantiles]
}

// Quantiles are where the distribution of latencies is kept.
var Quantiles = []float64{0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999}

// Goodput is the payload in bits a second.
func (m Measure) Goodput() float64 { return m.per(8 * float64(m.Bytes)) }

// Rate is the messages a second.
func (m Measure) Rate() float64 { return m.per(float64(m.Messages)) }

func (m Measure) per(v float64) float64 {
	if m.Seconds <= 0 {
		return 0
	}
	return v / m.Seconds
}

// Role is the part of one end. Its methods are called in this order, each after
// the other end has returned from the one before; Close in any case, if there is a Role.
type Role interface {
	// Prepare makes what is needed and returns what the peer has to know, which
	// goes to its Connect as JSON.
	Prepare() (offer any, err error)
	Connect(offer json.RawMessage) error
	// Run does the work: at one end until it has measured, at the other, and at
	// the first if something goes wrong, until ctx is done, which is no error.
	Run(ctx context.Context) (Measure, error)
	Close() error
}

// Roles makes the Role of a Spec, by its kind.
type Roles map[string]func(Spec) (Role, error)

func (r Roles) make(s Spec) (Role, error) {
	f := r[s.Kind]
	if f == nil {
		return nil, fmt.Errorf("there is no role for %q", s.Kind)
	}
	return f(s)
}
