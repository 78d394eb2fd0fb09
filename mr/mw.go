package mr

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// MWType is the type of a memory window, with the values of enum ibv_mw_type.
type MWType uint8

const (
	// MWType1: ibv_bind_mw binds the window, any number of times, and unbinds
	// it with length 0. Every queue pair of its domain may use it.
	MWType1 MWType = 1

	// MWType2 (2B of the standard): a work request binds the window while it
	// is free, and a work request of either end invalidates it. Only the
	// queue pair that it was bound on may use it.
	MWType2 MWType = 2
)

var mwNames = [...]string{MWType1: "type 1", MWType2: "type 2B"}

func (t MWType) String() string {
	if int(t) < len(mwNames) && mwNames[t] != "" {
		return mwNames[t]
	}
	return fmt.Sprintf("MWType(%d)", uint8(t))
}

// MW is a memory window (struct ibv_mw): a separate key to a part of a
// region, for peers only. The program can grant and revoke it without a
// registration.
type MW struct {
	table *Table
	pd    *PD
	g     *grant
	key   atomic.Uint32 // the key the last posted bind gives it

	// These change only while the grant is claimed, or while nobody else uses the table:
	region     *MR      // bound to; nil: unbound
	list       *Windows // type 2: those of its queue pair
	prev, next *MW
	closed     bool
}

// Windows are the type 2 windows bound to one queue pair. The zero value has none.
type Windows struct{ first *MW }

// Binding has the parameters of a bind (struct ibv_mw_bind_info).
type Binding struct {
	Key    bth.RKey // the new key of the window: only the low byte may differ from the old one
	MR     *MR      // nil with length 0
	LKey   bth.LKey // of the region, as of posting
	Addr   uint64   // first address, as an address of the region
	Length uint64
	Access Access // RemoteWrite, RemoteRead, RemoteAtomic, FlushGlobal, FlushPersistent; ZeroBased: peers count from 0
}

// AllocMW makes an unbound window (ibv_alloc_mw). The errors are *[errs.Error] and
// wrap EINVAL for an unknown type or no domain, and ENOMEM when there are
// [MaxWindows].
func (t *Table) AllocMW(pd *PD, typ MWType) (*MW, error) {
	const op = "allocate window"
	k, ok := map[MWType]kind{MWType1: window1, MWType2: window2}[typ]
	switch {
	case pd == nil || pd.dead:
		return nil, errs.New(op, syscall.EINVAL, "no protection domain")
	case !ok:
		return nil, errs.New(op, syscall.EINVAL, "%v is neither 1 nor 2", typ)
	case len(t.windows) >= t.maxWindows:
		return nil, errs.New(op, syscall.ENOMEM, "there are %d windows, the limit; deallocate some first", len(t.windows))
	}
	g := t.newGrant(pd, k)
	if g == nil {
		return nil, errs.New(op, syscall.ENOMEM, "no memory key is free")
	}
	w := &MW{table: t, pd: pd, g: g}
	w.key.Store(g.key())
	t.windows[g] = w
	pd.users++
	return w, nil
}

// RKey is the key for the peer: that of the last posted bind, even before it
// is executed (as with ibv_bind_mw).
func (w *MW) RKey() bth.RKey { return bth.RKey(w.key.Load()) }

// Object names the window in errors: "mw 0x100".
func (w *MW) Object() string { return "mw " + w.RKey().String() }

// Posted notes the key of a posted bind.
func (w *MW) Posted(key bth.RKey) { w.key.Store(uint32(key)) }

// PD is the protection domain of the window.
func (w *MW) PD() *PD { return w.pd }

// Type is the type of the window.
func (w *MW) Type() MWType {
	if w.g.kind() == window1 {
		return MWType1
	}
	return MWType2
}

// Dealloc unbinds the window and ends it (ibv_dealloc_mw). It fails with
// EINVAL the second time.
func (w *MW) Dealloc() error {
	if w.closed {
		return errs.On("deallocate window", w.Object(), syscall.EINVAL, "deallocated already")
	}
	w.unbind()
	delete(w.table.windows, w.g)
	w.table.end(w.g)
	w.pd.users--
	w.closed = true
	return nil
}

