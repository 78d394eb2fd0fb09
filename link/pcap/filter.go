package pcap

import "github.com/goroce/roce/link"

// Filter implements link.Filterer: a Port that captures has no early drop, so that the capture
// shows every packet that arrives.
func (p *Port) Filter(link.MADLimit) (link.Filter, error) {
	info := p.Port.Info()
	return nil, link.Fail("pcap", "filter", info.Interface, link.ErrUnsupported, nil, "")
}
