//go:build linux

package links

import (
	"context"
	"errors"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/link"
)

// NewProbe makes the roles of a test that checks whether a driver works on this system. If it does not, the Mode of the
// active end's measure says why.
func NewProbe(s harness.Spec) (harness.Role, error) { return &probe{spec: s}, nil }

type probe struct {
	harness.Alone
	spec harness.Spec
	why  string
}

func (p *probe) Prepare() (any, error) {
	port, err := Open(p.spec)
	switch {
	case err == nil:
		return "", port.Close()
	case errors.Is(err, link.ErrUnsupported), errors.Is(err, link.ErrPermission):
		p.why = err.Error()
		return "", nil
	}
	return "", err
}

func (p *probe) Run(ctx context.Context) (harness.Measure, error) {
	if !p.spec.Active {
		<-ctx.Done()
	}
	return harness.Measure{Mode: p.why}, nil
}
