package nic

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Drops count packets that were dropped before they reached a queue pair, by
// the first failed check. The order of checks is that of rxe. Counters.ICRCErr
// counts packets with a wrong ICRC.
type Drops struct {
	Malformed uint64 // no RoCEv2 packet, unknown opcode, wrong lengths, bad checksum
	NotForUs  uint64 // the destination is not an address or group of the device, the VLAN is another one, or the source is not another host
	NoQP      uint64 // the queue pair does not exist, or the destination is a group without the multicast QPN
	PKey      uint64 // P_Key does not match
	NoMAD     uint64 // to QP 1, but not a management datagram
	MADFlood  uint64 // to QP 1, beyond the rate; the ICRC was not checked
	Overrun   uint64 // there was no room: for a queue pair of another shard, for the connection manager, or from another process
}

// receiveAll is receive for a batch from the port. Most frames resemble the previous one:
// they have the same flow, operation and queue pair.
//
// Invariant: a batch has the same effect as its frames one by one, each parsed by receive. A
// frame goes to q, the queue pair of the frame before, only if frame.Packet.Next says that
// the two have the same envelope, length and first eight bytes of the BTH: addresses,
// operation, P_Key and QPN, which is all that receive has checked. The ICRC is checked for
// each frame, and the queue pair checks its PSN and state.
func (s *Shard) receiveAll(now mono.Time, frames []link.Frame) {
	layout := s.nic.info.Layout
	s.flows.NextBatch()
	for i := range frames {
		if frames[i].Env == nil {
			frames[i].MatchFlow(&s.flows, layout)
		}
	}
	var q *QP // of the previous frame
	checked, received, datagrams := 0, uint64(0), false
	for i := range frames {
		f := &frames[i]
		if i == checked {
			checked += link.CheckICRCs(frames[i:])
		}
		if q != nil && f.Intact && s.packet.Next(f.Data, f.Env, f.Segment) {
			s.packet.SetIntact()
			if datagrams {
				s.handle(now, q)
			} else {
				q.engine.HandlePacket(now, &s.packet)
			}
			continue
		}
		if q != nil {
			s.noteAccepted(now, received)
		}
		q = s.receive(now, f, layout, fromPort)
		received, datagrams = s.counters.RcvdPkts, q != nil && s.packet.Info.Transport == bth.UD
	}
	if q != nil {
		s.noteAccepted(now, received)
	}
}

// noteAccepted records the time of accepted packets. It reports whether queue pairs have accepted
// any since the counter RcvdPkts had the value received. Dropped packets do not count, so a
// stranger cannot slow down the handshakes of others.
func (s *Shard) noteAccepted(now mono.Time, received uint64) (accepted bool) {
	if accepted = s.counters.RcvdPkts != received; accepted {
		s.dataAt = now
	}
	return accepted
}

// origin is the source of a packet.
type origin uint8

const (
	fromPort    origin = iota // the network
	fromShard                 // another shard, which has checked the source address
	fromSelf                  // the device itself: the loopback
	fromProcess               // another process on the address
	fromStray                 // the network, by way of another process
)

// checked is the origin of a packet whose source another shard has checked.
func (o origin) checked() origin {
	if o == fromProcess {
		return o
	}
	return fromShard
}

// foreign reports whether an address can be the source of a packet from the network. An
// address of the device cannot: packets of the device to itself do not reach the network, so
// the source is forged, or another host has the same address. A multicast, broadcast or zero
// address cannot be a source either.
func foreign(local *route.GIDTable, g *bth.GID) bool {
	return !local.Has(g) && !g.IsMulticast() && *g != (bth.GID{}) && *g != anyIPv4 && *g != allIPv4
}

var (
	anyIPv4 = bth.GID{10: 0xFF, 11: 0xFF}
	allIPv4 = bth.GID{10: 0xFF, 11: 0xFF, 12: 0xFF, 13: 0xFF, 14: 0xFF, 15: 0xFF}
)

