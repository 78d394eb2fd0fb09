package verbs

import (
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/translate"
)

// window is a memory window.
type window struct {
	base
	mw *roce.MW
}

// AllocMW is ibv_alloc_mw. Types other than 1 and 2 are EINVAL.
func AllocMW(pd abi.Handle, typ uint32) (h abi.Handle, rkey uint32, err error) {
	d, err := find[*domain](pd)
	if err != nil {
		return 0, 0, err
	}
	if typ != uint32(roce.MWType1) && typ != uint32(roce.MWType2) {
		return 0, 0, syscall.EINVAL
	}
	w, err := d.pd.AllocMW(roce.MWType(typ))
	if err != nil {
		return 0, 0, err
	}
	h, err = d.ctx.adopt(&window{base: base{ctx: d.ctx}, mw: w})
	return h, uint32(w.RKey()), err
}

// DeallocMW is ibv_dealloc_mw.
func DeallocMW(mw abi.Handle) error { return destroy[*window](mw) }

func (w *window) close() error { return w.mw.Close() }

// MWRKey returns the key of the last posted bind.
func MWRKey(mw abi.Handle) (uint32, error) {
	w, err := find[*window](mw)
	if err != nil {
		return 0, err
	}
	return uint32(w.mw.RKey()), nil
}

// BindMW is ibv_bind_mw: it posts the bind of a type 1 window and returns the new key of the window. Windows of
// type 2 are EINVAL: ibv_post_send binds them.
func BindMW(qp abi.Handle, wr *abi.SendWR) (rkey uint32, err error) {
	q, err := find[*queuePair](qp)
	if err != nil {
		return 0, err
	}
	w, b, err := bindOf(wr)
	switch {
	case err != nil:
		return 0, err
	case w.mw.Type() != roce.MWType1, b.Access&roce.ZeroBased != 0:
		return 0, syscall.EINVAL
	}
	b.Key = 0 // the next one
	k, err := q.qp.BindMW(w.mw, b)
	return uint32(k), err
}

// bindOf returns the window and the bind of a work request of BIND_MW.
func bindOf(wr *abi.SendWR) (*window, roce.Bind, error) {
	w, err := find[*window](wr.MW)
	if err != nil {
		return nil, roce.Bind{}, err
	}
	r, err := findOptional[*region](wr.MR)
	if err != nil {
		return nil, roce.Bind{}, err
	}
	b := translate.Bind(wr)
	if r != nil {
		b.MR = r.mr
	}
	return w, b, nil
}
