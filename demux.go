package roce

import (
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// maxQP is how many queue pairs a device can have.
const maxQP = 1 << 20

// demux finds the queue pair of a packet: the low bits of the QPN are its
// place in a table. QPNs are handed out in turn from a random start, so that
// one is not used again before 2^24 others were passed: long enough for what
// the connection manager calls timewait. Those whose place is taken are passed
// over, and so are those of other shards: a QPN is its shard's number modulo
// the number of shards, which a network card can be told to steer by.
type demux struct {
	slots  []*QP
	used   int
	next   bth.QPN
	shards bth.QPN
}

const firstSlots = 64

func (d *demux) init(rnd func() uint64, shards int) {
	d.slots = make([]*QP, firstSlots)
	d.next = bth.QPN(rnd()) & bth.PSNMask
	d.shards = bth.QPN(shards)
}

// find returns the queue pair with a number, or nil.
func (d *demux) find(n bth.QPN) *QP {
	if q := d.slots[int(n)&(len(d.slots)-1)]; q != nil && q.num == n {
		return q
	}
	return nil
}

// add gives a queue pair a number.
func (d *demux) add(q *QP) error {
	if d.used >= maxQP {
		return fail("create qp", syscall.ENOMEM, "the device has %d queue pairs", d.used)
	}
	if 2*(d.used+1) > len(d.slots) {
		d.grow()
	}
	for tries := 0; ; tries++ {
		// One shard's numbers may all be taken while the table is half empty.
		if tries >= len(d.slots) {
			if len(d.slots) > bth.PSNMask {
				return fail("create qp", syscall.ENOMEM, "no queue pair number is left for shard %d", q.shard.index)
			}
			d.grow()
			tries = 0
		}
		n := d.next
		d.next = (n + 1) & bth.PSNMask
		// 0 and 1 are the management queue pairs, the last one is multicast;
		// like rxe the first ordinary number is 0x11.
		if n <= 0x10 || n == bth.QPNMulticast || n%d.shards != bth.QPN(q.shard.index) {
			continue
		}
		if i := int(n) & (len(d.slots) - 1); d.slots[i] == nil {
			q.num = n
			d.slots[i] = q
			d.used++
			return nil
		}
	}
}

// grow doubles the table. Numbers that differ in their low bits still do when
// one bit more is looked at.
func (d *demux) grow() {
	old := d.slots
	d.slots = make([]*QP, 2*len(old))
	for _, q := range old {
		if q != nil {
			d.slots[int(q.num)&(len(d.slots)-1)] = q
		}
	}
}

func (d *demux) remove(q *QP) {
	d.slots[int(q.num)&(len(d.slots)-1)] = nil
	d.used--
}

// all lists the queue pairs.
func (d *demux) all() (out []*QP) {
	for _, q := range d.slots {
		if q != nil {
			out = append(out, q)
		}
	}
	return out
}

// DropCounters count packets that were dropped before they reached a queue
// pair, by the first check they failed. The order is that of rxe. Packets with
// a wrong ICRC are in Counters.ICRCErr.
type DropCounters struct {
	Malformed uint64 // no RoCEv2 packet, unknown opcode, wrong lengths, bad checksum
	NotForUs  uint64 // destination address is not one of ours, nor a group of ours
	NoQP      uint64 // no such queue pair, or a group's address without its number
	PKey      uint64 // P_Key does not match
	NoMAD     uint64 // addressed to QP 1, but no management datagram
	Overrun   uint64 // for a queue pair of another shard, which did not keep up
}

// receiveAll is receive for a batch from the port. Most frames are like the one before: of
// the same flow, of one operation, for one queue pair.
//
// Invariant: a batch leaves what its frames would leave one by one, each parsed anew by
// receive. A frame goes where the last one went, q, only if all that receive has decided
// follows from what the two have in common: the envelope, which has the addresses, and
// the length and the first eight bytes of the BTH, which have the operation, P_Key and QPN
// (frame.Packet.Next). The ICRC is each frame's own, and so is everything that the queue
// pair checks: whether the packet is its peer's, and what its state makes of it.
func (s *shard) receiveAll(now mono.Time, frames []link.Frame) {
	layout := s.dev.info.Layout
	s.flows.NextBatch()
	for i := range frames {
		if frames[i].Env == nil {
			frames[i].Recognise(&s.flows, layout)
		}
	}
	var q *QP // where the last one went
	checked := 0
	for i := range frames {
		f := &frames[i]
		if i == checked {
			checked += link.CheckICRCs(frames[i:])
		}
		if q != nil && f.Intact && s.packet.Next(f.Data, f.Env, f.Segment) {
			q.engine.HandlePacket(now, &s.packet)
			continue
		}
		q = s.receive(now, f, layout, false)
	}
}

// receive checks one packet and hands it to its queue pair. Everything that
// fails is dropped and counted, never answered. relayed says that another shard
// has handed it on. It returns the queue pair that the next packet may go to without these
// checks, if it is like this one; nil if the next packet needs them all: because this one
// has failed them, was for another shard or several queue pairs, has an ICRC of its own
// kind, or because the queue pair waits for the first packet that its peer sends.
func (s *shard) receive(now mono.Time, f *link.Frame, l frame.Layout, relayed bool) *QP {
	p, d := &s.packet, s.dev
	if f.Parse(p, l) != nil {
		s.drops.Malformed++
		return nil
	}
	if !d.isLocal(&p.Dst) {
		if g := d.groups.byGID[p.Dst]; g != nil {
			s.receiveMulticast(now, g, f, l, relayed)
		} else {
			s.drops.NotForUs++
		}
		return nil
	}
	n := p.DestQPN()
	var q *QP
	if n != bth.QPNGSI {
		if q = d.demux.find(n); q == nil {
			s.drops.NoQP++
			return nil
		}
	}
	to := d.shards[0]
	if q != nil {
		to = q.shard
	}
	if to != s { // which does these checks, and those below
		if !to.forward(f, l) {
			s.drops.Overrun++
		}
		return nil
	}
	if !s.intact(q) {
		return nil
	}
	if q == nil {
		d.gsi.receive(s, now, p)
		return nil
	}
	before := s.counters.RcvdPkts
	q.engine.HandlePacket(now, p)
	s.touch(q)
	if q.unconfirmed != nil && s.counters.RcvdPkts != before {
		s.notices = append(s.notices, notice{data: q.unconfirmed})
		q.unconfirmed = nil
	}
	if q.unconfirmed != nil || p.Info.Flags&bth.Flush != 0 { // whose ICRC may be peculiar
		return nil
	}
	return q
}

// intact checks the P_Key and ICRC of the packet at hand, the latter in the way
// the peer of its queue pair computes it; nil is any.
func (s *shard) intact(q *QP) bool {
	p := &s.packet
	if !p.PKey().Match(bth.DefaultPKey) {
		s.drops.PKey++
		return false
	}
	ok := false
	if q == nil {
		ok = p.CheckICRC()
	} else {
		ok = q.engine.CheckICRC(p)
	}
	if !ok {
		s.counters.ICRCErr++
	}
	return ok
}
