package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/capcheck"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
)

// drawLadder draws the selected packets of a capture, of a damaged one those before
// the damage.
func drawLadder(ctx context.Context, w io.Writer, file string, sel *dissect.Selection) error {
	d := capcheck.NewDrawing(sel)
	damage := dissect.ReadFile(ctx, file, d.Add)
	if err := ladder.Draw(w, d.Steps); err != nil {
		return err
	}
	if d.Left > 0 {
		if _, err := fmt.Fprintf(w, "… and %d packets more; see --limit, --from and --to\n", d.Left); err != nil {
			return err
		}
	}
	return damage
}

// qpnsFlag is a list of queue pair numbers on the command line.
type qpnsFlag []bth.QPN

func (f *qpnsFlag) Set(s string) error {
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(part, 0, 24)
		if err != nil {
			return fmt.Errorf("%q is not a queue pair number like 0x12", part)
		}
		*f = append(*f, bth.QPN(n))
	}
	return nil
}

func (f *qpnsFlag) String() string {
	var s []string
	for _, q := range *f {
		s = append(s, q.String())
	}
	return strings.Join(s, ",")
}

func (*qpnsFlag) Type() string { return "qpn" }
