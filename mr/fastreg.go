package mr

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// MaxPieces is how many pieces of memory a region may have
// (max_fast_reg_page_list_len).
const MaxPieces = 1 << 16

// A work request registers the memory of a fast registration. The program
// makes the region once (AllocFast). Then it repeats three steps: it gives the
// region memory (Map); it registers that memory under a new key, by a work
// request ahead of the message that tells the peer the key (RegisterFast); it
// invalidates the key when the peer has finished (Invalidate). The standard
// calls such a region FREE or VALID.

// mapping is the memory of a region that work requests register. The program
// prepares the next layout while the engine uses the current one.
type mapping struct {
	max      int
	pageSize uint64
	parts    bool // of an indirect region

	state   atomic.Uint32 // of next
	iova    atomic.Uint64 // of next, or of current if there is none
	length  atomic.Int64  // the same
	next    layout
	current layout // written while the grant is claimed
	listed  bool   // current came from the list of a work request; written together with current
}

const (
	mappingNone    = iota // the current one is to be registered again
	mappingChanges        // being written, or taken
	mappingReady
)

// FastOptions are the choices of [Table.AllocFast].
type FastOptions struct {
	// MaxPieces is how many pieces of memory the region may have (max_num_sg
	// of ib_alloc_mr), at most [MaxPieces].
	MaxPieces int

	// PageSize, if not 0, is a power of two and makes Map as strict as an
	// adapter with page tables (IB_MR_TYPE_MEM_REG): all pieces but the first
	// begin at a page, all but the last end at one, and MaxPieces counts pages.
	// There are no page tables here, so 0 takes pieces of any place and size
	// (IB_MR_TYPE_SG_GAPS).
	PageSize int
}

// AllocFast makes a region for fast registration (ib_alloc_mr). The region is
// FREE: its key opens nothing. The errors are *[errs.Error] and wrap EINVAL for a
// number of pieces or a page size that is out of range, or no domain, and ENOMEM.
func (t *Table) AllocFast(pd *PD, opt FastOptions) (*MR, error) {
	const op = "allocate fast registration"
	switch {
	case opt.MaxPieces <= 0 || opt.MaxPieces > MaxPieces:
		return nil, errs.New(op, syscall.EINVAL, "%d pieces, must be 1 to %d", opt.MaxPieces, MaxPieces)
	case opt.PageSize < 0 || opt.PageSize&(opt.PageSize-1) != 0:
		return nil, errs.New(op, syscall.EINVAL, "page size %d is not a power of two", opt.PageSize)
	}
	m, err := t.newRegion(op, pd, fastRegion)
	if err != nil {
		return nil, err
	}
	m.mapping = &mapping{max: opt.MaxPieces, pageSize: uint64(opt.PageSize)}
	return m, nil
}

// Map sets the memory that the next registration makes accessible
// (ib_map_mr_sg): the slices, one behind the other. The region has the
// address of the first byte unless opt has another one. A registration
// without a Map before it registers the same memory again. Map does not
// change the memory that is registered at the moment.
//
// Map takes all or nothing, where ib_map_mr_sg takes what fits and returns how
// much. It may be called while the engine runs. The errors are *[errs.Error] and
// wrap EINVAL (no memory, an empty piece, too many, misaligned, an address
// range that wraps, a region of the program) and EBUSY (another Map, or a
// registration, is using the list right now).
func (m *MR) Map(sg [][]byte, opt Options) error {
	const op = "map"
	p := m.mapping
	if p == nil || p.parts {
		return m.refuse(op, syscall.EINVAL, "the region is not for fast registration")
	}
	length, detail := p.check(sg)
	if detail != "" {
		return m.refuse(op, syscall.EINVAL, "%s", detail)
	}
	iova := address(sg[0], 0, opt)
	if iova+length < iova {
		return m.refuse(op, syscall.EINVAL, "%d bytes from address %#x wrap around", length, iova)
	}
	if !p.begin() {
		return m.refuse(op, syscall.EBUSY, "the list of the region is in use")
	}
	l := &p.next
	l.clear()
	for _, b := range sg {
		l.length += uint64(len(b))
		l.ends = append(l.ends, l.length)
		l.pieces = append(l.pieces, b)
	}
	l.round, l.iova = length, iova
	m.mapped(l)
	p.state.Store(mappingReady)
	return nil
}

// mapped stores the memory of the next registration.
func (m *MR) mapped(l *layout) {
	m.mapping.iova.Store(l.iova)
	m.mapping.length.Store(int64(l.length))
	m.iova.Store(l.iova)
	m.length.Store(int64(l.length))
}

// begin reserves the next mapping for writing.
func (p *mapping) begin() bool {
	return p.state.CompareAndSwap(mappingNone, mappingChanges) || p.state.CompareAndSwap(mappingReady, mappingChanges)
}

