// Package top shows the activity of connections, sample by sample. It asks the processes of this host that have
// devices, or it computes the connections from the packets of an interface or a capture.
package top

import (
	"context"
	"time"
)

// Source provides samples.
type Source interface {
	// Sample returns the current state. After the last sample of a capture it returns io.EOF.
	Sample(ctx context.Context) (Sample, error)

	// Title describes the source.
	Title() string
}

// Sample is the state of all connections at a time.
type Sample struct {
	Time        time.Time
	Connections []Connection
	Notes       []string // each says what is missing in the sample, and why
}

// End is one end of a connection.
type End struct {
	Addr string `json:"address,omitempty"`
	QPN  uint32 `json:"qpn,omitempty"` // 0: not known
}

// Connection is a queue pair of a process, or a pair of queue pairs whose packets were captured.
type Connection struct {
	Key     string `json:"-"` // the same in each sample
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	Device  string `json:"device,omitempty"`    // of a process: the driver, and the interface or address
	Alone   bool   `json:"exclusive,omitempty"` // no other process can use the interface or address
	Type    string `json:"type"`
	State   string `json:"state"` // of a process: the state of the queue pair; of captured packets: see stateOf
	Local   End    `json:"local"`
	Peer    End    `json:"peer"`

	Counts   `json:"total"`
	Clock    time.Duration `json:"-"` // the time of the counts, by a clock of the source; 0: the time of the sample
	InFlight int           `json:"in_flight"`
	RTT      float64       `json:"rtt_us,omitempty"` // microseconds; 0: not known
	Limit    uint64        `json:"limit_bps,omitempty"`
}

// Counts grow from sample to sample. Bytes are of payload.
type Counts struct {
	Sent          uint64 `json:"sent"`     // of a process: PSNs of its requests; of captured packets: all packets from the local end
	Received      uint64 `json:"received"` // the same for the peer
	SentBytes     uint64 `json:"sent_bytes,omitempty"`
	ReceivedBytes uint64 `json:"received_bytes,omitempty"`
	Retransmitted uint64 `json:"retransmitted"`
	Timeouts      uint64 `json:"timeouts,omitempty"` // of the ACK timer; 0 for captured packets, which do not show them
	NAKs          uint64 `json:"naks"`               // sent and received, without RNR NAKs
	RNRs          uint64 `json:"rnr_naks"`
	CNPs          uint64 `json:"cnps"`
}

// Rates are counts per second.
type Rates struct {
	Sent          float64 `json:"sent"`
	Received      float64 `json:"received"`
	SentBytes     float64 `json:"sent_bytes,omitempty"`
	ReceivedBytes float64 `json:"received_bytes,omitempty"`
	Retransmitted float64 `json:"retransmitted"`
	Timeouts      float64 `json:"timeouts,omitempty"`
	NAKs          float64 `json:"naks"`
	RNRs          float64 `json:"rnr_naks"`
	CNPs          float64 `json:"cnps"`
}

// since returns the rates between two counts. If a count is lower than before, it belongs to another connection or
// was reset, and its rate is 0.
func (c *Counts) since(before *Counts, took time.Duration) (r Rates) {
	if took <= 0 {
		return r
	}
	per := func(now, then uint64) float64 {
		if now < then {
			return 0
		}
		return float64(now-then) / took.Seconds()
	}
	return Rates{
		per(c.Sent, before.Sent), per(c.Received, before.Received), per(c.SentBytes, before.SentBytes), per(c.ReceivedBytes, before.ReceivedBytes),
		per(c.Retransmitted, before.Retransmitted), per(c.Timeouts, before.Timeouts), per(c.NAKs, before.NAKs), per(c.RNRs, before.RNRs), per(c.CNPs, before.CNPs),
	}
}
