package demo

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/capcheck"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
)

// ladders does two READs and reads their packets from the capture. The second one loses a packet of its answer.
func (p *pair) ladders(ctx context.Context, w *pcap.Writer, file string) (good, lossy []ladder.Step, err error) {
	if good, err = p.ladder(ctx, w, file, nil); err != nil {
		return nil, nil, err
	}
	lost := bth.RCReadResponseMiddle
	if lossy, err = p.ladder(ctx, w, file, &fault.Rule{Action: fault.Drop, Dir: fault.Rx, Op: fault.Is(lost), Nth: 1}); err != nil {
		return nil, nil, err
	}
	// The capture is on the wire, before the loss of the packet.
	name := strings.TrimPrefix(lost.String(), "RC ")
	for i := range lossy {
		if s := &lossy[i]; strings.HasPrefix(s.Label, name) {
			s.Lost, s.Note = true, "lost"
			break
		}
	}
	return good, lossy, nil
}

// ladder does a READ, with a fault if rule is not nil, and returns its packets. On a busy machine the requester may send
// a probe before the answer comes. Such a diagram explains little, so ladder then does another READ.
func (p *pair) ladder(ctx context.Context, w *pcap.Writer, file string, rule *fault.Rule) ([]ladder.Step, error) {
	var steps []ladder.Step
	for range 5 {
		if rule != nil {
			if err := p.wire.AddRule(*rule); err != nil {
				return nil, err
			}
		}
		from, err := frames(ctx, w, file)
		if err == nil {
			_, err = p.do(ctx, readOperation(), 0)
		}
		if err = cmp.Or(err, w.Flush()); err != nil {
			return nil, err
		}
		// A second response to an earlier READ may still arrive, so the selection begins after from.
		d := capcheck.NewDrawing(&dissect.Selection{From: from + 1, Op: "READ"})
		d.HideQPN = true
		if err := dissect.ReadFile(ctx, file, d.Add); err != nil {
			return nil, err
		}
		if steps = d.Steps; len(steps) > 1 && steps[1].Note == "" {
			break
		}
	}
	return steps, nil
}

// frames returns the number of captured frames.
func frames(ctx context.Context, w *pcap.Writer, file string) (n int, err error) {
	if err := w.Flush(); err != nil {
		return 0, err
	}
	err = dissect.ReadFile(ctx, file, func(p *dissect.Packet) error {
		n = p.Num
		return nil
	})
	return n, err
}

func readOperation() *operation {
	return &operations[slices.IndexFunc(operations, func(o operation) bool { return o.name == readName })]
}
