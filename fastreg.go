package roce

import (
	"syscall"

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
	region
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
	p.dev.lockAll()
	defer p.dev.unlockAll()
	return p.allocFastReg(c)
}

// allocFastReg is AllocFastReg with the device locked.
func (p *PD) allocFastReg(c FastRegConfig) (*FastMR, error) {
	if p.closed || p.dev.closed {
		return nil, ErrClosed
	}
	m, err := p.dev.mem.AllocFast(p.pd, mr.FastOptions{MaxPieces: c.Pieces, PageSize: c.PageSize})
	if err != nil {
		return nil, err
	}
	return &FastMR{region: region{dev: p.dev, mr: m}}, nil
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

// RegWR returns the work request that registers what was mapped, under the next
// key: [IncRKey] of the last. The key is in its RKey, and is that of the region
// once it is posted: a SEND posted behind it may tell it to the peer.
func (m *FastMR) RegWR(access Access) SendWR { return m.regWR(access) }

// InvWR returns the work request that ends the key of the last registration.
// When it completes, all work requests before it are complete and no peer
// touches the memory any more.
func (m *FastMR) InvWR() SendWR { return m.invWR() }

// Close frees the region (ibv_dereg_mr), registered or not. One that is of a
// pool goes back there instead: EBUSY.
func (m *FastMR) Close() error {
	if m.pool != nil {
		return fail("deregister", syscall.EBUSY, "the region is of a pool; put it back")
	}
	return m.region.Close()
}

// Valid reports whether the region is registered at the moment.
func (m *FastMR) Valid() bool { return m.valid() }

// Invalidate ends the key at once, without a queue pair, for instance because
// that failed before a work request of InvWR could do so: nobody touches the
// memory through the region when it returns. It fails with EINVAL if it is not
// registered, and with EBUSY while windows are bound to it.
func (m *FastMR) Invalidate() error { return m.revoke() }

// regWR, invWR, valid and revoke are what fast registrations and indirect regions have
// in common.
func (m *region) regWR(access Access) SendWR {
	return SendWR{Opcode: qp.RegMR, MR: m.mr, RKey: IncRKey(m.RKey()), Access: access}
}

func (m *region) invWR() SendWR { return SendWR{Opcode: qp.LocalInv, InvKey: m.RKey()} }

func (m *region) valid() bool {
	s := m.dev.shards[0] // one is enough: no key is made or ended meanwhile
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.mr.Valid()
}

func (m *region) revoke() error {
	s := m.dev.shards[0] // as above
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	switch f := m.mr.Revoke(); f {
	case mr.OK:
		return nil
	case mr.HasWindows:
		return fail("invalidate", syscall.EBUSY, "region %v: windows are bound to it; invalidate or close them first", m.RKey())
	default:
		return fail("invalidate", syscall.EINVAL, "region %v is not registered at the moment", m.RKey())
	}
}
