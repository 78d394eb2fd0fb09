package mr

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/goroce/roce/errs"
)

// Options are the rarer choices of Register.
type Options struct {
	// IOVA is the address by which the region is known, to SGEs and to peers
	// (ibv_reg_mr_iova). It counts if HasIOVA is set; otherwise the region is
	// known by the address of its memory.
	IOVA    uint64
	HasIOVA bool

	// Persist makes b, a part of the memory, survive a loss of power: by msync
	// of a mapped file or by write-back of the cache lines. [FlushPersistent]
	// needs it. It runs while a FLUSH is executed, on the engine's goroutine and
	// under its owner's lock: it must not call back, and while it blocks the
	// engine does nothing else. If it fails the FLUSH fails, too, with a NAK
	// (remote operational error).
	Persist func(b []byte) error

	// Foreign says that the memory is outside of Go's heap: the program may unmap it while it is
	// registered, and accesses then fail with [Unmapped]; the engine stores the last word of a
	// write last. Such memory cannot be Watched.
	Foreign bool

	// InPlace says that the memory belongs to a link that can send from it
	// without a copy: see [Memory.InPlace].
	InPlace bool
}

// Register makes buf accessible to the engine (ibv_reg_mr, ibv_reg_mr_iova).
// Local reads are always allowed; acc has the other rights. The errors are
// *[errs.Error] and wrap what ibv_reg_mr returns:
//
//   - EINVAL: no memory, an address range that wraps, unknown rights,
//     RemoteWrite or RemoteAtomic without LocalWrite, FlushPersistent for
//     memory that is not persistent (without opt.Persist), Watched for memory
//     that is not made of aligned words of 8 bytes;
//   - EOPNOTSUPP: OnDemand, HugeTLB;
//   - ENOMEM: [MaxRegions] are registered.
func (t *Table) Register(pd *PD, buf []byte, acc Access, opt Options) (*MR, error) {
	if err := checkRegister("register", pd, buf, acc, opt); err != nil {
		return nil, err
	}
	m, err := t.newRegion("register", pd, userRegion)
	if err != nil {
		return nil, err
	}
	m.use(buf, acc, opt)
	m.g.publish(uint32(m.RKey()), stateValid)
	return m, nil
}

// checkRegister validates the arguments of a registration.
func checkRegister(op string, pd *PD, buf []byte, acc Access, opt Options) error {
	iova := address(buf, acc, opt)
	switch errno, detail := checkRights(acc&^Watched, opt.Persist != nil); {
	case pd == nil || pd.dead:
		return errs.New(op, syscall.EINVAL, "no protection domain")
	case errno != 0:
		return errs.New(op, errno, "%s", detail)
	case opt.HasIOVA && acc&ZeroBased != 0 && opt.IOVA != 0:
		return errs.New(op, syscall.EINVAL, "ZERO_BASED and address %#x contradict each other", opt.IOVA)
	case len(buf) == 0:
		return errs.New(op, syscall.EINVAL, "the memory is empty")
	case iova+uint64(len(buf)) < iova:
		return errs.New(op, syscall.EINVAL, "%d bytes from address %#x wrap around", len(buf), iova)
	case acc&Watched != 0 && opt.Foreign:
		return errs.New(op, syscall.EINVAL, "foreign memory cannot be WATCHED")
	case acc&Watched != 0:
		return checkWatched(op, buf)
	}
	return nil
}

// checkRights validates the rights of a region.
func checkRights(acc Access, persistent bool) (errno syscall.Errno, detail string) {
	switch {
	case acc&unsupported != 0:
		return syscall.EOPNOTSUPP, fmt.Sprintf("access %v is not offered", acc&unsupported)
	case acc&FlushPersistent != 0 && !persistent:
		return syscall.EINVAL, fmt.Sprintf("access %v needs persistent memory", FlushPersistent)
	case acc&^supported != 0:
		return syscall.EINVAL, fmt.Sprintf("unknown access bits %v", acc&^supported)
	case acc&(RemoteWrite|RemoteAtomic) != 0 && acc&LocalWrite == 0:
		return syscall.EINVAL, fmt.Sprintf("access %v needs LOCAL_WRITE", acc)
	}
	return 0, ""
}

// address is the first address of a region made of buf.
func address(buf []byte, acc Access, opt Options) uint64 {
	switch {
	case opt.HasIOVA:
		return opt.IOVA
	case acc&ZeroBased != 0:
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
}

// newRegion makes a region. Its key opens nothing yet.
func (t *Table) newRegion(op string, pd *PD, k kind) (*MR, error) {
	if pd == nil || pd.dead {
		return nil, errs.New(op, syscall.EINVAL, "no protection domain")
	}
	if t.regions >= t.maxRegions {
		return nil, errs.New(op, syscall.ENOMEM, "%d regions are registered, the limit; deregister some first", t.regions)
	}
	g := t.newGrant(pd, k)
	if g == nil {
		return nil, errs.New(op, syscall.ENOMEM, "no memory key is free")
	}
	m := &MR{table: t, pd: pd, g: g}
	m.key.Store(g.key())
	g.mr = m
	t.regions++
	pd.users++
	return m, nil
}

// use makes buf the memory of a user's region.
func (m *MR) use(buf []byte, acc Access, opt Options) {
	iova := address(buf, acc, opt)
	m.buf, m.persist = buf, opt.Persist
	m.iova.Store(iova)
	m.length.Store(int64(len(buf)))
	m.watched, m.foreign = acc&Watched != 0, opt.Foreign
	m.special = m.watched || m.foreign
	m.table.lends += lends(opt.InPlace) - lends(m.inPlace)
	m.inPlace = opt.InPlace
	m.access.Store(uint32(acc))
	g := m.g
	g.iova, g.length, g.access = iova, uint64(len(buf)), acc
}

// Idle returns EBUSY, an *[errs.Error] of operation op, if the region cannot be changed or ended
// because windows are bound to it or indirect regions have parts of it.
func (m *MR) Idle(op string) error {
	if n := m.g.windows(); n > 0 {
		return m.refuse(op, syscall.EBUSY, "%d memory windows are bound to it; invalidate or deallocate them first", n)
	}
	if n := m.users.Load(); n > 0 {
		return m.refuse(op, syscall.EBUSY, "parts of it are in %d indirect regions; invalidate those first", n)
	}
	return nil
}

// Deregister ends the region (ibv_dereg_mr). From now on its key opens nothing, even in the middle of a message. The
// errors are *[errs.Error] and wrap EBUSY while windows are bound to the region or it is part of an indirect one (as
// in IBTA 11.2.8.4; rxe returns EINVAL), and EINVAL the second time.
func (m *MR) Deregister() error {
	const op = "deregister"
	if m.closed {
		return m.refuse(op, syscall.EINVAL, "deregistered already")
	}
	if err := m.Idle(op); err != nil {
		return err
	}
	m.vacate()
	m.table.end(m.g)
	m.table.regions--
	m.table.lends -= lends(m.inPlace)
	m.pd.users--
	m.closed, m.buf = true, nil
	return nil
}
