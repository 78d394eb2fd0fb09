package roce

import (
	"context"
	"sync"
	"syscall"

	"github.com/goroce/roce/mr"
)

// FastRegPool is a number of fast registrations that are made once and lent to
// whoever has memory to register: the pattern of Linux' storage and file system
// clients, because making a region is expensive and registering one is not.
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
var ErrPoolEmpty error = &Error{"get registration", "all of the pool are out; put some back or make it larger", syscall.EAGAIN}

// NewFastRegPool makes n registrations and a pool of them. On failure there is
// nothing left.
func (p *PD) NewFastRegPool(n int, c FastRegConfig) (*FastRegPool, error) {
	if n <= 0 || n > mr.MaxRegions {
		return nil, fail("create pool", syscall.EINVAL, "%d registrations, want 1 to %d", n, mr.MaxRegions)
	}
	p.dev.lockAll()
	defer p.dev.unlockAll()
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
	if f.close || f.pd.dev.closing.Load() {
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
	m.dev.lockAll()
	defer m.dev.unlockAll()
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
	f.pd.dev.lockAll()
	defer f.pd.dev.unlockAll()
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
