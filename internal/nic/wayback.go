package nic

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/route"
)

// WayBack returns a function that makes the path back to the sender of a packet. w has the fields of the
// headers; its addresses are ignored. If keep is true, the caller releases the path with Unlearn, and the
// host looks up the next hop in the background; until then the path uses the packet's Ethernet address. The
// function returns nil if it finds no path.
func (n *NIC) WayBack(w route.Way) func(p *frame.Packet, keep bool) *frame.Path {
	return func(p *frame.Packet, keep bool) *frame.Path {
		var learned *frame.Path
		var err error
		if keep {
			learned, err = n.routes.LearnApart(p.Dst, p.Src, p.SrcMAC)
		} else {
			learned, err = n.routes.AnswerOnce(p.Dst, p.Src, p.SrcMAC)
		}
		if err != nil {
			return nil
		}
		if !n.routes.MayAnswer(route.Key{Local: p.Dst, Peer: p.Src}, learned) {
			n.routes.Unlearn(learned)
			return nil
		}
		c := learned.Config()
		c.TrafficClass, c.FlowLabel = w.TrafficClass, w.FlowLabel
		if w.HopLimit != 0 {
			c.HopLimit = w.HopLimit
		}
		path, err := frame.NewPath(c)
		if err != nil {
			n.routes.Unlearn(learned)
			return nil
		}
		if keep && !n.routes.IsLocal(&p.Src) {
			n.routes.LookUp(path)
		}
		return path
	}
}
