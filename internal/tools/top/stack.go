package top

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/tools/nics"
)

// Stack is a source that asks the processes with devices in this network namespace.
type Stack struct {
	list   func(detail bool) ([]share.Address, error)
	before map[string]progress
}

// progress is the state of a queue pair in the last sample. The numbers in raw wrap around; those in counts do not.
type progress struct {
	raw    share.QueuePair
	counts Counts
}

// NewStack returns the source.
func NewStack() *Stack { return &Stack{list: share.List} }

// Title implements [Source].
func (s *Stack) Title() string { return "processes of this host" }

// Sample implements [Source].
func (s *Stack) Sample(context.Context) (Sample, error) {
	all, err := s.list(true)
	if err != nil {
		return Sample{}, err
	}
	out := Sample{Time: time.Now()}
	now := map[string]progress{}
	for _, a := range all {
		if a.Error != "" {
			out.note("%s: %s", nics.KeyName(a.Key), a.Error)
		}
		for _, m := range a.Members {
			s.member(&out, now, &a, &m)
		}
	}
	s.before = now
	return out, nil
}

// member adds the queue pairs of a process.
func (s *Stack) member(out *Sample, now map[string]progress, at *share.Address, m *share.Member) {
	r, name := m.Report, nics.KeyName(at.Key)
	program := nics.Program(m.PID)
	switch {
	case r == nil && m.Version != "":
		out.note("process %d on %s does not say what it does: it is another user's, or did not answer", m.PID, name)
	case r == nil:
	case r.QueuePairs == 0:
		out.note("process %d (%s) on %s has no queue pair", m.PID, program, name)
	case len(r.Queues) == 0 && r.QueuePairs > 0:
		out.note("process %d on %s, of version %s, does not tell its queue pairs: it or the keeper is of an older version", m.PID, name, m.Version)
	case r.QueuesOmitted > 0:
		out.note("process %d on %s has %d queue pairs more than are shown", m.PID, name, r.QueuesOmitted)
	}
	if r == nil {
		return
	}
	for _, q := range r.Queues {
		c := Connection{
			Key: fmt.Sprintf("%s %t %d %x", at.Key, at.Exclusive, m.PID, q.QPN), PID: m.PID, Program: program, Device: name, Alone: at.Exclusive,
			Type: q.Type, State: q.State, Local: End{QPN: q.QPN}, Peer: End{QPN: q.DestQPN},
			Clock: r.Clock, InFlight: q.InFlight, RTT: float64(q.RTT) / float64(time.Microsecond), Limit: q.Rate,
		}
		if q.Own.IsValid() {
			c.Local.Addr = q.Own.String()
		}
		if q.Peer.IsValid() {
			c.Peer.Addr = q.Peer.String()
		}
		was, ok := s.before[c.Key]
		if ok {
			c.Counts = was.counts
		} else {
			// The counts of a new connection begin at zero.
			was.raw.Sent, was.raw.Expected, was.raw.Messages, was.raw.SentBytes, was.raw.ReceivedBytes = q.Sent, q.Expected, q.Messages, q.SentBytes, q.ReceivedBytes
		}
		c.Counts.advance(&was.raw, &q)
		now[c.Key] = progress{q, c.Counts}
		out.Connections = append(out.Connections, c)
	}
}

// advance adds the difference between two states of a queue pair to the counts.
func (c *Counts) advance(before, now *share.QueuePair) {
	// After RESET the PSNs may be lower than before. Then the difference counts as zero.
	psns := func(now, before uint32) uint64 { return uint64(max(bth.PSN(now).Sub(bth.PSN(before)), 0)) }
	c.Sent += psns(now.Sent, before.Sent)
	c.Received += psns(now.Expected, before.Expected)
	if now.Type == bth.UD.String() { // the PSNs of received datagrams are from several senders, so count messages
		c.Received += psns(now.Messages, before.Messages)
	}
	// If a message is aborted, the queue pair subtracts its bytes again, so a difference may be negative.
	c.SentBytes += uint64(max(int64(now.SentBytes-before.SentBytes), 0))
	c.ReceivedBytes += uint64(max(int64(now.ReceivedBytes-before.ReceivedBytes), 0))
	a, b := &before.Incidents, &now.Incidents
	c.Retransmitted += uint64(b.Retransmitted - a.Retransmitted)
	c.Timeouts += uint64(b.Timeouts - a.Timeouts)
	c.NAKs += uint64(b.NAKsSent - a.NAKsSent + b.NAKsReceived - a.NAKsReceived)
	c.RNRs += uint64(b.RNRsSent - a.RNRsSent + b.RNRsReceived - a.RNRsReceived)
	c.CNPs += uint64(b.CNPsSent - a.CNPsSent + b.CNPsReceived - a.CNPsReceived)
}

// note adds a line about what is missing.
func (s *Sample) note(format string, args ...any) {
	s.Notes = append(s.Notes, nics.Printable(fmt.Sprintf(format, args...)))
}