// check adds up a list of pieces and describes what is wrong with it.
func (p *mapping) check(sg [][]byte) (length uint64, detail string) {
	if len(sg) == 0 || len(sg) > p.max {
		return 0, fmt.Sprintf("%d pieces, the region takes 1 to %d", len(sg), p.max)
	}
	mask := max(p.pageSize, 1) - 1
	var pages uint64
	for i, b := range sg {
		first := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
		end := first + uint64(len(b))
		switch {
		case len(b) == 0:
			return 0, fmt.Sprintf("piece %d is empty", i)
		case i > 0 && first&mask != 0:
			return 0, fmt.Sprintf("piece %d begins at %#x, not at a page of %d bytes", i, first, p.pageSize)
		case i < len(sg)-1 && end&mask != 0:
			return 0, fmt.Sprintf("piece %d ends at %#x, not at a page of %d bytes", i, end, p.pageSize)
		case uint64(len(b)) > MaxLength-length:
			return 0, "the pieces are more than a region may have"
		}
		length += uint64(len(b))
		pages += (end+mask)/(mask+1) - first/(mask+1)
	}
	if p.pageSize > 0 && pages > uint64(p.max) {
		return 0, fmt.Sprintf("%d pages of %d bytes, the region takes %d", pages, p.pageSize, p.max)
	}
	return length, ""
}

// take makes the prepared mapping the current one. The caller has claimed the grant.
func (p *mapping) take() Fault {
	if p.state.CompareAndSwap(mappingReady, mappingChanges) {
		p.current, p.next = p.next, p.current
		p.listed = false
		p.state.Store(mappingNone)
	} else if p.state.Load() != mappingNone {
		return BadState
	}
	if p.current.length == 0 || p.listed {
		return BadRange // nothing was mapped, or a list has replaced it
	}
	return OK
}

// RegisterFast executes a registration that was posted on a queue pair of
// domain pd: the region, a fast registration or an indirect one, becomes VALID,
// its keys become key, and the mapped memory becomes accessible with the rights
// acc. A refusal changes nothing. The region must be FREE and of the same
// domain, and only the low byte of its key may change (IBTA vol. 1, 10.6.3 and
// 11.2.8; rxe).
func (t *Table) RegisterFast(pd *PD, m *MR, key bth.RKey, acc Access) Fault {
	return t.registerPosted(pd, m, nil, key, acc)
}

// registerPosted registers the parts of a list or, without a list, the mapped
// memory.
func (t *Table) registerPosted(pd *PD, m *MR, list *PartList, key bth.RKey, acc Access) Fault {
	errno, _ := checkRights(acc, false)
	switch {
	case m.closed || m.table != t || m.mapping == nil || list != nil && list.of != m:
		return BadKey
	case m.pd != pd:
		return BadPD
	case !sameName(uint32(key), m.g.name):
		return BadKey
	case errno != 0:
		return BadAccess
	}
	g := m.g
	if !g.claim(func(word uint64) bool { return word&stateMask == stateFree }) {
		return BadState
	}
	if list != nil {
		m.mapping.copy(list)
	} else if f := m.mapping.take(); f != OK {
		g.publish(uint32(g.word.Load()), stateFree)
		return f
	}
	l := &m.mapping.current
	acc, f := l.occupy(acc)
	if f != OK {
		g.publish(uint32(g.word.Load()), stateFree)
		return f
	}
	g.iova, g.length, g.access = l.iova, l.length, acc
	if acc&ZeroBased != 0 {
		g.iova = 0
	}
	g.gen++
	g.publish(uint32(key), stateValid)
	return OK
}

// Mappable reports whether the region is one that work requests register: a
// fast registration or an indirect region.
func (m *MR) Mappable() bool { return m.mapping != nil }

// Posted notes that a registration was posted, of a list or, if list is nil, of the mapped
// memory. From now on [MR.RKey], [MR.Access], [MR.Addr] and [MR.Length] return its values, even
// before it is executed.
func (m *MR) Posted(key bth.RKey, acc Access, list *PartList) {
	m.key.Store(uint32(key))
	m.access.Store(uint32(acc))
	if m.mapping == nil {
		return
	}
	iova, length := m.mapping.iova.Load(), m.mapping.length.Load()
	if list != nil {
		iova, length = list.iova, int64(list.length)
	}
	if acc&ZeroBased != 0 {
		iova = 0
	}
	m.iova.Store(iova)
	m.length.Store(length)
}

// vacate releases the regions of the parts of a VALID indirect region, before it becomes FREE.
func (m *MR) vacate() {
	if m.mapping != nil && m.Valid() {
		l := &m.mapping.current
		l.vacate(len(l.parts))
	}
}

// Reset makes the region FREE and gives it a key that nobody has seen, like an
// invalidation, a deregistration and a new AllocFast. Nobody else may use the
// table during the call. The errors are *[errs.Error] and wrap EINVAL for a
// region of the program or one that is deregistered, and EBUSY as with
// [MR.Deregister].
func (m *MR) Reset() error {
	const op = "reset"
	if m.closed || m.mapping == nil {
		return m.refuse(op, syscall.EINVAL, "the region is closed, or is not registered by work requests")
	}
	if err := m.Idle(op); err != nil {
		return err
	}
	m.vacate()
	key := m.table.newVariant(m.g.key())
	m.key.Store(key)
	m.g.publish(key, stateFree)
	return nil
}

// Valid reports whether the keys open the region. As during a lookup, nobody
// may make or end a key during the call.
func (m *MR) Valid() bool {
	return !m.closed && m.g.word.Load()&stateMask == stateValid
}
