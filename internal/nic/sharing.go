package nic

import (
	"slices"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// On an address that several processes share the kernel deals packets by queue pair number and
// management datagrams by communication ID or service. Two kinds of packets take a way of their
// own, from process to process: those between processes on one device, which no network carries
// back, and those that came from the network at the wrong process, as a part of a super-packet
// whose first packet was for that.

// startSharing begins to take packets from other processes.
func (n *NIC) startSharing() {
	if n.shared == nil {
		return
	}
	slots := n.shared.Slots()
	n.shared.Receive(func(p *share.Packet) { // an error: they are lost, as on a network
		from := fromProcess
		if p.Network {
			from = fromStray
		}
		n.shards[max(slices.Index(slots, p.Slot), 0)].forwardShared(&p.Frame, from)
	})
}

// passOn hands the current packet, which came from the port, to another process if it is for
// that, and reports whether it was. f is its frame.
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

// passToAll hands the current packet, a management datagram from the port, to all other processes if
// it may be for each of them. It is whole, and counts once more for each of them in what is admitted: a flood
// is not multiplied.
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

// passOut hands the packet that was lent by the loopback to another process if it is for that,
// and reports whether it was, and which slot has it.
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

// passGroup hands the packet that was lent by the port to all other processes if it is to a
// group: each of them has queue pairs in it, or not.
func (d *datagramSink) passGroup() {
	c := d.path.Config()
	if !c.Dst.IsMulticast() {
		return
	}
	f := link.Frame{Data: d.port.Lent()}
	if d.nic.info.Layout == frame.LayoutUDP { // the headers are the kernel's
		e := d.path.Envelope()
		f.Env = &e
	}
	for _, to := range d.nic.shared.Others() {
		d.out.Add(to, &f, false)
	}
}
