package nic

import (
	"slices"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Bounds of the packets in the loopback, and of the rounds of packets and answers that one
// entry delivers.
const (
	loopLimit  = 256
	loopRounds = 4

	// maxFrame is larger than a packet with a payload of 4096 bytes. Only packets
	// from the network may be larger.
	maxFrame = 4352
)

// loopback holds the packets of a shard to the device itself. They bypass the port, because
// no driver would deliver them.
type loopback struct {
	queue, other []forwarded // waiting packets; the second buffer
	spare        [][]byte
	lending      []byte
	body         []byte // of lending, from the BTH on
	size         int    // of a buffer
}

func (l *loopback) waiting() bool { return len(l.queue) > 0 }

// runLoopback delivers the packets of the device to itself, then the answers to them, and so
// on for some rounds. The next entry continues with the rest. It passes packets for other
// processes on.
func (s *Shard) runLoopback(now mono.Time) {
	l := &s.loop
	for round := 0; len(l.queue) > 0 && round < loopRounds; round++ {
		batch := l.queue
		l.queue, l.other = l.other[:0], batch
		for i := range batch {
			f := &batch[i]
			s.receive(now, f.frame(), f.layout, fromSelf)
			l.spare = append(l.spare, f.Data)
		}
		s.send(now)
	}
	if s.out != nil {
		s.out.Flush()
	}
}

// loopSink is the sink of packets to the device itself.
type loopSink struct{ *Shard }

func (s loopSink) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	if s.loop.full() {
		s.refused = true
		return nil, 0, false
	}
	b := s.loop.lend(p.HeaderLen(frame.LayoutEthernet) + n)
	body, crc := p.Put(b, frame.LayoutEthernet, n, 0)
	s.loop.body = body
	return body, crc, true
}

func (s loopSink) Commit() {
	if _, other := s.passOut(); !other {
		s.loop.commit(frame.LayoutEthernet)
	}
}

func (l *loopback) full() bool { return len(l.queue) >= loopLimit }

// lend returns room for one packet; commit queues it.
func (l *loopback) lend(size int) []byte {
	if k := len(l.spare); l.lending == nil && k > 0 {
		l.lending, l.spare = l.spare[k-1], l.spare[:k-1]
	}
	if cap(l.lending) < size {
		l.lending = make([]byte, max(size, l.size))
	}
	l.lending = l.lending[:size]
	return l.lending
}

func (l *loopback) commit(layout frame.Layout) {
	l.queue = append(l.queue, forwarded{Frame: link.Frame{Data: l.lending}, layout: layout})
	l.lending = nil
}

// datagramSink chooses between port and loopback for every packet, because each
// datagram has its own destination. Datagrams to a multicast group go to both.
//
// No requester repeats a datagram. So when a queue pair has sent one to another process on the
// device, and this process reads more slowly than datagrams arrive, the queue pair sends no
// datagram to the device until the process has caught up.
type datagramSink struct {
	*Shard
	noEcho bool // datagrams to a group are not delivered to the device itself
	paced  bool // waits for other processes
	loops  bool
	echoes bool
	path   *frame.Path // of the packet whose room was lent

	crowds []share.Slot // destinations that may not have caught up yet
}

// waits reports whether the queue pair has to wait for other processes.
func (d *datagramSink) waits() bool {
	if len(d.crowds) > 0 {
		d.crowds = slices.DeleteFunc(d.crowds, func(to share.Slot) bool { return !d.out.Crowded(to) })
	}
	return len(d.crowds) > 0
}

// commitLoop is loopSink.Commit. It also records a destination process that has to catch up.
func (d *datagramSink) commitLoop() {
	to, other := d.passOut()
	switch {
	case !other:
		d.loop.commit(frame.LayoutEthernet)
	case d.paced && d.out.Crowded(to):
		d.crowds = append(d.crowds, to)
	}
}

// crowdPause is the time after which a waiting queue pair checks again whether the other process has
// caught up.
const crowdPause = 200 * time.Microsecond

func (d *datagramSink) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	c := p.Config()
	d.loops, d.echoes, d.path = d.nic.routes.IsLocal(&c.Dst), false, p
	if d.loops {
		if d.waits() {
			d.crowded = true
			return nil, 0, false
		}
		return loopSink{d.Shard}.Begin(p, n)
	}
	if !d.noEcho && d.nic.groups.byGID[c.Dst] != nil {
		if d.loop.full() {
			d.refused = true
			return nil, 0, false
		}
		d.echoes = true
	}
	return d.Shard.Begin(p, n)
}

func (d *datagramSink) Commit() {
	if d.loops {
		d.commitLoop()
		return
	}
	if d.out != nil && !d.noEcho {
		d.passGroup()
	}
	if d.echoes {
		sent := d.port.Lent()
		copy(d.loop.lend(len(sent)), sent)
		d.loop.commit(d.nic.info.Layout)
		if d.nic.info.Layout == frame.LayoutUDP { // the kernel writes the headers
			f := &d.loop.queue[len(d.loop.queue)-1]
			f.envelope = d.path.Envelope()
			f.Env = &f.envelope
		}
	}
	d.Shard.Commit()
}
