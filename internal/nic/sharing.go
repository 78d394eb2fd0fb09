package nic

import (
	"slices"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// On an address that several processes share the kernel distributes packets by queue pair
// number, and management datagrams by communication ID or service. Two kinds of packets go
// directly from process to process: packets between processes on one address, which no network
// carries back, and packets that arrived from the network at the wrong process, because they
// were in a super-packet whose first packet was for that process.

// startSharing begins to receive packets from other processes.
func (n *NIC) startSharing() {
	if n.shared == nil {
		return
	}
	slots := n.shared.Slots()
	n.shared.Receive(func(p *share.Packet) { // on an error they are lost, as on a network
		from := fromProcess
		if p.Network {
			from = fromStray
		}
		n.shards[max(slices.Index(slots, p.Slot), 0)].forwardShared(&p.Frame, from)
	})
}

// passOn passes the current packet, which came from the port, to another process if the
// packet is for that process, and reports whether it was. f is the packet's frame.
func (s *Shard) passOn(f *link.Frame) bool {
	if s.out == nil {
		return false
	}
	to, other := s.nic.shared.Whose(s.packet.Data)
	if other && !s.nic.shared.Heard(s.packet.Data) {
		s.out.Add(to, f, true)
	}
	return other
}

// passToAll passes the current packet, a management datagram from the port, to all other processes if the
// packet may be for any of them. Each copy counts against the limit of management datagrams, so that
// processes do not multiply a flood.
func (s *Shard) passToAll(now mono.Time, f *link.Frame) {
	if s.out == nil || !s.nic.shared.Anybodys(s.packet.Data) || s.nic.shared.Heard(s.packet.Data) {
		return
	}
	for _, to := range s.nic.shared.Others() {
		if !s.nic.qp1.Admit(now, s.dataAt, &s.packet.Src) {
			s.drops.MADFlood++
			return
		}
		s.out.Add(to, f, true)
	}
}

// passOut passes the current packet of the loopback to another process if the packet is for
// that process. other reports whether it was; to is the slot.
func (s *Shard) passOut() (to share.Slot, other bool) {
	if s.out == nil {
		return 0, false
	}
	to, other = s.nic.shared.Whose(s.loop.body)
	if s.nic.shared.Anybodys(s.loop.body) {
		for _, each := range s.nic.shared.Others() {
			s.out.Add(each, &link.Frame{Data: s.loop.lending}, false)
		}
	}
	if other {
		s.out.Add(to, &link.Frame{Data: s.loop.lending}, false)
	}
	return to, other
}

// passGroup passes the current packet of the port to all other processes if its destination
// is a group. Each process checks whether it has queue pairs in the group.
func (d *datagramSink) passGroup() {
	c := d.path.Config()
	if !c.Dst.IsMulticast() {
		return
	}
	f := link.Frame{Data: d.port.Lent()}
	if d.nic.info.Layout == frame.LayoutUDP { // the kernel writes the headers
		e := d.path.Envelope()
		f.Env = &e
	}
	for _, to := range d.nic.shared.Others() {
		d.out.Add(to, &f, false)
	}
}
