package conform

import (
	"fmt"
	"maps"
	"slices"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/pcap"
)

// hints collects properties of a peer that its packets show.
type hints struct {
	packets        int
	migrated       int
	ports          map[uint16]bool
	hops           map[uint8]bool
	classes        map[uint8]bool
	asks, requests int
	credits        int // acknowledgements with a number of credits
	acks           int
	rebuilt        bool // the driver hides the IP header, so that its fields are not real
}

// see adds the packets of a step.
func (h *hints) see(records []pcap.Record) {
	if h.ports == nil {
		h.ports, h.hops, h.classes = map[uint16]bool{}, map[uint8]bool{}, map[uint8]bool{}
	}
	for p := range fromPeer(records) {
		f := &p.Frame
		if f.Op.Transport() == bth.UD && f.DestQPN() == bth.QPNGSI || f.Op == bth.CNP {
			continue
		}
		h.packets++
		if f.MigReq() {
			h.migrated++
		}
		if len(h.ports) < 100 {
			h.ports[f.SrcPort] = true
		}
		h.hops[f.HopLimit] = true
		h.classes[f.TrafficClass] = true
		if f.Info.Flags&bth.Request != 0 {
			h.requests++
			if f.AckReq() {
				h.asks++
			}
		}
		if f.Info.Headers&bth.HasAETH != 0 && f.Syndrome().Kind() == bth.KindACK {
			h.acks++
			if _, ok := f.Syndrome().Credits(); ok {
				h.credits++
			}
		}
		h.rebuilt = records[0].LinkType == pcap.Raw
	}
}

// likeRxe reports whether the peer has never set M, as rxe does not.
func (h *hints) likeRxe() bool { return h.packets > 0 && h.migrated == 0 }

// list returns the hints as sentences without their subject, the peer.
func (h *hints) list() (s []string) {
	if h.packets == 0 {
		return nil
	}
	switch {
	case h.migrated == 0:
		s = append(s, "sends M = 0 in every packet, as Linux rxe does")
	case h.migrated == h.packets:
		s = append(s, "sends M = 1 in every packet, as adapters do")
	default:
		s = append(s, "sends M = 0 and M = 1")
	}
	switch {
	case len(h.ports) == 1 && h.ports[bth.UDPPort]:
		s = append(s, "sends from UDP port 4791")
	case len(h.ports) == 1:
		s = append(s, "sends from one UDP port")
	default:
		s = append(s, "sends from a UDP port for each connection, or several")
	}
	switch {
	case h.acks == 0:
	case h.credits == 0:
		s = append(s, "grants no credits: end-to-end flow control is off")
	default:
		s = append(s, "grants credits in its acknowledgements")
	}
	if h.requests > 0 && h.asks == h.requests {
		s = append(s, "asks for an acknowledgement with every request")
	}
	if !h.rebuilt {
		s = append(s, fmt.Sprintf("hop limits %d, traffic classes %d", slices.Sorted(maps.Keys(h.hops)), slices.Sorted(maps.Keys(h.classes))))
	}
	return s
}
