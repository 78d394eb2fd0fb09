package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/goroce/roce/internal/tools/capcheck"
	"github.com/goroce/roce/internal/tools/dissect"
)

// Passive is a source that computes its samples from captured packets. It counts in the same way as "rocectl pcap check".
type Passive struct {
	title string
	clock func() time.Time
	lost  func() uint64 // packets that the capture has lost

	mu     sync.Mutex
	report *capcheck.Report
	err    error // set by End
	before map[string]Counts
}

// NewPassive returns a source without packets; Add adds them. lost returns how many packets the capture has lost. It may be nil.
func NewPassive(title string, lost func() uint64) *Passive {
	p := &Passive{title: title, clock: time.Now, lost: lost, report: capcheck.New(title)}
	p.report.Brief, p.report.FlushQuirk = true, true
	return p
}

// Title implements [Source].
func (p *Passive) Title() string { return p.title }

// Add adds a packet.
func (p *Passive) Add(pkt *dissect.Packet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Add(pkt)
}

// End says that there are no more packets, because of err.
func (p *Passive) End(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// Sample implements [Source].
func (p *Passive) Sample(context.Context) (Sample, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return Sample{}, p.err
	}
	return p.sample(p.clock()), nil
}

// sample makes a sample of the flows. The caller holds the lock, if packets are added concurrently.
func (p *Passive) sample(at time.Time) Sample {
	s := Sample{Time: at}
	now := map[string]Counts{}
	for f := range p.report.Each() {
		peer := f.Peer()
		if peer != nil && peer.Before(f) {
			continue // the row of its peer includes it
		}
		c := connection(f, peer)
		before, seen := p.before[c.Key]
		c.State = stateOf(&c, &before, seen)
		now[c.Key] = c.Counts
		s.Connections = append(s.Connections, c)
	}
	p.before = now
	if n := p.report.ICRCBad; n > 0 {
		s.note("%d packets have a wrong ICRC; they are not counted", n)
	}
	if n := p.report.Unfollowed; n > 0 {
		s.note("%d packets are of queue pairs beyond those that are followed", n)
	}
	if p.lost != nil && p.lost() > 0 {
		s.note("%d packets were too many for the capture", p.lost())
	}
	return s
}

// connection makes a connection from a flow and the flow in the other direction, which may be nil. The local end
// is the sender of f.
func connection(f, peer *capcheck.Flow) Connection {
	c := Connection{
		Key: fmt.Sprintf("%s %s %x %d", f.Src, f.Dst, f.DestQPN, f.IfIndex), Type: f.Transport,
		Local: End{Addr: f.Src}, Peer: End{Addr: f.Dst, QPN: f.DestQPN},
		Counts: Counts{
			Sent: uint64(f.Packets), SentBytes: f.Bytes, Retransmitted: uint64(f.Retransmitted + f.Late),
			NAKs: naks(f), RNRs: uint64(f.RNRs), CNPs: uint64(f.CNPs),
		},
		InFlight: f.InFlight(), RTT: float64(f.RTT()) / float64(time.Microsecond),
	}
	if peer != nil {
		c.Local.QPN = peer.DestQPN
		c.Received, c.ReceivedBytes = uint64(peer.Packets), peer.Bytes
		c.Retransmitted += uint64(peer.Retransmitted + peer.Late)
		c.NAKs += naks(peer)
		c.RNRs += uint64(peer.RNRs)
		c.CNPs += uint64(peer.CNPs)
		c.InFlight += peer.InFlight()
		if c.RTT == 0 {
			c.RTT = float64(peer.RTT()) / float64(time.Microsecond)
		}
	}
	return c
}

func naks(f *capcheck.Flow) (n uint64) {
	for _, of := range f.NAKs {
		n += uint64(of)
	}
	return n
}

// stateOf describes the packets since the previous sample: "new", "idle", "active", "repeating" (requests
// are retransmitted), "not ready" (RNR NAKs), "refused" (NAKs without a retransmission), or "waiting" (requests are in
// flight, but there are no packets).
func stateOf(c *Connection, before *Counts, seen bool) string {
	switch {
	case !seen:
		return "new"
	case c.RNRs > before.RNRs:
		return "not ready"
	case c.Retransmitted > before.Retransmitted:
		return "repeating"
	case c.NAKs > before.NAKs:
		return "refused"
	case c.Sent+c.Received > before.Sent+before.Received:
		return "active"
	case c.InFlight > 0:
		return "waiting"
	}
	return "idle"
}

// Capture is the source of samples from a capture. The samples are an interval apart according to the times of the
// packets. The source does not wait between them.
type Capture struct {
	*Passive
	samples chan Sample
	failed  error // set before samples is closed
}

// NewCapture returns the source of the packets of in. stop ends it early.
func NewCapture(stop context.Context, title string, in io.Reader, interval time.Duration) *Capture {
	c := &Capture{Passive: NewPassive(title, nil), samples: make(chan Sample)}
	go func() {
		defer close(c.samples)
		if c.failed = c.read(stop, in, interval); c.failed != nil && stop.Err() == nil {
			c.failed = fmt.Errorf("%s: %w", title, c.failed)
		}
	}()
	return c
}

// Sample implements [Source].
func (c *Capture) Sample(ctx context.Context) (Sample, error) {
	select {
	case s, ok := <-c.samples:
		if !ok {
			return s, cmp.Or(c.failed, io.EOF)
		}
		return s, nil
	case <-ctx.Done():
		return Sample{}, context.Cause(ctx)
	}
}

// read makes the samples.
func (c *Capture) read(stop context.Context, in io.Reader, interval time.Duration) error {
	var next, last time.Time
	give := func(at time.Time) error {
		select {
		case c.samples <- c.sample(at):
			return nil
		case <-stop.Done():
			return context.Cause(stop)
		}
	}
	err := dissect.Read(in, func(p *dissect.Packet) error {
		if next.IsZero() {
			next = p.Time.Add(interval)
		}
		for !p.Time.Before(next) {
			if err := give(next); err != nil {
				return err
			}
			if next = next.Add(interval); p.Time.Sub(next) > 1000*interval {
				next = p.Time // there is a long time without packets: skip it
			}
		}
		last = next
		c.report.Add(p)
		return nil
	})
	if !last.IsZero() {
		if err := give(last); err != nil {
			return err
		}
	}
	return err
}
