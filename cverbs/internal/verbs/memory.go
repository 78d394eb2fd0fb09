package verbs

import (
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// domain is a protection domain.
type domain struct {
	base
	pd  *roce.PD
	ahs atomic.Int32 // number of address handles: package roce does not count them
}

// AllocPD is ibv_alloc_pd.
func AllocPD(ctx abi.Handle) (abi.Handle, error) {
	c, err := find[*Context](ctx)
	if err != nil {
		return 0, err
	}
	return c.adopt(&domain{base: base{ctx: c}, pd: c.roce.AllocPD()})
}

// DeallocPD is ibv_dealloc_pd.
func DeallocPD(pd abi.Handle) error { return destroy[*domain](pd) }

func (d *domain) close() error {
	if d.ahs.Load() > 0 {
		return syscall.EBUSY
	}
	return d.pd.Close()
}

// region is a memory region.
type region struct {
	base
	mr roce.Region

	mu     sync.Mutex // one reregistration at a time
	access roce.Access
}

// Ranges of rights: those that drivers may ignore (IBV_ACCESS_OPTIONAL_RANGE), and those of the verbs (up to
// FLUSH_PERSISTENT).
const (
	optionalAccess = 1<<30 - 1<<20
	knownAccess    = 1<<10 - 1
)

// access returns the rights that a program requests. It ignores optional ones.
func access(a uint32) (roce.Access, error) {
	if a&^(optionalAccess|knownAccess) != 0 {
		return 0, syscall.EINVAL
	}
	return roce.Access(a & (knownAccess | uint32(roce.RelaxedOrdering))), nil
}

// RegMR is ibv_reg_mr_iova2. The errors are rxe's: EINVAL for no memory, addresses that wrap, and the whole
// address space (implicit on-demand paging); EFAULT for unmapped memory, and for read-only memory with write
// rights.
func RegMR(pd abi.Handle, addr, length, iova uint64, rights uint32, info *abi.MRInfo) (abi.Handle, error) {
	d, err := find[*domain](pd)
	if err != nil {
		return 0, err
	}
	acc, err := access(rights)
	if err != nil {
		return 0, err
	}
	if length == 0 && acc&roce.ZeroBased != 0 {
		return d.regNothing(info)
	}
	mem, err := memory(addr, length, acc)
	if err != nil {
		return 0, err
	}
	m, err := d.pd.RegMRForeign(mem, address(iova, acc), acc)
	if err != nil {
		return 0, err
	}
	*info = abi.MRInfo{Addr: addr, Length: length, LKey: uint32(m.LKey()), RKey: uint32(m.RKey())}
	return d.ctx.adopt(&region{base: base{ctx: d.ctx}, mr: m, access: acc})
}

// regNothing makes a region of no bytes, which programs request with device memory. Its key grants no access.
func (d *domain) regNothing(info *abi.MRInfo) (abi.Handle, error) {
	m, err := d.pd.AllocFastReg(roce.FastRegConfig{Pieces: 1})
	if err != nil {
		return 0, err
	}
	*info = abi.MRInfo{LKey: uint32(m.LKey()), RKey: uint32(m.RKey())}
	return d.ctx.adopt(&region{base: base{ctx: d.ctx}, mr: m})
}

// RegNullMR is ibv_alloc_null_mr.
func RegNullMR(pd abi.Handle, info *abi.MRInfo) (abi.Handle, error) {
	d, err := find[*domain](pd)
	if err != nil {
		return 0, err
	}
	m, err := d.pd.AllocNullMR()
	if err != nil {
		return 0, err
	}
	*info = abi.MRInfo{Length: math.MaxUint64, LKey: uint32(m.LKey()), RKey: uint32(m.RKey())}
	return d.ctx.adopt(&region{base: base{ctx: d.ctx}, mr: m})
}

// address returns the first address of a region.
func address(iova uint64, acc roce.Access) uint64 {
	if acc&roce.ZeroBased != 0 {
		return 0
	}
	return iova
}

// memory returns the memory of a program.
func memory(addr, length uint64, acc roce.Access) ([]byte, error) {
	switch {
	case length == 0, length > 1<<63-1, addr+length < addr:
		return nil, syscall.EINVAL
	case acc&(roce.OnDemand|roce.HugeTLB) != 0:
		return nil, syscall.EOPNOTSUPP
	case addr == 0:
		return nil, syscall.EFAULT
	}
	if err := mapped(addr, length, acc&roce.LocalWrite != 0); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(abi.Pointer(addr)), length), nil
}

// reregFlags are the flags of a reregistration (enum ibv_rereg_mr_flags): the same bits as roce.Rereg.
const reregFlags = uint32(roce.ReregTranslation | roce.ReregPD | roce.ReregAccess)

// ReregMR is ibv_rereg_mr.
func ReregMR(mr abi.Handle, how *abi.Rereg, info *abi.MRInfo) error {
	r, err := find[*region](mr)
	if err != nil {
		return err
	}
	m, ok := r.mr.(*roce.MR)
	if !ok || how.Flags == 0 || how.Flags&^reregFlags != 0 {
		return syscall.EINVAL
	}
	c := roce.MRChange{Change: roce.Rereg(how.Flags)}
	r.mu.Lock()
	defer r.mu.Unlock()
	acc := r.access
	if c.Change&roce.ReregAccess != 0 {
		if acc, err = access(how.Access); err != nil {
			return err
		}
		c.Access = acc
	}
	if c.Change&roce.ReregPD != 0 {
		d, err := find[*domain](how.PD)
		if err != nil {
			return err
		}
		c.PD = d.pd
	}
	if c.Change&roce.ReregTranslation != 0 {
		if c.Mem, err = memory(how.Addr, how.Length, acc); err != nil {
			return err
		}
		c.IOVA, c.HasIOVA = address(how.IOVA, acc), true
	}
	if err := m.Reregister(c); err != nil {
		return err
	}
	r.access = acc
	mem := m.Bytes()
	*info = abi.MRInfo{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), Length: uint64(len(mem)), LKey: uint32(m.LKey()), RKey: uint32(m.RKey())}
	return nil
}

// DeregMR is ibv_dereg_mr.
func DeregMR(mr abi.Handle) error { return destroy[*region](mr) }

func (r *region) close() error { return r.mr.Close() }