// addresses are those of a packet from the network that were right for a device with the GIDs local. The next
// packet usually has the same.
type addresses struct {
	src, dst bth.GID
	local    *route.GIDTable
}

// Add adds the counters of another shard.
func (c *Drops) Add(o *Drops) {
	c.Malformed += o.Malformed
	c.NotForUs += o.NotForUs
	c.NoQP += o.NoQP
	c.PKey += o.PKey
	c.NoMAD += o.NoMAD
	c.MADFlood += o.MADFlood
	c.Overrun += o.Overrun
}

// receive checks one packet and delivers it to its queue pair. It drops and counts a packet
// that fails a check, and never answers it. receive returns the queue pair if a next packet
// that resembles this one may go to it without these checks. It returns nil if the next
// packet needs all checks: because this packet has failed, was for another shard or for
// several queue pairs, may have an ICRC with rxe's quirk, or because the queue pair waits
// for the first packet of its peer.
func (s *Shard) receive(now mono.Time, f *link.Frame, l frame.Layout, from origin) *QP {
	p, d := &s.packet, s.nic
	if f.Parse(p, l) != nil {
		s.splitMADs() // the kernel may take it for one
		s.drops.Malformed++
		return nil
	}
	n := p.DestQPN()
	if n == bth.QPNGSI {
		s.splitMADs() // also before a check that it fails
	}
	if p.VLAN != d.vlan {
		s.drops.NotForUs++
		return nil
	}
	if local := d.routes.GIDs(); p.Src != s.accepted.src || p.Dst != s.accepted.dst || local != s.accepted.local {
		checksSource := from == fromPort || from == fromStray
		if checksSource && !foreign(local, &p.Src) {
			s.drops.NotForUs++
			return nil
		}
		if !local.Has(&p.Dst) {
			if g := d.groups.byGID[p.Dst]; g != nil {
				s.receiveMulticast(now, g, f, l, from)
			} else {
				s.drops.NotForUs++
			}
			return nil
		}
		if checksSource {
			s.accepted = addresses{p.Src, p.Dst, local}
		}
	}
	var q *QP
	if n != bth.QPNGSI {
		if q = d.demux.find(n); q == nil {
			if from != fromPort || !s.passOn(f) {
				s.drops.NoQP++
			}
			return nil
		}
	} else if from == fromPort && s.passOn(f) {
		return nil
	}
	to := d.shards[0]
	if q != nil {
		to = q.shard
	}
	if to != s { // the other shard does all checks
		if !to.forward(f, l, from.checked()) {
			s.drops.Overrun++
		}
		return nil
	}
	if q == nil && !d.qp1.Admit(now, s.dataAt, &p.Src) {
		s.drops.MADFlood++
		return nil
	}
	if !s.intact(q) {
		return nil
	}
	if q == nil {
		if from == fromPort {
			s.passToAll(now, f)
		}
		d.qp1.Receive(now, p)
		return nil
	}
	confirms := q.awaitsData() && q.engine.Confirms(p)
	accepted := s.handle(now, q)
	s.touch(q)
	if accepted && confirms {
		s.Call(q.link.onData)
		q.link.onData = nil
	}
	if q.awaitsData() || p.Info.Flags&bth.Flush != 0 { // a FLUSH may have an ICRC with rxe's quirk
		return nil
	}
	return q
}

// handle delivers the current packet, which has passed all checks, to its queue pair, and records
// the result. It reports whether the queue pair has accepted the packet.
func (s *Shard) handle(now mono.Time, q *QP) (accepted bool) {
	received, noReceive := s.counters.RcvdPkts, s.counters.UDNoReceive
	q.engine.HandlePacket(now, &s.packet)
	if dropped := s.counters.UDNoReceive != noReceive; dropped || q.dry != 0 {
		q.noteReceive(dropped)
	}
	return s.noteAccepted(now, received)
}

// intact reports whether the P_Key and the ICRC of the current packet are right. If q is not
// nil, its peer may compute the ICRC with rxe's quirk.
func (s *Shard) intact(q *QP) bool {
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
