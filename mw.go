package roce

import (
	"syscall"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// MW is a memory window (struct ibv_mw): a key of its own to a part of a
// memory region, with rights of its own, that is given and taken away by work
// requests. Its methods may be called from any goroutine.
type MW struct {
	dev    *Device
	mw     *mr.MW
	closed bool // guarded by the device
}

// AllocMW creates a window (ibv_alloc_mw). It opens nothing until it is bound.
func (p *PD) AllocMW(typ MWType) (*MW, error) {
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	if p.closed || p.dev.nic.Closed() {
		return nil, ErrClosed
	}
	w, err := p.dev.mem.AllocMW(p.pd, typ)
	if err != nil {
		return nil, err
	}
	return &MW{dev: p.dev, mw: w}, nil
}

// Close unbinds the window and frees it (ibv_dealloc_mw). Its key is dead when
// it returns.
func (w *MW) Close() error {
	w.dev.nic.Lock()
	defer w.dev.nic.Unlock()
	if w.closed {
		return ErrClosed
	}
	if err := w.mw.Dealloc(); err != nil {
		return err
	}
	w.closed = true
	return nil
}

// RKey returns the key a peer needs: that of the last bind that was posted. If
// that fails, or is flushed, the window still has the one before.
func (w *MW) RKey() RKey { return w.mw.RKey() }

// Type returns the type of the window.
func (w *MW) Type() MWType { return w.mw.Type() }

// Bind says what a window is to open (struct ibv_mw_bind).
type Bind struct {
	ID    uint64
	Flags SendFlags // Signaled, Fence

	MR     Region // registered with MWBind; nil with Length 0
	Addr   uint64 // first address, of those of MR
	Length uint64 // bytes; 0 unbinds a type 1 window

	// Access is what peers may do: RemoteWrite and RemoteAtomic, which need
	// LocalWrite on MR, and RemoteRead, which needs nothing; what MR grants to
	// peers itself does not matter. With ZeroBased (type 2 only) peers count
	// addresses from 0.
	Access Access

	// Key is the R_Key from now on, one of the window's: only the low byte is
	// free. 0: the next one, [IncRKey] of the last.
	Key RKey
}

// WR returns the work request that binds the window, to be posted with others
// by [QP.PostSends]: typically in front of the SEND that tells a peer the key,
// which is in its RKey.
func (w *MW) WR(b Bind) SendWR {
	wr := SendWR{ID: b.ID, Opcode: qp.BindMW, Flags: b.Flags, MW: w.mw, RKey: b.Key, BindAddr: b.Addr, BindLength: b.Length, Access: b.Access}
	if r := baseOf(b.MR); r != nil {
		wr.MR = r.mr
	}
	if wr.RKey == 0 {
		wr.RKey = IncRKey(w.RKey())
	}
	return wr
}

// BindMW posts a bind (ibv_bind_mw, and for type 2 windows ibv_post_send of
// IBV_WR_BIND_MW) and returns the R_Key that the window gets. A SEND on the same
// queue pair may tell it to a peer at once; by any other way the completion has
// to be waited for. What is wrong with a bind is the Status of its completion,
// [cq.MWBindErr], and ends the queue pair; errors are those of [QP.PostSend], and
// EINVAL without a window.
//
// A type 1 window may be bound again at any time, which ends the key before,
// and serves every queue pair of its domain. A type 2 window serves the queue
// pair it is bound on, and is bound again after a [LocalInv], or a SendInv of
// the peer, or a reset of the queue pair.
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

// IncRKey returns a key with its low byte counted up (ibv_inc_rkey).
func IncRKey(k RKey) RKey { return mr.IncRKey(k) }
