// Package demo demonstrates the stack without any privilege. Two software NICs on a wire in this process, or on UDP sockets,
// connect and do every operation, first without and then with packet loss. The demonstration checks all data that arrives.
package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/ladder"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
)

// Config are the options.
type Config struct {
	Rounds  int     // of each operation, on each kind of wire
	Loss    float64 // in the second phase, the share of packets that the wire loses in each direction
	Seed    uint64  // of the losses
	Capture string  // file for all packets; empty: none
	Link    string  // one of Links; empty: LinkMem
}

// DefaultConfig are options for a run of a second or two.
var DefaultConfig = Config{Rounds: 100, Loss: 0.05, Seed: 1, Capture: "roce-demo.pcapng"}

// Result has the measurements and captures of Run.
type Result struct {
	Link    string        `json:"link"`
	Nodes   [2]Node       `json:"nodes"`   // client, server
	Connect time.Duration `json:"connect"` // nanoseconds, for the handshake
	Phases  []Phase       `json:"phases"`
	Packets uint64        `json:"packets"` // through the client's port, both ways
	Capture string        `json:"capture,omitempty"`

	// If there is a capture: the packets of one READ without loss, and of one whose response has lost a
	// packet.
	Read, LossyRead []ladder.Step `json:"-"`
}

// Node is one of the two NICs.
type Node struct {
	Addr string  `json:"addr"`
	GUID string  `json:"node_guid"`
	QPN  bth.QPN `json:"qpn"`
	MTU  int     `json:"path_mtu"`
}

// Phase has the results of all operations at one loss rate.
type Phase struct {
	Loss float64 `json:"loss"`
	Lost uint64  `json:"lost"` // packets
	Rows []Row   `json:"operations"`
}

// Row is the result of one operation.
type Row struct {
	Name          string        `json:"operation"`
	Bytes         int           `json:"bytes"`
	Rounds        int           `json:"rounds"`
	Median        time.Duration `json:"median"` // nanoseconds, like P99
	P99           time.Duration `json:"p99"`
	Retransmitted uint64        `json:"retransmitted"` // packets
}

// Run runs the demonstration. It returns an error if any data is wrong.
func Run(ctx context.Context, c Config) (r *Result, err error) {
	if wires[cmp.Or(c.Link, LinkMem)] == nil {
		return nil, fmt.Errorf("demo: link %q: want one of %v", c.Link, Links())
	}
	if c.Rounds < 1 || !(c.Loss >= 0 && c.Loss < 1) {
		return nil, fmt.Errorf("demo: %d rounds with a loss of %v: want at least one round, and a loss below 1", c.Rounds, c.Loss)
	}
	var capture *pcap.Writer
	if c.Capture != "" {
		if capture, err = pcap.Create(c.Capture, 0); err != nil {
			return nil, err
		}
		defer func() { err = cmp.Or(err, capture.Close()) }()
	}
	p, err := newPair(&c, capture)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	r = &Result{Link: cmp.Or(c.Link, LinkMem), Nodes: p.nodes(), Connect: p.handshake, Capture: c.Capture}
	for _, loss := range []float64{0, c.Loss} {
		phase, err := p.phase(ctx, c.Rounds, loss)
		if err != nil {
			return nil, err
		}
		r.Phases = append(r.Phases, phase)
	}
	if capture != nil {
		if r.Read, r.LossyRead, err = p.ladders(ctx, capture, c.Capture); err != nil {
			return nil, err
		}
	}
	if err := p.disconnect(ctx); err != nil {
		return nil, err
	}
	stats := p.client.Dev.Counters().Link
	r.Packets = stats.RxPackets + stats.TxPackets
	return r, nil
}

// phase does all operations on a wire that loses the share loss of the packets.
func (p *pair) phase(ctx context.Context, rounds int, loss float64) (Phase, error) {
	ph := Phase{Loss: loss}
	rates := fault.Rates{Loss: loss}
	if err := p.wire.SetRates(rates, rates); err != nil {
		return ph, err
	}
	before := p.lost()
	for i := range operations {
		row, err := p.measure(ctx, &operations[i], rounds)
		if err != nil {
			return ph, fmt.Errorf("demo: %s at %v loss: %w", operations[i].name, loss, err)
		}
		ph.Rows = append(ph.Rows, row)
	}
	ph.Lost = p.lost() - before
	return ph, p.wire.SetRates(fault.Rates{}, fault.Rates{})
}

// measure does one operation in a number of rounds.
func (p *pair) measure(ctx context.Context, op *operation, rounds int) (Row, error) {
	before := p.client.Dev.Counters().RetransPkts
	times := make(samples, rounds)
	for n := range times {
		var err error
		if times[n], err = p.do(ctx, op, n); err != nil {
			return Row{}, fmt.Errorf("round %d: %w", n, err)
		}
	}
	return Row{Name: op.name, Bytes: op.bytes, Rounds: rounds, Median: times.percentile(50), P99: times.percentile(99),
		Retransmitted: p.client.Dev.Counters().RetransPkts - before}, nil
}

type samples []time.Duration

// percentile returns the smallest sample that at least p percent of the samples do not exceed, 0
// if there are none.
func (s samples) percentile(p int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[(len(sorted)*p+99)/100-1]
}
