// Package capcheck checks a capture: it verifies the ICRCs, and counts gaps, retransmissions and NAKs for
// each queue pair.
package capcheck

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
)

// Report is the result for one capture.
type Report struct {
	// FlushQuirk accepts the ICRC that rxe of Linux 6.12 gives a FLUSH. The caller sets it before
	// the first Add.
	FlushQuirk bool `json:"-"`

	// Brief stores no frame numbers, so that the memory does not grow with the number of packets.
	Brief bool `json:"-"`

	File  string `json:"file"`
	Error string `json:"error,omitempty"` // the file was not read to its end

	Frames    int `json:"frames"`
	Packets   int `json:"packets"` // a super-packet is one frame and several packets
	RoCE      int `json:"roce"`
	Other     int `json:"other"`
	Truncated int `json:"truncated"` // cut short by the capture: their ICRC is not known
	Undecoded int `json:"undecoded"` // truncated frames that lack headers, or may be super-packets

	// A super-packet was captured before the adapter segmented it (GSO), or after the receiver merged it (GRO).
	SuperPackets       int   `json:"super_packets"`
	Split              int   `json:"split"` // packets in the super-packets
	UDPChecksumPartial int   `json:"udp_checksum_partial"`
	UDPChecksumWrong   []int `json:"udp_checksum_wrong,omitempty"` // numbers of frames whose ICRC is right

	ICRCGood  int   `json:"icrc_good"`
	ICRCBad   int   `json:"icrc_bad"`
	BadFrames []int `json:"bad_frames,omitempty"` // numbers of the frames with a wrong ICRC

	Malformed       int   `json:"malformed"`
	MalformedFrames []int `json:"malformed_frames,omitempty"`

	Flows      []*Flow `json:"flows"`
	Unfollowed int     `json:"unfollowed,omitempty"` // packets of queue pairs beyond the first maxFlows

	flows    map[flowKey]*Flow
	unpaired map[askKey]*Flow // flows without a peer, by their requests; nil: two flows have such a request
}

// OK reports whether the file is complete and every RoCE packet is well-formed and has the right ICRC.
// Losses, NAKs and offloads do not matter.
func (r *Report) OK() bool { return r.Error == "" && r.ICRCBad == 0 && r.Malformed == 0 }

// New returns an empty report.
func New(file string) *Report {
	return &Report{File: file, flows: map[flowKey]*Flow{}, unpaired: map[askKey]*Flow{}}
}

// Add adds the next packet of the capture.
func (r *Report) Add(p *dissect.Packet) {
	r.Packets++
	if p.Segment <= 1 {
		r.Frames++
	}
	switch p.Kind {
	case dissect.Other:
		r.Other++
		return
	case dissect.Truncated:
		r.Truncated++
		r.Undecoded++
		return
	case dissect.Malformed:
		r.Malformed++
		r.MalformedFrames = r.list(r.MalformedFrames, p.Num)
		return
	}
	r.RoCE++
	r.note(p)
	switch {
	case p.Cut:
		r.Truncated++
	case p.ICRCOK || p.FlushQuirk && r.FlushQuirk:
		r.ICRCGood++
	default:
		// The rest of the packet may be wrong, too, so it is not part of a flow.
		r.ICRCBad++
		r.BadFrames = r.list(r.BadFrames, p.Num)
		return
	}
	if f := r.flow(p); f != nil {
		f.add(p)
		r.match(f, p)
	} else {
		r.Unfollowed++
	}
}

// maxFlows bounds the memory a hostile capture can take.
const maxFlows = 1 << 16

// note counts super-packets and UDP checksums that are partial or wrong.
func (r *Report) note(p *dissect.Packet) {
	if p.Segment == 1 {
		r.SuperPackets++
		r.Split += p.Segments
	}
	if p.Marks&pcap.PartialUDPChecksum != 0 && p.Segment <= 1 {
		r.UDPChecksumPartial++
	}
	if p.Marks&pcap.WrongUDPChecksum != 0 {
		r.UDPChecksumWrong = r.list(r.UDPChecksumWrong, p.Num)
	}
}

// list appends the number of a frame. It does so once if several packets of the same frame follow each other.
func (r *Report) list(frames []int, n int) []int {
	if r.Brief || len(frames) > 0 && frames[len(frames)-1] == n {
		return frames
	}
	return append(frames, n)
}

// Done finishes the report; Flows is sorted from then on.
func (r *Report) Done() {
	for _, f := range r.flows {
		r.Flows = append(r.Flows, f)
		f.Missing += f.req.gaps.Missing()
	}
	slices.SortFunc(r.Flows, func(a, b *Flow) int { return cmp.Compare(a.firstFrame, b.firstFrame) })
}

// flowKey identifies a direction of a connection: a destination queue pair and the host that sends to
// it. In a capture of all interfaces of a host ("any") a packet may appear twice, once for each interface that it
// passes. The key includes the interface, so that this does not count as a retransmission.
type flowKey struct {
	src, dst bth.GID
	qpn      bth.QPN
	from     bth.QPN // with DC: the initiator, because several initiators of a host may send to one target
	ifindex  int
}

// Each returns an iterator over the flows so far, in no particular order. The counts of a flow are up to date, except for Missing,
// which [Report.Done] sets.
func (r *Report) Each() iter.Seq[*Flow] { return maps.Values(r.flows) }

// flow returns the flow of a packet, nil if there are too many.
func (r *Report) flow(p *dissect.Packet) *Flow {
	k := flowKey{src: p.Frame.Src, dst: p.Frame.Dst, qpn: p.Frame.DestQPN(), ifindex: p.IfIndex}
	if i := p.Frame.Info; i.Headers&bth.HasDCETH != 0 && i.Flags&bth.Request != 0 {
		k.from = p.Frame.DCETH().QPN
	}
	f := r.flows[k]
	if f == nil && len(r.flows) < maxFlows {
		f = &Flow{
			Src: k.src.Addr().String(), Dst: k.dst.Addr().String(), DestQPN: uint32(k.qpn), SrcQPN: uint32(k.from), IfIndex: k.ifindex,
			Transport: p.Frame.Op.Transport().String(), firstFrame: p.Num, key: k, NAKs: map[string]int{},
		}
		r.flows[k] = f
	}
	return f
}

// Read adds all packets of the file and finishes the report. After an error the report is about the
// packets before it.
func (r *Report) Read(ctx context.Context) error {
	err := dissect.ReadFile(ctx, r.File, func(p *dissect.Packet) error {
		r.Add(p)
		return nil
	})
	if err != nil {
		r.Error = err.Error()
	}
	r.Done()
	return err
}
