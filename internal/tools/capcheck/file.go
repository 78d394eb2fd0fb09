package capcheck

import (
	"context"

	"github.com/goroce/roce/internal/tools/dissect"
)

// File reads a capture and reports on it.
func File(name string) (*Report, error) {
	r := New(name)
	if err := r.Read(context.Background()); err != nil {
		return nil, err
	}
	return r, nil
}

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
