package capcheck

import (
	"fmt"
	"strings"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
	"github.com/goroce/roce/link/pcap"
)

// Drawing converts selected packets to the steps of a ladder diagram, with notes on retransmissions, gaps and
// errors.
type Drawing struct {
	Steps []ladder.Step
	Left  int // packets selected beyond the limit

	// HideQPN leaves out the numbers of queue pairs, for drawings of one connection.
	HideQPN bool

	sel    *dissect.Selection
	report *Report // about all packets, also those that are not selected
}

// NewDrawing returns an empty drawing.
func NewDrawing(sel *dissect.Selection) *Drawing { return &Drawing{sel: sel, report: New("")} }

// Add adds the next packet. It always returns nil; it has a result because [dissect.ReadFile] needs a function
// with one.
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

// note returns a few words about p, "" if it is an ordinary packet.
func (d *Drawing) note(p *dissect.Packet) string {
	if p.Kind != dissect.RoCE {
		return ""
	}
	note := d.event(p)
	if p.Segments > 0 {
		note += fmt.Sprintf(", [%d of %d]", p.Segment, p.Segments)
	}
	if p.Marks&pcap.WrongUDPChecksum != 0 {
		note += ", wrong UDP checksum"
	}
	return strings.TrimPrefix(note, ", ")
}

// event returns "again", "late", "gap before" or "ICRC BAD", and "" for an ordinary packet.
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
