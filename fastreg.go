package roce

import (
	"context"
	"sync"
	"syscall"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// FastMR is a memory region that work requests register and invalidate
// repeatedly, each time with other memory. Storage protocols need this for
// every command (struct ib_mr of ib_alloc_mr). Map assigns memory, the work
// request of RegWR registers the memory, and the work request of InvWR, or a
// SendInv of the peer, invalidates the key.
//
// Its memory is that of the mapped slices. Its methods may be called from any
// goroutine. Addr, Len and SGE return the values that were mapped or posted last.
type FastMR struct {
	postedRegion
	pool *FastRegPool // the pool that made the region; nil: none
	out  bool         // a caller has taken it from the pool; guarded by the pool
}

// FastRegConfig configures a fast registration.
type FastRegConfig struct {
	// Pieces is the maximum number of pieces of memory (max_num_sg), up to
	// [mr.MaxPieces].
	Pieces int

	// PageSize makes Map as strict as adapters with page tables
	// (IB_MR_TYPE_MEM_REG): the boundaries between pieces must be multiples
	// of PageSize, and Pieces counts pages. 0: pieces may have any address
	// and size (IB_MR_TYPE_SG_GAPS).
	PageSize int
}

// AllocFastReg creates a region for fast registration (ib_alloc_mr). Its key
// is not valid until a work request registers it.
func (p *PD) AllocFastReg(c FastRegConfig) (*FastMR, error) {
	return inDomain(p, func() (*FastMR, error) { return p.allocFastReg(c) })
}

// allocFastReg is AllocFastReg for [inDomain].
func (p *PD) allocFastReg(c FastRegConfig) (*FastMR, error) {
	m, err := p.dev.mem.AllocFast(p.pd, mr.FastOptions{MaxPieces: c.Pieces, PageSize: c.PageSize})
	if err != nil {
		return nil, err
	}
	return &FastMR{postedRegion: postedRegion{region{dev: p.dev, mr: m}}}, nil
}

func (m *FastMR) base() *region {
	if m == nil {
		return nil
	}
	return &m.region
}

// Map assigns memory to the region for the next registration: the pieces in
// sequence, at the address of the first byte (ib_map_mr_sg). It does not
// change a current registration. A registration without a new Map has the
// same memory as the last. Map accepts all pieces or none (EINVAL), and takes
// no lock.
func (m *FastMR) Map(pieces ...[]byte) error { return m.mr.Map(pieces, mr.Options{}) }

// MapIova is Map at an address that the caller chooses.
func (m *FastMR) MapIova(iova uint64, pieces ...[]byte) error {
	return m.mr.Map(pieces, mr.Options{IOVA: iova, HasIOVA: true})
}

// Close frees the region (ibv_dereg_mr), registered or not. It fails with
// EBUSY for a region of a pool: use [FastRegPool.Put].
func (m *FastMR) Close() error {
	if m.pool != nil {
		return fail("deregister", syscall.EBUSY, "the region is of a pool; put it back")
	}
	return m.region.Close()
}

// postedRegion is the common part of [FastMR] and [IndirectMR]: work requests register and
// invalidate it.
type postedRegion struct{ region }

// RegWR returns the work request that registers the mapped memory (IB_WR_REG_MR,
// IBV_EXP_WR_UMR_FILL) with the next key: [IncRKey] of the last. RKey of the work request has the
// key, which becomes the key of the region once the work request is posted. A SEND that is posted
// after it may send the key to the peer.
func (m *postedRegion) RegWR(access Access) SendWR {
	return SendWR{Opcode: qp.RegMR, MR: m.mr, RKey: IncRKey(m.RKey()), Access: access}
}

// InvWR returns the work request that invalidates the key of the last registration
// (IBV_WR_LOCAL_INV, IBV_EXP_WR_UMR_INVALIDATE). When it completes, all work requests before it
// are complete, and no peer can access the memory any more.
func (m *postedRegion) InvWR() SendWR { return SendWR{Opcode: qp.LocalInv, InvKey: m.RKey()} }

// Valid reports whether the region is registered now.
func (m *postedRegion) Valid() bool {
	s := m.dev.nic.Shard(0) // one shard is enough: while it is locked, no key changes
	s.Lock()
	defer s.Unlock()
	return m.mr.Valid()
}

// Invalidate invalidates the key at once, without a queue pair, for instance because the queue
// pair failed. When it returns, no peer can access the memory through the region. It fails with
// EINVAL if the region is not registered, and with EBUSY while windows are bound to it.
func (m *postedRegion) Invalidate() error {
	s := m.dev.nic.Shard(0) // as above
	s.Lock()
	defer s.Unlock()
	if m.closed {
		return ErrClosed
	}
	switch f := m.mr.Revoke(); f {
	case mr.OK:
		return nil
	case mr.HasWindows:
		return errs.On("invalidate", m.LKey().Object(), syscall.EBUSY, "windows are bound to it; invalidate or close them first")
	default:
		return errs.On("invalidate", m.LKey().Object(), syscall.EINVAL, "not registered at the moment")
	}
}

// FastRegPool holds fast registrations for reuse. A caller takes one while it needs
// memory registered, as Linux' storage and file system clients do. Creating a region is
// expensive, registering one is not.
//
//	m, _ := pool.Get()
//	m.Map(pieces...)
//	qp.PostSends([]SendWR{m.RegWR(access), command}) // … use, invalidate …
//	pool.Put(m)
//
// Every registration of a region has a new key. The methods may be called
// from any goroutine.
type FastRegPool struct {
	pd    *PD
	regs  []*FastMR
	free  chan *FastMR
	done  chan struct{} // closed with the pool
	mu    sync.Mutex
	close bool // guarded by mu
}

// ErrPoolEmpty is the error if all registrations of a pool are in use. It
// unwraps to EAGAIN, which ib_fmr_pool_map_phys returns.
var ErrPoolEmpty error = fail("get registration", syscall.EAGAIN, "all of the pool are out; put some back or make it larger")

// NewFastRegPool makes a pool of n registrations. If it fails, it frees all of
// them.
func (p *PD) NewFastRegPool(n int, c FastRegConfig) (*FastRegPool, error) {
	if n <= 0 || n > mr.MaxRegions {
		return nil, fail("create pool", syscall.EINVAL, "%d registrations, want 1 to %d", n, mr.MaxRegions)
	}
	return inDomain(p, func() (*FastRegPool, error) {
		f := &FastRegPool{pd: p, free: make(chan *FastMR, n), done: make(chan struct{})}
		for range n {
			m, err := p.allocFastReg(c)
			if err != nil {
				for _, m := range f.regs {
					m.mr.Deregister()
				}
				return nil, err
			}
			m.pool = f
			f.regs = append(f.regs, m)
			f.free <- m
		}
		return f, nil
	})
}

// Get takes a registration out of the pool. It fails with [ErrPoolEmpty] if
// there is none, and with [ErrClosed] once the pool is closed.
func (f *FastRegPool) Get() (*FastMR, error) {
	select {
	case m := <-f.free:
		return f.lend(m)
	default:
	}
	if f.closed() {
		return nil, ErrClosed
	}
	return nil, ErrPoolEmpty
}

// Wait is Get, but if the pool is empty it waits until a registration is put back.
func (f *FastRegPool) Wait(ctx context.Context) (*FastMR, error) {
	select {
	case m := <-f.free:
		return f.lend(m)
	case <-f.done:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *FastRegPool) lend(m *FastMR) (*FastMR, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.close || f.pd.dev.nic.Closing() {
		f.free <- m
		return nil, ErrClosed
	}
	m.out = true
	return m, nil
}

func (f *FastRegPool) closed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.close
}

// Put returns a registration to the pool. The caller should have invalidated
// it. If not, because the queue pair failed before, Put invalidates its key,
// for which it stops the device for a moment. It fails with EINVAL for a
// registration that was not taken from this pool, and with EBUSY while windows
// are bound to it or it is part of an indirect region: the registration then
// stays out of the pool.
func (f *FastRegPool) Put(m *FastMR) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m == nil || m.pool != f || !m.out {
		return fail("put registration", syscall.EINVAL, "it was not taken from this pool")
	}
	if err := m.reset(); err != nil {
		return err
	}
	m.out = false
	f.free <- m
	return nil
}

// reset makes a region free in any state.
func (m *FastMR) reset() error {
	if !m.Valid() {
		return nil
	}
	m.dev.nic.Lock()
	defer m.dev.nic.Unlock()
	return m.mr.Reset()
}

// Len returns how many registrations are in the pool.
func (f *FastRegPool) Len() int { return len(f.free) }

// Cap returns the number of all registrations of the pool.
func (f *FastRegPool) Cap() int { return cap(f.free) }

// Close frees the pool and its registrations. It fails with EBUSY while a registration
// is in use, is part of an indirect region, or has windows bound to it: then it frees
// none.
func (f *FastRegPool) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.close {
		return ErrClosed
	}
	if n := cap(f.free) - len(f.free); n > 0 {
		return fail("close pool", syscall.EBUSY, "%d registrations are in use; put them back first", n)
	}
	f.pd.dev.nic.Lock()
	defer f.pd.dev.nic.Unlock()
	for _, m := range f.regs { // all, or none if one cannot be freed
		if err := m.mr.Idle("close pool"); err != nil {
			return err
		}
	}
	for _, m := range f.regs {
		m.mr.Deregister()
		m.closed = true
	}
	f.close = true
	close(f.done)
	return nil
}
