// Package capcheck judges a capture: are the ICRCs right, and what happened to
// the packets of each queue pair (gaps, retransmissions, NAKs)?
package capcheck

import (
	"cmp"
	"slices"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/dissect"
)

// Report is what is known of one capture.
type Report struct {
	// FlushQuirk, set before anything is added, takes the ICRC that rxe of Linux
	// 6.12 gives a FLUSH for right.
	FlushQuirk bool `json:"-"`

	File string `json:"file"`

	Packets   int `json:"packets"`
	RoCE      int `json:"roce"`
	Other     int `json:"other"`
	Truncated int `json:"truncated"`

	ICRCGood  int   `json:"icrc_good"`
	ICRCBad   int   `json:"icrc_bad"`
	BadFrames []int `json:"bad_frames,omitempty"` // numbers of the frames with a wrong ICRC

	Malformed       int   `json:"malformed"`
	MalformedFrames []int `json:"malformed_frames,omitempty"`

	Flows []*Flow `json:"flows"`

	flows map[flowKey]*Flow
}

// OK reports whether every RoCE packet is well-formed and has the right ICRC.
// Losses and NAKs are no fault of the capture.
func (r *Report) OK() bool { return r.ICRCBad == 0 && r.Malformed == 0 }

// New returns an empty report.
func New(file string) *Report { return &Report{File: file, flows: map[flowKey]*Flow{}} }

// Add looks at the next packet of the capture.
func (r *Report) Add(p *dissect.Packet) {
	r.Packets++
	switch p.Kind {
	case dissect.Other:
		r.Other++
		return
	case dissect.Truncated:
		r.Truncated++
		return
	case dissect.Malformed:
		r.Malformed++
		r.MalformedFrames = append(r.MalformedFrames, p.Num)
		return
	}
	r.RoCE++
	if !p.ICRCOK && !(p.FlushQuirk && r.FlushQuirk) {
		// Whatever else the packet says may be wrong too.
		r.ICRCBad++
		r.BadFrames = append(r.BadFrames, p.Num)
		return
	}
	r.ICRCGood++
	r.flow(p).add(p)
}

// Done finishes the report; Flows is sorted from then on.
func (r *Report) Done() {
	for _, f := range r.flows {
		r.Flows = append(r.Flows, f)
		f.finish()
	}
	slices.SortFunc(r.Flows, func(a, b *Flow) int { return cmp.Compare(a.firstFrame, b.firstFrame) })
}

// flowKey names a direction of a connection: everything with the same
// destination queue pair, coming from the same host.
type flowKey struct {
	src, dst bth.GID
	qpn      bth.QPN
}

func (r *Report) flow(p *dissect.Packet) *Flow {
	k := flowKey{p.Frame.Src, p.Frame.Dst, p.Frame.DestQPN()}
	f := r.flows[k]
	if f == nil {
		f = &Flow{
			Src: k.src.Addr().String(), Dst: k.dst.Addr().String(), DestQPN: uint32(k.qpn),
			Transport: p.Frame.Op.Transport().String(), firstFrame: p.Num, NAKs: map[string]int{},
		}
		r.flows[k] = f
	}
	return f
}
