package roce

import (
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/bth/ids"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// maxQP is how many queue pairs a device can have.
const maxQP = 1 << 20

// A number that a queue pair or shared receive queue had is not given to another one for
// numberRest: as long as packets may still be on their way to the old one, and longer than
// any connection is in the timewait of the connection manager (69 s). Of many that are
// closed in that time the last maxResting are remembered.
const (
	numberRest = 70 * time.Second
	maxResting = 1 << 16
)

// demux finds the queue pair of a packet. QPNs are random: who knows one does not know the
// next. A QPN is its shard's number modulo the number of shards, which a network card can be
// told to steer by.
type demux struct {
	qps    *ids.Table[QP]
	shards uint32
}

func (d *demux) init(rnd func() uint64, shards int) {
	*d = demux{ids.NewTable[QP](ids.Config{Max: maxQP, Rand: rnd, Rest: maxResting, Reserved: reservedQPN}), uint32(shards)}
}

// reservedQPN reports the numbers that no queue pair of a program has: 0 and 1 are the
// management queue pairs, the last one is multicast; like rxe the first ordinary number is
// 0x11.
func reservedQPN(n uint32) bool { return n <= 0x10 || bth.QPN(n) == bth.QPNMulticast }

// find returns the queue pair with a number, or nil.
func (d *demux) find(n bth.QPN) *QP { return d.qps.Find(uint32(n)) }

// add gives a queue pair a number.
func (d *demux) add(now mono.Time, q *QP) error {
	if d.qps.Full() {
		return fail("create qp", syscall.ENOMEM, "the device has %d queue pairs, the limit; close some first", d.qps.Len())
	}
	n, ok := d.qps.Draw(now, q, uint32(q.shard.index), d.shards)
	if !ok {
		return fail("create qp", syscall.ENOMEM, "no queue pair number is left for shard %d of %d; use another shard, or close some first", q.shard.index, d.shards)
	}
	q.num = bth.QPN(n)
	return nil
}

// remove frees the number of a queue pair.
func (d *demux) remove(now mono.Time, q *QP) { d.qps.Free(uint32(q.num), now.Add(numberRest)) }

// all lists the queue pairs.
func (d *demux) all() (out []*QP) {
	d.qps.All(func(q *QP) bool {
		out = append(out, q)
		return true
	})
	return out
}

// DropCounters count packets that were dropped before they reached a queue
// pair, by the first check they failed. The order is that of rxe. Packets with
// a wrong ICRC are in Counters.ICRCErr.
type DropCounters struct {
	Malformed uint64 // no RoCEv2 packet, unknown opcode, wrong lengths, bad checksum
	NotForUs  uint64 // destination address is not one of ours, nor a group of ours; it is of another VLAN; or its source is no other host
	NoQP      uint64 // no such queue pair, or a group's address without its number
	PKey      uint64 // P_Key does not match
	NoMAD     uint64 // addressed to QP 1, but no management datagram
	MADFlood  uint64 // addressed to QP 1, more than ConnLimits.MADRate; the ICRC was not checked
	Overrun   uint64 // for a queue pair of another shard, or for the connection manager, which did not keep up
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
			s.packet.SetIntact()
			q.engine.HandlePacket(now, &s.packet)
			continue
		}
		q = s.receive(now, f, layout, fromPort)
	}
}

// origin is where a shard has a packet from.
type origin uint8

const (
	fromPort  origin = iota // the network
	fromShard               // another shard, which has checked where that has it from
	fromSelf                // the device itself: the loopback
)

// foreign reports whether a packet from the network can come from an address. One that has
// an address of the device itself is forged, or from somebody who has the same: what the
// device sends to itself does not leave it. An address of several hosts or of none is
// nobody's.
func (d *Device) foreign(g *bth.GID) bool {
	return !d.isLocal(g) && !g.IsMulticast() && *g != (bth.GID{}) && *g != anyIPv4 && *g != allIPv4
}

var (
	anyIPv4 = bth.GID{10: 0xFF, 11: 0xFF}
	allIPv4 = bth.GID{10: 0xFF, 11: 0xFF, 12: 0xFF, 13: 0xFF, 14: 0xFF, 15: 0xFF}
)

// receive checks one packet and hands it to its queue pair. Everything that
// fails is dropped and counted, never answered. It returns the queue pair that the next
// packet may go to without these checks, if it is like this one; nil if the next packet
// needs them all: because this one has failed them, was for another shard or several queue
// pairs, has an ICRC of its own kind, or because the queue pair waits for the first packet
// that its peer sends.
func (s *shard) receive(now mono.Time, f *link.Frame, l frame.Layout, from origin) *QP {
	p, d := &s.packet, s.dev
	if f.Parse(p, l) != nil {
		s.drops.Malformed++
		return nil
	}
	if p.VLAN != d.vlan {
		s.drops.NotForUs++
		return nil
	}
	if from == fromPort && !d.foreign(&p.Src) {
		s.drops.NotForUs++
		return nil
	}
	if !d.isLocal(&p.Dst) {
		if g := d.groups.byGID[p.Dst]; g != nil {
			s.receiveMulticast(now, g, f, l, from)
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
	if q == nil && !d.gsi.limiter.take(now, &p.Src) {
		s.drops.MADFlood++
		return nil
	}
	if !s.intact(q) {
		return nil
	}
	if q == nil {
		d.gsi.receive(s, now, p)
		return nil
	}
	before, confirms := s.counters.RcvdPkts, q.unconfirmed != nil && q.engine.Confirms(p)
	q.engine.HandlePacket(now, p)
	s.touch(q)
	if confirms && s.counters.RcvdPkts != before {
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
