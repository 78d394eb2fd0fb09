package mr

import "github.com/goroce/roce/bth"

// Flush executes a FLUSH of the peer for the n bytes at off, which were
// written before (IBTA annex A19): it makes them globally visible and, if
// persistent is set, makes them survive a loss of power. ok is false if that
// failed.
func (v Memory) Flush(off, n uint64, persistent bool) (ok bool, f Fault) {
	if v.g != nil {
		if !v.g.pinned(v.gen) {
			return false, BadKey
		}
		v.g.unpin() // writing to persistent memory may take long; no writer of the grant waits for it
	}
	m := v.m
	if persistent && (m.persist == nil || m.persist(m.buf[off:off+n]) != nil) {
		return false, OK
	}
	// The addition is the barrier: a reader that sees it sees all that was written before.
	m.flushes.Add(1)
	return true, OK
}

// Flushes returns how many FLUSHes of peers the region has executed. It may be called
// from any goroutine. A goroutine that sees a FLUSH counted sees, without a race,
// everything that the queue pair wrote before it.
func (m *MR) Flushes() uint64 { return m.flushes.Load() }

// RemoteRegion finds all memory that a peer's key opens: n bytes from offset
// off, which is an offset for the methods of v. See [Table.Remote].
func (t *Table) RemoteRegion(pd *PD, qpn bth.QPN, key bth.RKey, need Access) (v Memory, off, n uint64, f Fault) {
	g := t.keys.Find(uint32(key) >> 8)
	if g == nil || !g.pin(uint32(key)) {
		return Memory{}, 0, 0, BadKey
	}
	iova, n := g.iova, g.length
	g.unpin()
	var r Trail
	v, off, f = t.find(&r, pd, qpn, uint32(key), iova, n, need)
	return v, off, n, f
}
