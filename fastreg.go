package roce

import (
	"context"
	"sync"
	"syscall"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// FastMR is a memory region that work requests register and invalidate, again
// and again with other memory: what a storage protocol needs for every command
// (struct ib_mr of ib_alloc_mr). Map gives it memory, a work request of RegWR
// registers that, and one of InvWR, or a SendInv of the peer, ends its key.
//
// Its memory is that of the slices that were mapped. Its methods may be called from any
// goroutine. What Addr, Len and SGE say is what was mapped or posted last.
type FastMR struct {
	postedRegion
	pool *FastRegPool // that made it
	out  bool         // of the pool; guarded by it
}

// FastRegConfig says what a fast registration can hold.
type FastRegConfig struct {
	// Pieces is how many pieces of memory it may be made of (max_num_sg), up to
	// [mr.MaxPieces].
	Pieces int

	// PageSize makes Map as strict as adapters with page tables are
	// (IB_MR_TYPE_MEM_REG): pieces meet at multiples of it, and Pieces counts
	// pages. 0: pieces of any place and size (IB_MR_TYPE_SG_GAPS).
	PageSize int
}

// AllocFastReg creates a region for fast registration (ib_alloc_mr). Its key
// opens nothing until it is registered.
func (p *PD) AllocFastReg(c FastRegConfig) (*FastMR, error) {
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	return p.allocFastReg(c)
}

// allocFastReg is AllocFastReg with the device locked.
func (p *PD) allocFastReg(c FastRegConfig) (*FastMR, error) {
	if p.closed || p.dev.nic.Closed() {
		return nil, ErrClosed
	}
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

// Map gives the region memory: the pieces, one behind the other, known by the
// address of the first byte (ib_map_mr_sg). It counts from the next
// registration on. What is registered now does not change; a registration
// without a Map before it is of the same memory again. Map takes all or
// nothing (EINVAL) and locks nothing.
func (m *FastMR) Map(pieces ...[]byte) error { return m.mr.Map(pieces, mr.Options{}) }

// MapIova is Map under an address of the caller's choice.
func (m *FastMR) MapIova(iova uint64, pieces ...[]byte) error {
	return m.mr.Map(pieces, mr.Options{IOVA: iova, HasIOVA: true})
}

// Close frees the region (ibv_dereg_mr), registered or not. One that is of a
// pool goes back there instead: EBUSY.
func (m *FastMR) Close() error {
	if m.pool != nil {
		return fail("deregister", syscall.EBUSY, "the region is of a pool; put it back")
	}
	return m.region.Close()
}

// postedRegion is what [FastMR] and [IndirectMR] have in common: work requests register and
// invalidate it.
type postedRegion struct{ region }

// RegWR returns the work request that registers what was mapped (IB_WR_REG_MR,
// IBV_EXP_WR_UMR_FILL), under the next key: [IncRKey] of the last. The key is in its RKey, and is
// that of the region once it is posted: a SEND posted behind it may tell it to the peer.
func (m *postedRegion) RegWR(access Access) SendWR {
	return SendWR{Opcode: qp.RegMR, MR: m.mr, RKey: IncRKey(m.RKey()), Access: access}
}

// InvWR returns the work request that ends the key of the last registration (IBV_WR_LOCAL_INV,
// IBV_EXP_WR_UMR_INVALIDATE). When it completes, all work requests before it are complete and no
// peer can touch the memory any more.
func (m *postedRegion) InvWR() SendWR { return SendWR{Opcode: qp.LocalInv, InvKey: m.RKey()} }

// Valid reports whether the region is registered at the moment.
func (m *postedRegion) Valid() bool {
	s := m.dev.nic.Shard(0) // one is enough: no key is made or ended meanwhile
	s.Lock()
	defer s.Unlock()
	return m.mr.Valid()
}

// Invalidate ends the key at once, without a queue pair, for instance because the queue pair
// failed: when it returns no peer can touch the memory through the region. It fails with EINVAL
// if the region is not registered, and with EBUSY while windows are bound to it.
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

// FastRegPool holds fast registrations that are made once. A caller takes one while it
// needs memory registered, as Linux' storage and file system clients do: making a region
// is expensive, registering one is not.
//
//	m, _ := pool.Get()
//	m.Map(pieces...)
//	qp.PostSends([]SendWR{m.RegWR(access), command}) // … use, invalidate …
//	pool.Put(m)
//
// Every registration of a region has another key than the one before. The
// methods may be called from any goroutine.
type FastRegPool struct {
	pd    *PD
	regs  []*FastMR
	free  chan *FastMR
	done  chan struct{} // closed with the pool
	mu    sync.Mutex
	close bool // guarded by mu
}

// ErrPoolEmpty says that all registrations of a pool are out. It unwraps to
// EAGAIN, as ib_fmr_pool_map_phys has it.
var ErrPoolEmpty error = fail("get registration", syscall.EAGAIN, "all of the pool are out; put some back or make it larger")

// NewFastRegPool makes n registrations and a pool of them. On failure there is
// nothing left.
func (p *PD) NewFastRegPool(n int, c FastRegConfig) (*FastRegPool, error) {
	if n <= 0 || n > mr.MaxRegions {
		return nil, fail("create pool", syscall.EINVAL, "%d registrations, want 1 to %d", n, mr.MaxRegions)
	}
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	f := &FastRegPool{pd: p, free: make(chan *FastMR, n), done: make(chan struct{})}
	for range n {
		m, err := p.allocFastReg(c)
		if err != nil {
			for _, m := range f.regs {
				m.closeLocked()
			}
			return nil, err
		}
		m.pool = f
		f.regs = append(f.regs, m)
		f.free <- m
	}
	return f, nil
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

// Wait is Get that waits for one to be put back.
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

// Put gives a registration back. It should be invalidated; if it is not,
// because the queue pair failed before that could be done, Put ends its key at
// the price of stopping the device for a moment. It fails with EINVAL for one
// that is not out of this pool, and with EBUSY while windows are bound to it or
// it is part of an indirect region: it then stays out.
func (f *FastRegPool) Put(m *FastMR) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m == nil || m.pool != f || !m.out {
		return fail("put registration", syscall.EINVAL, "it is not out of this pool")
	}
	if err := m.reset(); err != nil {
		return err
	}
	m.out = false
	f.free <- m
	return nil
}

// reset makes a region free, whatever it is.
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

// Cap returns how many there are, out or not.
func (f *FastRegPool) Cap() int { return cap(f.free) }

// Close ends the pool and its registrations. It fails with EBUSY while some are
// out, or part of an indirect region, or windows are bound to them: then it closes none.
func (f *FastRegPool) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.close {
		return ErrClosed
	}
	if n := cap(f.free) - len(f.free); n > 0 {
		return fail("close pool", syscall.EBUSY, "%d registrations are out; put them back first", n)
	}
	f.pd.dev.nic.Lock()
	defer f.pd.dev.nic.Unlock()
	for _, m := range f.regs { // all, or none if one cannot be
		if err := m.mr.Idle("close pool"); err != nil {
			return err
		}
	}
	for _, m := range f.regs {
		m.closeLocked()
	}
	f.close = true
	close(f.done)
	return nil
}
