package capcheck

import (
	"context"

	"github.com/goroce/roce/internal/tools/dissect"
)

// Read adds all of the file the report is about and finishes it. With an error, the
// report is about what came before.
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
