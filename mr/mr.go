package mr

import (
	"math"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// PD is a protection domain (struct ibv_pd): regions and queue pairs work
// together only within one.
type PD struct {
	users   int
	dead    bool
	leaving bool // dead when it has no users
}

// NewPD returns a protection domain (ibv_alloc_pd).
func NewPD() *PD { return new(PD) }

// Retain counts one more user; a domain with users cannot be deallocated.
// Regions call Retain themselves. It fails with EINVAL if the domain is
// deallocated.
func (p *PD) Retain() error {
	if p == nil || p.dead {
		return errs.New("use domain", syscall.EINVAL, "no protection domain, or deallocated")
	}
	p.users++
	return nil
}

// Release undoes one Retain.
func (p *PD) Release() {
	p.users--
	p.dead = p.dead || p.leaving && p.users == 0
}

// DeallocUnused ends the domain as soon as it has no users: now, or with the last
// Release.
func (p *PD) DeallocUnused() {
	p.leaving = true
	p.dead = p.dead || p.users == 0
}

// Dealloc ends the domain (ibv_dealloc_pd). It fails with EBUSY while regions
// or queue pairs are in it, and with EINVAL the second time.
func (p *PD) Dealloc() error {
	switch {
	case p.dead:
		return errs.On("deallocate domain", "pd", syscall.EINVAL, "deallocated already")
	case p.users > 0:
		return errs.On("deallocate domain", "pd", syscall.EBUSY, "%d objects are in it; close them first", p.users)
	}
	p.dead = true
	return nil
}

// SGE is a scatter/gather element (struct ibv_sge): a piece of a region.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   bth.LKey
}

// MR is a memory region (struct ibv_mr).
type MR struct {
	table  *Table
	pd     *PD
	g      *grant
	closed bool

	// The values that the methods return, at any time. A lookup reads the
	// grant instead.
	key    atomic.Uint32
	access atomic.Uint32
	iova   atomic.Uint64
	length atomic.Int64

	buf     []byte       // memory of a user's region
	watched bool         // the program may read it at any time
	foreign bool         // it is not of Go's heap
	inPlace bool         // Options.InPlace
	mapping *mapping     // of one that is registered by work requests
	null    bool         // it has no memory
	special bool         // watched, foreign or null: a plain copy is not allowed
	users   atomic.Int32 // parts of VALID indirect regions that are in this region

	persist func([]byte) error // Options.Persist
	flushes atomic.Uint64      // FLUSHes seen
}

// refuse returns the error of an operation on the region that was refused.
func (m *MR) refuse(op string, errno syscall.Errno, format string, args ...any) error {
	return errs.On(op, m.LKey().Object(), errno, format, args...)
}

// LKey is the key for SGEs of work requests of the own side.
func (m *MR) LKey() bth.LKey { return bth.LKey(m.key.Load()) }

// RKey is the key to hand to a peer. It is numerically the L_Key, as on rxe;
// it opens nothing to a peer unless the region grants a remote right.
func (m *MR) RKey() bth.RKey { return bth.RKey(m.key.Load()) }

// Addr is the first address of the region in SGEs and for peers. For a region that work
// requests register, Addr, Length and SGE have the values of the last Map or registration.
func (m *MR) Addr() uint64 { return m.iova.Load() }

// Length is the size of the region in bytes.
func (m *MR) Length() int { return int(m.length.Load()) }

// PD is the protection domain of the region.
func (m *MR) PD() *PD { return m.pd }

// Access are the rights of the region.
func (m *MR) Access() Access { return Access(m.access.Load()) }

// SGE returns an element for n bytes of the region from offset off. It does not check
// them: a work request with an element outside of the region, or with n below 0 or of 4
// GiB and more, completes with LOC_PROT_ERR.
func (m *MR) SGE(off, n int) SGE {
	iova := m.iova.Load()
	if n < 0 || uint64(n) > math.MaxUint32 {
		return SGE{Addr: iova - 1, Length: math.MaxUint32, LKey: m.LKey()} // below the region
	}
	return SGE{Addr: iova + uint64(off), Length: uint32(n), LKey: m.LKey()}
}
