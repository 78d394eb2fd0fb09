package nic

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/route"
)

// WayBack returns a function that makes the path back to the sender of a packet. w has
// the fields of the headers; its addresses do not matter. The host looks the way up in
// the background if it is kept: until then the packet's Ethernet address must do.
func (n *NIC) WayBack(w route.Way) func(p *frame.Packet, keep bool) *frame.Path {
	return func(p *frame.Packet, keep bool) *frame.Path {
		learned, err := n.routes.Learn(p.Dst, p.Src, p.SrcMAC, nil)
		if err != nil {
			return nil
		}
		c := learned.Config()
		c.TrafficClass, c.FlowLabel = w.TrafficClass, w.FlowLabel
		if w.HopLimit != 0 {
			c.HopLimit = w.HopLimit
		}
		path, err := frame.NewPath(c)
		if err != nil {
			return nil
		}
		if keep && !n.routes.IsLocal(&p.Src) {
			n.routes.LookUp(path)
		}
		return path
	}
}
