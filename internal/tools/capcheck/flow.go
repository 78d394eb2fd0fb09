package capcheck

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/dissect"
)

// Flow is the packets from a host to one queue pair: the requests of the host's requester, and the
// answers of its responder to the requests the other way.
//
// A packet that was lost after the point of capture appears as a retransmission. A packet that was lost
// before it appears as a gap that is filled later.
type Flow struct {
	Src       string `json:"src"`
	Dst       string `json:"dst"`
	DestQPN   uint32 `json:"dest_qpn"`
	SrcQPN    uint32 `json:"src_qpn,omitempty"` // with DC: the initiator that sends the requests
	IfIndex   int    `json:"ifindex,omitempty"` // interface of the capture, if the file has it
	Transport string `json:"transport"`

	Packets int    `json:"packets"`
	Bytes   uint64 `json:"bytes"` // of payload

	Requests      int `json:"requests"`
	Retransmitted int `json:"retransmitted"` // requests with the PSN of an earlier one
	Gaps          int `json:"gaps"`          // places where PSNs were skipped
	Late          int `json:"late"`          // requests that filled a gap
	Missing       int `json:"missing"`       // PSNs that were skipped and never came

	Responses    int            `json:"responses"`
	ResponseGaps int            `json:"response_gaps"` // inside the answer to a READ
	ACKs         int            `json:"acks"`
	RNRs         int            `json:"rnrs"`
	NAKs         map[string]int `json:"naks,omitempty"` // by kind

	CNPs int `json:"cnps,omitempty"` // congestion notification packets

	firstFrame int
	connection uint32 // with DC: the number in the last CONNECT
	key        flowKey
	pair       pairing
	req        sequence
	read       struct {
		next bth.PSN
		open bool // inside the answer to a READ
	}
}

func (f *Flow) add(p *dissect.Packet) {
	pkt := &p.Frame
	f.Packets++
	f.Bytes += uint64(len(pkt.Payload()))
	switch flags := pkt.Info.Flags; {
	case flags&bth.Request != 0:
		f.request(p)
	case flags&bth.Response != 0:
		f.response(p)
	case pkt.Op == bth.CNP:
		f.CNPs++
	}
}

func (f *Flow) request(p *dissect.Packet) {
	pkt := &p.Frame
	f.Requests++
	if pkt.Op.Transport() == bth.UD {
		return // a UD sender has one sequence of PSNs for all its destinations
	}
	switch pkt.Op {
	case bth.DCConnect: // it has the PSN of the next request, and does not count as one
		f.connect(pkt.DCCETH().Connection)
		return
	case bth.DCDisconnect:
		return
	}
	// Only a READ uses several PSNs: one per packet of its answer.
	ends := onePSN
	if pkt.Info.Flags&bth.Read != 0 {
		ends = f.req.readEnds(pkt.DMALen())
	} else if pkt.Info.Flags&bth.Last == 0 {
		f.req.mtu = uint32(len(pkt.Payload())) // FIRST and MIDDLE are full
	}
	switch f.req.add(pkt.PSN(), ends) {
	case again:
		f.Retransmitted++
	case late:
		f.Late++
	case jumped:
		f.Gaps++
	}
}

// connect begins a new connection of an initiator, with its own PSNs. If it is the current connection, connect counts a retransmission.
func (f *Flow) connect(number uint32) {
	if f.Requests > 1 && number == f.connection {
		f.Retransmitted++
		return
	}
	f.connection = number
	f.Missing += f.req.gaps.Missing()
	f.req = sequence{}
}

func (f *Flow) response(p *dissect.Packet) {
	pkt := &p.Frame
	f.Responses++
	flags := pkt.Info.Flags
	if flags&bth.Read != 0 {
		if flags&bth.First == 0 && (!f.read.open || pkt.PSN() != f.read.next) {
			f.ResponseGaps++
		}
		f.read.open = flags&bth.Last == 0
		f.read.next = pkt.PSN().Add(1)
	}
	if pkt.Info.Headers&bth.HasAETH == 0 {
		return
	}
	switch s := pkt.Syndrome(); s.Kind() {
	case bth.KindACK:
		f.ACKs++
	case bth.KindRNR:
		f.RNRs++
	default:
		f.NAKs[s.String()]++
	}
}
