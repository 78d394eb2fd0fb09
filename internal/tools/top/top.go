// Package top shows what connections do, sample by sample: those of the processes of this host that have
// devices, as they tell it, or those of the packets of an interface or a capture.
package top

import (
	"context"
	"time"
)

// Source gives samples.
type Source interface {
	// Sample returns what is known now. io.EOF ends the samples of a capture.
	Sample(ctx context.Context) (Sample, error)

	// Title says of what the samples are.
	Title() string
}

// Sample is the state of all connections at a time.
type Sample struct {
	Time        time.Time
	Connections []Connection
	Notes       []string // what is missing, and why
}

// End is one end of a connection.
type End struct {
	Addr string `json:"address,omitempty"`
	QPN  uint32 `json:"qpn,omitempty"` // 0: not known
}

// Connection is a queue pair of a process, or what packets between two hosts say of a pair of them.
type Connection struct {
	Key     string `json:"-"` // the same in each sample
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	Device  string `json:"device,omitempty"`    // of a process: the driver, and the interface or address
	Alone   bool   `json:"exclusive,omitempty"` // the process has that for itself
	Type    string `json:"type"`
	State   string `json:"state"` // of a process: of its queue pair; of packets: what they show, see stateOf
	Local   End    `json:"local"`
	Peer    End    `json:"peer"`

	Counts   `json:"total"`
	Clock    time.Duration `json:"-"` // when the counts were taken, by a clock of the source; 0: at the time of the sample
	InFlight int           `json:"in_flight"`
	RTT      float64       `json:"rtt_us,omitempty"` // microseconds; 0: not known
	Limit    uint64        `json:"limit_bps,omitempty"`
}

// Counts grow from sample to sample. Bytes are of payload.
type Counts struct {
	Sent          uint64 `json:"sent"`     // packets: of processes PSNs of own requests, of packets all from the local end
	Received      uint64 `json:"received"` // the same of the peer
	SentBytes     uint64 `json:"sent_bytes,omitempty"`
	ReceivedBytes uint64 `json:"received_bytes,omitempty"`
	Retransmitted uint64 `json:"retransmitted"`
	Timeouts      uint64 `json:"timeouts,omitempty"` // ACK timers; packets do not show them
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

// since returns the rates between two counts. A count that is lower than before belongs to another
// connection, or began anew: its rate is 0.
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
