package verbs

import (
	"context"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/translate"
)

// addressHandle is an address handle.
type addressHandle struct {
	base
	ah *roce.AH
	pd *domain
}

// CreateAH is ibv_create_ah. It waits until the neighbour has answered.
func CreateAH(pd abi.Handle, attr *abi.AHAttr) (abi.Handle, error) {
	d, err := find[*domain](pd)
	if err != nil {
		return 0, err
	}
	a, err := translate.AHAttr(attr)
	if err != nil {
		return 0, err
	}
	ah, err := d.ctx.roce.CreateAH(context.Background(), a)
	if err != nil {
		return 0, err
	}
	d.ahs.Add(1)
	return d.ctx.adopt(&addressHandle{base{ctx: d.ctx}, ah, d})
}

// DestroyAH is ibv_destroy_ah. Posted work requests keep the path.
func DestroyAH(ah abi.Handle) error { return destroy[*addressHandle](ah) }

func (a *addressHandle) close() error {
	a.pd.ahs.Add(-1)
	return nil
}
