package script

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Mode says how often a packet is sent, and with which other packets around it.
type Mode int

// The modes.
const (
	Alone Mode = iota // each packet alone
	InRun             // each packet eight times, in one super-packet
	Mixed             // each packet in the middle of a stream of valid packets
	Each              // each packet eight times, one after the other: the results of InRun are compared with this
)

// Way says how the session sends the packets of a script with a controlled peer. The zero Way sends each packet alone, from the address
// to which the target's queue pair is connected.
type Way struct {
	Origin Origin
	Mode   Mode
}

// Ways lists all ways except those with mode Each.
func Ways() (all []Way) {
	for o := FromPeer; o <= FromRouter; o++ {
		for m := Alone; m <= Mixed; m++ {
			all = append(all, Way{Origin: o, Mode: m})
		}
	}
	return all
}

// String names the way.
func (w Way) String() string {
	return [...]string{"alone", "as a run of 8", "in a stream", "8 times"}[w.Mode] + ", from " +
		[...]string{"the peer", "a stranger on the segment", "a stranger behind a router"}[w.Origin]
}

// runLength is how often a packet is sent in a run.
const runLength = 8

// stream is a stream of valid packets to a queue pair of its own.
type stream struct {
	q   TargetQP
	va  uint64
	key bth.RKey
	psn bth.PSN
	n   int // packets sent
}

const (
	streamMost  = 16      // packets of the stream whose data the memory holds
	streamSpace = pathMTU // bytes of memory for each of them
)

func (s *Session) newStream(c TargetConfig) (*stream, error) {
	x := &stream{psn: 0x200}
	c.Type, c.RQPSN, c.Access, c.Rights, c.PeerQPN, c.Recv = qp.RC, x.psn, mr.LocalWrite|mr.RemoteWrite, mr.RemoteWrite, s.wire.qpn(), 0
	var err error
	if x.q, err = s.opts.Target.Connect(c); err == nil {
		x.va, x.key, err = x.q.Memory()
	}
	return x, err
}

// flow queues packets of the stream. They are as long as a packet of n bytes from BTH to ICRC, if a WRITE can have that length.
func (s *Session) flow(packets, n int) error {
	x := s.ctl.stream
	for range packets {
		size := min(max(n-bth.BTHLen-bth.RETHLen-bth.ICRCLen, 4), streamSpace) &^ 3
		d := &draft{packet: packet{op: bth.RCWriteOnly}, va: x.va + uint64(x.n%streamMost)*streamSpace, rkey: x.key}
		d.f.BTH = bth.BTHFields{PKey: bth.DefaultPKey, DestQPN: x.q.QPN(), PSN: x.psn}
		d.pattern(size)
		d.payload[0] = byte(x.n)
		p, err := d.build()
		if err == nil {
			err = s.wire.queue(p)
		}
		if err != nil {
			return err
		}
		x.psn = x.psn.Add(1)
		x.n++
	}
	return nil
}

// checkStream checks that the target has received the stream, and that its queue pair is still in RTS.
func (s *Session) checkStream() error {
	x := s.ctl.stream
	if x == nil || x.n == 0 {
		return nil
	}
	b, err := x.q.ReadMemory()
	if err != nil {
		return err
	}
	for i := max(x.n-streamMost, 0); i < x.n; i++ {
		if at := i % streamMost * streamSpace; b[at] != byte(i) || b[at+1] != 0xA1 {
			return fmt.Errorf("packet %d of %d of the good stream did not arrive", i, x.n)
		}
	}
	if state, err := x.q.State(); err != nil || state != qp.RTS {
		return fmt.Errorf("the queue pair of the good stream is in state %v, %v", state, err)
	}
	return nil
}

// countLimit is how long the target may take to count the packets of a stranger.
const countLimit = 2 * time.Second

// checkCount checks that the target has counted all packets of a stranger as dropped.
func (s *Session) checkCount() error {
	t, ok := s.opts.Target.(Counting)
	if !ok || s.opts.Way.Origin == FromPeer || s.conn.tr == bth.UD {
		return nil
	}
	now := uint64(0)
	err := s.until(countLimit, func() bool {
		var counts bool
		now, counts = t.Dropped()
		return !counts || now-s.ctl.uncounted >= s.ctl.sent
	})
	if now, counts := t.Dropped(); err == nil && counts && now-s.ctl.uncounted < s.ctl.sent {
		return fmt.Errorf("a stranger sent %d packets, and %d were counted as dropped", s.ctl.sent, now-s.ctl.uncounted)
	}
	return err
}

// Once removes the repetitions of equal parts from an outcome.
func Once(outcome string) string {
	var out []string
	for part := range strings.SplitSeq(outcome, "; ") {
		if !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	return strings.Join(out, "; ")
}
