package mr

import "github.com/goroce/roce/bth"

// Invalidate ends a key on behalf of a LOCAL_INV or a peer's SEND_WITH_INV on
// queue pair qpn of domain pd: a fast registration or a type 2 window becomes
// free, and no copy through it is under way when Invalidate returns.
//
// Invalidate refuses a region that the program registered (IBTA C10-77, rxe),
// a type 1 window (o10-37.2.26), a region with windows bound to it, and a key
// that opens nothing at the moment.
func (t *Table) Invalidate(pd *PD, qpn bth.QPN, key bth.RKey) Fault {
	g := t.keys.Find(uint32(key) >> 8)
	if g == nil || !opens(g.word.Load(), uint32(key)) {
		return BadKey
	}
	switch { // domain and kind never change
	case g.pd != pd:
		return BadPD
	case g.kind() == window2:
		return t.invalidateWindow(g, t.windows[g], qpn, uint32(key))
	case g.kind() == fastRegion || g.kind() == indirectRegion:
		return t.invalidateRegion(g, uint32(key))
	}
	return NotInvalidable
}

// invalidateWindow frees a type 2 window if it is bound to this queue pair; only the shard of
// that queue pair changes it then.
func (t *Table) invalidateWindow(g *grant, w *MW, qpn bth.QPN, key uint32) Fault {
	if !g.pin(key) {
		return BadKey
	}
	own := g.qpn == qpn
	g.unpin()
	if !own {
		return BadQP
	}
	w.unbind()
	return OK
}

// Revoke is [Table.Invalidate] for the program that owns a region which work requests register.
// It needs no key.
func (m *MR) Revoke() Fault {
	if m.closed || m.mapping == nil {
		return NotInvalidable
	}
	g := m.g
	return m.table.invalidateRegion(g, uint32(g.word.Load()))
}

// invalidateRegion frees a fast registration or an indirect region.
func (t *Table) invalidateRegion(g *grant, key uint32) Fault {
	f := OK
	if g.claim(func(word uint64) bool {
		switch {
		case !opens(word, key):
			f = BadKey
		case word >= oneWindow:
			f = HasWindows
		default:
			f = OK
		}
		return f == OK
	}) {
		l := &g.mr.mapping.current
		l.vacate(len(l.parts))
		g.publish(key, stateFree)
	}
	return f
}
