package roce

import (
	"cmp"
	"syscall"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// MW is a memory window (struct ibv_mw): a separate key for a part of a
// memory region, with its own rights. Work requests bind and invalidate it.
// Its methods may be called from any goroutine.
type MW struct {
	dev    *Device
	mw     *mr.MW
	closed bool // guarded by the device
}

// AllocMW creates a window (ibv_alloc_mw). Its key is not valid until it is
// bound.
func (p *PD) AllocMW(typ MWType) (*MW, error) {
	w, err := inDomain(p, func() (*mr.MW, error) { return p.dev.mem.AllocMW(p.pd, typ) })
	if err != nil {
		return nil, err
	}
	return &MW{dev: p.dev, mw: w}, nil
}

// Close unbinds the window and frees it (ibv_dealloc_mw). Its key is invalid
// when Close returns.
func (w *MW) Close() error { return w.dev.closeOnce(&w.closed, w.mw.Dealloc) }

// RKey returns the key for peers: that of the last posted bind. If this bind
// fails or is flushed, the window still has the previous key.
func (w *MW) RKey() RKey { return w.mw.RKey() }

// Type returns the type of the window.
func (w *MW) Type() MWType { return w.mw.Type() }

// Bind describes the memory and the rights of a window (struct ibv_mw_bind).
type Bind struct {
	ID    uint64
	Flags SendFlags // Signaled, Fence

	MR     Region // registered with MWBind; nil with Length 0
	Addr   uint64 // first address, in MR
	Length uint64 // bytes; 0 unbinds a type 1 window

	// Access has the rights of peers: RemoteWrite and RemoteAtomic, which need
	// LocalWrite on MR, and RemoteRead, which needs no right on MR. The remote
	// rights of MR have no effect. With ZeroBased (type 2 only) the window's
	// first address is 0.
	Access Access

	// Key is the new R_Key; it may differ from the current one in the low
	// byte only. 0: [IncRKey] of the current one.
	Key RKey
}

// WR returns the work request that binds the window, to post it with others by
// [QP.PostSends]: typically before the SEND that carries the key to a peer.
// RKey of the work request has the key.
func (w *MW) WR(b Bind) SendWR {
	wr := SendWR{ID: b.ID, Opcode: qp.BindMW, Flags: b.Flags, MW: w.mw, RKey: cmp.Or(b.Key, IncRKey(w.RKey())), BindAddr: b.Addr, BindLength: b.Length, Access: b.Access}
	if r := baseOf(b.MR); r != nil {
		wr.MR = r.mr
	}
	return wr
}

// BindMW posts a bind (ibv_bind_mw, and for type 2 windows ibv_post_send of
// IBV_WR_BIND_MW) and returns the R_Key that the window gets. A SEND on the same
// queue pair may carry the key to a peer at once; before it uses another channel,
// the program must wait for the completion. If the bind itself fails, its
// completion has the Status [cq.MWBindErr], and the queue pair moves to ERR.
// BindMW returns the errors of [QP.PostSend], and EINVAL without a window.
//
// A type 1 window serves every queue pair of its domain, and may be bound
// again at any time, which invalidates the previous key. A type 2 window
// serves the queue pair on which it is bound, and may be bound again after a
// [LocalInv], a SendInv of the peer, or a reset of the queue pair.
func (q *QP) BindMW(w *MW, b Bind) (RKey, error) {
	if w == nil {
		return 0, errs.On("bind mw", q.Num().Object(), syscall.EINVAL, "the window is nil")
	}
	wr := w.WR(b)
	if err := q.PostSend(&wr); err != nil {
		return 0, err
	}
	return wr.RKey, nil
}

// IncRKey returns a key with its low byte incremented (ibv_inc_rkey).
func IncRKey(k RKey) RKey { return mr.IncRKey(k) }
