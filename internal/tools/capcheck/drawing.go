package capcheck

import (
	"fmt"
	"strings"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
	"github.com/goroce/roce/link/pcap"
)

// Drawing turns selected packets into the steps of a ladder, with notes on what
// is out of the ordinary.
type Drawing struct {
	Steps []ladder.Step
	Left  int // packets selected beyond the limit

	// HideQPN leaves the queue pairs' numbers out, which are the same all along
	// when only one connection is drawn.
	HideQPN bool

	sel    *dissect.Selection
	report *Report // sees all packets, so that it knows what was there before
}

// NewDrawing returns an empty drawing.
func NewDrawing(sel *dissect.Selection) *Drawing { return &Drawing{sel: sel, report: New("")} }

// Add looks at the next packet. It never fails; it has an error so that it can be
// handed to [dissect.ReadFile].
func (d *Drawing) Add(p *dissect.Packet) error {
	note := d.note(p)
	if !d.sel.Match(p) {
		return nil
	}
	if d.sel.Limit > 0 && len(d.Steps) >= d.sel.Limit {
		d.Left++
		return nil
	}
	label := p.Label()
	if d.HideQPN {
		label = strings.Replace(label, fmt.Sprintf(" qpn %v", p.Frame.DestQPN()), "", 1)
	}
	d.Steps = append(d.Steps, ladder.Step{
		At: p.At, From: p.Frame.Src.Addr().String(), To: p.Frame.Dst.Addr().String(), Label: label, Note: note,
	})
	return nil
}

// note says what is out of the ordinary about p, in a few words.
func (d *Drawing) note(p *dissect.Packet) string {
	if p.Kind != dissect.RoCE {
		return ""
	}
	var notes []string
	if event := d.event(p); event != "" {
		notes = append(notes, event)
	}
	if p.Segments > 0 {
		notes = append(notes, fmt.Sprintf("[%d of %d]", p.Segment, p.Segments))
	}
	if p.Marks&pcap.WrongUDPChecksum != 0 {
		notes = append(notes, "wrong UDP checksum")
	}
	return strings.Join(notes, ", ")
}

// event says in a word what happened to p.
func (d *Drawing) event(p *dissect.Packet) string {
	if !p.ICRCOK && !p.Cut {
		return "ICRC BAD"
	}
	f := d.report.flow(p)
	if f == nil {
		return ""
	}
	before := *f
	d.report.Add(p)
	switch {
	case f.Retransmitted > before.Retransmitted:
		return "again"
	case f.Late > before.Late:
		return "late"
	case f.Gaps > before.Gaps, f.ResponseGaps > before.ResponseGaps:
		return "gap before"
	}
	return ""
}