// Bind executes a bind that was posted on queue pair qpn of domain pd, whose
// type 2 windows are list. When it is refused the window stays as it was.
//
// The rules are those of IBTA vol. 1, 10.6.7.2: window, region and queue pair
// are of one domain (C10-72); the region allows binding (C10-73), and to
// write through a window needs LocalWrite on the region (C10-74); the range
// lies inside the region (C10-75). A type 1 window can be bound at any time
// and is unbound by length 0; it is never zero-based, nor bound to a region
// that is (o10-36.2.2). A type 2 window must be free (o10-37.2.30), its length
// is not 0 (o10-37.2.40), and it opens only to the peer of this queue pair.
func (t *Table) Bind(pd *PD, qpn bth.QPN, list *Windows, w *MW, b *Binding) Fault {
	switch {
	case w.closed || w.table != t:
		return BadKey
	case w.pd != pd:
		return BadPD
	case !sameName(uint32(b.Key), w.g.name):
		return BadKey
	case b.Access&^windowAcc != 0, w.g.kind() == window1 && b.Access&ZeroBased != 0:
		return BadAccess
	case w.g.kind() == window2 && b.Length == 0:
		return BadRange
	}
	var base uint64
	if b.Length != 0 {
		var f Fault
		if base, f = t.lend(pd, w.g.kind(), b); f != OK {
			return f
		}
	}
	g := w.g
	bindable := func(word uint64) bool { return w.g.kind() == window1 || word&stateMask == stateFree }
	if !g.claim(bindable) {
		b.MR.g.dropWindow()
		return BadState
	}
	w.releaseRegion()
	if b.Length == 0 {
		g.publish(uint32(b.Key), stateFree)
		return OK
	}
	w.region = b.MR
	g.mr, g.base, g.length, g.access = b.MR, base, b.Length, b.Access&^LocalWrite
	g.iova, g.qpn = b.Addr, 0
	if b.Access&ZeroBased != 0 {
		g.iova = 0
	}
	if w.g.kind() == window2 {
		g.qpn = qpn
		list.add(w)
	}
	g.gen++
	g.publish(uint32(b.Key), stateValid)
	return OK
}

// lend checks that a window may be bound to a region, counts the window there
// and returns its offset in the region.
func (t *Table) lend(pd *PD, k kind, b *Binding) (base uint64, f Fault) {
	m := b.MR
	if m == nil || m.closed || m.table != t {
		return 0, BadKey
	}
	g := m.g
	if !g.pin(uint32(b.LKey)) {
		return 0, BadKey
	}
	defer g.unpin()
	base, f = g.check(pd, 0, b.Addr, b.Length, MWBind)
	switch {
	case f != OK:
		return 0, f
	case g.access&LocalWrite == 0 && b.Access&(RemoteWrite|RemoteAtomic) != 0:
		return 0, BadAccess
	case m.persist == nil && b.Access&FlushPersistent != 0:
		return 0, BadAccess
	case k == window1 && g.access&ZeroBased != 0:
		return 0, BadAccess
	case !g.addWindow(uint32(b.LKey)):
		return 0, BadKey // the key of the region is being invalidated
	}
	return base, OK
}

// releaseRegion ends the binding of the window to its region. The caller has
// claimed the grant.
func (w *MW) releaseRegion() {
	if w.region == nil {
		return
	}
	w.region.g.dropWindow()
	w.region = nil
	if w.list != nil {
		w.list.remove(w)
	}
	g := w.g
	g.mr, g.iova, g.length, g.base, g.access, g.qpn = nil, 0, 0, 0, 0, 0
}

// unbind makes a bound window free again. Its key keeps its value.
func (w *MW) unbind() {
	g := w.g
	if g.claim(func(word uint64) bool { return word&stateMask == stateValid }) {
		w.releaseRegion()
		g.publish(uint32(g.word.Load()), stateFree)
	}
}

// UnbindAll frees the type 2 windows of a queue pair that is reset or
// destroyed: the windows accept its number, which another queue pair may get
// next.
func (t *Table) UnbindAll(l *Windows) {
	for l.first != nil {
		l.first.unbind()
	}
}

func (l *Windows) add(w *MW) {
	w.list, w.prev, w.next = l, nil, l.first
	if l.first != nil {
		l.first.prev = w
	}
	l.first = w
}

func (l *Windows) remove(w *MW) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.list, w.prev, w.next = nil, nil, nil
}
