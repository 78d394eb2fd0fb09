package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/capcheck"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
)

// ladders does two READs, the second with a packet of its answer lost, and
// takes their packets from the capture.
func (p *pair) ladders(ctx context.Context, w *pcap.Writer, file string) (good, lossy []ladder.Step, err error) {
	if good, err = p.ladder(ctx, w, file, nil); err != nil {
		return nil, nil, err
	}
	lost := bth.RCReadResponseMiddle
	if lossy, err = p.ladder(ctx, w, file, &fault.Rule{Action: fault.Drop, Dir: fault.Rx, Op: fault.Is(lost), Nth: 1}); err != nil {
		return nil, nil, err
	}
	// The tap is on the wire, where the packet still was.
	name := strings.TrimPrefix(lost.String(), "RC ")
	for i := range lossy {
		if s := &lossy[i]; strings.HasPrefix(s.Label, name) {
			s.Lost, s.Note = true, "lost"
			break
		}
	}
	return good, lossy, nil
}

// ladder does a READ, with a fault if one is given. Where the machine was busy with something
// else a probe has asked for it again before there was an answer, which is true but explains
// little: then another.
func (p *pair) ladder(ctx context.Context, w *pcap.Writer, file string, rule *fault.Rule) ([]ladder.Step, error) {
	var steps []ladder.Step
	for range 5 {
		if rule != nil {
			if err := p.wire.AddRule(*rule); err != nil {
				return nil, err
			}
		}
		from, err := frames(ctx, w, file)
		if err != nil {
			return nil, err
		}
		if _, err := p.do(ctx, readOperation(), 0); err != nil {
			return nil, err
		}
		if err := w.Flush(); err != nil {
			return nil, err
		}
		// A second answer to what was lost before may still be under way.
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

// frames counts the frames that have been captured.
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
	for i := range operations {
		if operations[i].name == "RDMA_READ" {
			return &operations[i]
		}
	}
	panic(fmt.Sprintf("no RDMA_READ among %d operations", len(operations)))
}
