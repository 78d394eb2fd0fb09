package share

import "sync"

// connTable manages the connection entries of the process on the page of its first
// slot.
type connTable struct {
	mu     sync.Mutex
	closed bool // the board must not be used any more
	used   int
	free   []uint16 // free entries among those used before
}

// Connected implements [Shared]. If the table is full or closed, it records
// nothing.
func (p *Place) Connected(c Conn) Handle {
	t := &p.conns
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return Handle{}
	}
	var i int
	switch k := len(t.free); {
	case k > 0:
		i, t.free = int(t.free[k-1]), t.free[:k-1]
	case t.used < maxConns:
		i = t.used
		t.used++
	default:
		return Handle{}
	}
	e := &p.board.pages[p.slots[0]].conns[i]
	e.localID, e.remoteID, e.remoteQPN, e.local, e.remote = c.LocalID, c.RemoteID, c.RemoteQPN, c.Local, c.Remote
	e.used.Store(1)
	used := &p.board.pages[p.slots[0]].usedConns
	used.Store(max(used.Load(), uint32(t.used)))
	return Handle{uint32(i) + 1}
}

// Disconnected implements [Shared].
func (p *Place) Disconnected(h *Handle) {
	if h.entry == 0 {
		return
	}
	t := &p.conns
	t.mu.Lock()
	defer t.mu.Unlock()
	i := h.entry - 1
	if h.entry = 0; t.closed {
		return
	}
	e := &p.board.pages[p.slots[0]].conns[i]
	e.used.Store(0)
	t.free = append(t.free, uint16(i))
}

// close removes all connections, because the process has ended them itself.
func (t *connTable) close(p *Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for i := range t.used {
		p.board.pages[p.slots[0]].conns[i].used.Store(0)
	}
}
