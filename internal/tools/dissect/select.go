package dissect

import (
	"slices"
	"strings"

	"github.com/goroce/roce/bth"
)

// Selection selects RoCE packets of a capture. The zero value selects all.
type Selection struct {
	From, To int       // numbers of the first and the last frame; To 0: no limit
	QPNs     []bth.QPN // destination queue pairs; none: any
	Op       string    // part of the opcode's name
	NoCM     bool      // without packets to QP 1
	Limit    int       // the largest number of packets; 0: no limit. Match ignores it: the caller has to count.
}

// Match reports whether p is selected. It ignores Limit.
func (s *Selection) Match(p *Packet) bool {
	if p.Kind != RoCE || p.Num < s.From || s.To != 0 && p.Num > s.To {
		return false
	}
	q := p.Frame.DestQPN()
	switch {
	case len(s.QPNs) > 0 && !slices.Contains(s.QPNs, q):
		return false
	case s.NoCM && q == bth.QPNGSI:
		return false
	}
	return strings.Contains(p.Frame.Op.String(), strings.ToUpper(s.Op))
}
