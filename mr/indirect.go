package mr

import (
	"fmt"
	"math"
	"math/bits"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// An indirect region (the user-mode memory registration, UMR, of adapters) is
// made of parts of other regions and has keys of its own. Like a fast
// registration it is FREE or VALID, registered and invalidated by work
// requests. It may be made of fast registrations and of indirect regions, but
// not of windows.
//
// A peer or a local work request has a right only if the region and the
// regions of all its parts grant that right. The program cannot deregister or
// reregister a region that is part of a VALID one. It may invalidate it: from
// then on accesses fail when they come to that part, even if the region is
// registered again.

// MaxDepth is how many indirect regions may be below one another
// (max_umr_recursion_depth).
const MaxDepth = 4

// Part is a part of a region: Length bytes from Offset. With MapParts' repeat
// it stands for several parts, each Stride bytes behind the previous one.
type Part struct {
	MR     *MR
	Offset uint64
	Length uint64
	Stride uint64
}

// AllocIndirect makes an indirect region of up to maxParts parts
// (ibv_exp_create_mr). The region is FREE. The errors are *[errs.Error] and wrap
// EINVAL for a number out of range, or no domain, and ENOMEM.
func (t *Table) AllocIndirect(pd *PD, maxParts int) (*MR, error) {
	const op = "allocate indirect region"
	if maxParts <= 0 || maxParts > MaxPieces {
		return nil, errs.New(op, syscall.EINVAL, "%d parts, must be 1 to %d", maxParts, MaxPieces)
	}
	m, err := t.newRegion(op, pd, indirectRegion)
	if err != nil {
		return nil, err
	}
	m.mapping = &mapping{max: maxParts, parts: true}
	return m, nil
}

// MaxParts returns the largest number of parts of an indirect region, 0 for a region of another kind.
func (m *MR) MaxParts() int {
	if p := m.mapping; p != nil && p.parts {
		return p.max
	}
	return 0
}

// MapParts sets the parts of the region for the next registration: the parts one behind the other, in repeat rounds
// (0 is 1). In each round, every part begins Stride bytes further on in its region. The address is 0 unless opt has
// another one. The regions of the parts must be of the same domain. If work requests register them, they must be
// VALID now and when this region is registered. As during a lookup, nobody may make or end a key during the call.
//
// The errors are *[errs.Error] and wrap EINVAL (no parts or too many, an empty one,
// one that is not inside of its region, a region that is not registered or of
// another domain, more than [MaxDepth] below one another, more than
// [MaxLength] bytes, addresses that wrap, a region that is not indirect) and
// EBUSY as with [MR.Map].
func (m *MR) MapParts(parts []Part, repeat uint64, opt Options) error {
	const op = "map"
	p := m.mapping
	switch {
	case m.closed || p == nil || !p.parts:
		return m.refuse(op, syscall.EINVAL, "not an indirect region")
	case len(parts) == 0 || len(parts) > p.max:
		return m.refuse(op, syscall.EINVAL, "%d parts, the region takes 1 to %d", len(parts), p.max)
	}
	var trial layout
	if detail := trial.addParts(m, parts, repeat, opt.IOVA, false); detail != "" {
		return m.refuse(op, syscall.EINVAL, "%s", detail)
	}
	if !p.begin() {
		return m.refuse(op, syscall.EBUSY, "the list of the region is in use")
	}
	l := &p.next
	l.clear()
	if detail := l.addParts(m, parts, repeat, opt.IOVA, true); detail != "" { // another shard has just changed a region
		p.state.Store(mappingNone)
		return m.refuse(op, syscall.EINVAL, "%s", detail)
	}
	m.mapped(l)
	p.state.Store(mappingReady)
	return nil
}

// PartList is a list of parts that a work request carries (IBV_EXP_WR_UMR_FILL): its registration
// does not depend on MapParts. So several registrations of a region can wait in a queue. A list
// does not change, and may be used again.
type PartList struct {
	layout
	of *MR
}

// ListParts makes a list for registrations of the region. It has the parameters of
// [MR.MapParts], and the same errors except EBUSY.
func (m *MR) ListParts(parts []Part, repeat uint64, opt Options) (*PartList, error) {
	const op = "list parts"
	p := m.mapping
	switch {
	case m.closed || p == nil || !p.parts:
		return nil, m.refuse(op, syscall.EINVAL, "not an indirect region")
	case len(parts) == 0 || len(parts) > p.max:
		return nil, m.refuse(op, syscall.EINVAL, "%d parts, the region takes 1 to %d", len(parts), p.max)
	}
	l := &PartList{of: m}
	if detail := l.addParts(m, parts, repeat, opt.IOVA, true); detail != "" {
		return nil, m.refuse(op, syscall.EINVAL, "%s", detail)
	}
	return l, nil
}

// Of reports whether the list is of a region.
func (l *PartList) Of(m *MR) bool { return l.of == m }

// RegisterParts is [Table.RegisterFast] for the parts of a list. Parts that MapParts has set,
// and no registration has used yet, stay for a later registration. After a list, a registration
// needs a new MapParts or another list.
func (t *Table) RegisterParts(pd *PD, m *MR, list *PartList, key bth.RKey, acc Access) Fault {
	return t.registerPosted(pd, m, list, key, acc)
}

// copy makes a list the current mapping. The caller has claimed the grant.
func (p *mapping) copy(list *PartList) {
	c := &p.current
	c.clear()
	c.ends, c.parts = append(c.ends, list.ends...), append(c.parts, list.parts...)
	c.iova, c.length, c.round, c.depth = list.iova, list.length, list.round, list.depth
	p.listed = true
}

// addParts makes a layout of parts and returns what is wrong with them, if anything. Without
// keep it only checks.
func (l *layout) addParts(to *MR, parts []Part, repeat, iova uint64, keep bool) string {
	repeat = max(repeat, 1)
	for i := range parts {
		x, depth, detail := parts[i].check(to, repeat)
		n := parts[i].Length
		switch {
		case detail != "":
			return detail
		case l.round > math.MaxInt64-n:
			return "the parts are more than a region may have"
		}
		l.round += n
		l.depth = max(l.depth, depth)
		if keep {
			l.ends, l.parts = append(l.ends, l.round), append(l.parts, x)
		}
	}
	over, total := bits.Mul64(l.round, repeat)
	l.length, l.iova = total, iova
	switch {
	case over != 0 || total > MaxLength:
		return fmt.Sprintf("%d times %d bytes are more than a region may have", repeat, l.round)
	case iova+total < iova:
		return fmt.Sprintf("%d bytes from address %#x wrap around", total, iova)
	case l.depth > MaxDepth:
		return fmt.Sprintf("%d indirect regions below one another, the limit is %d", l.depth, MaxDepth)
	}
	return ""
}

// check returns the depth of an indirect region with this part. detail says what is wrong
// with the part; it is empty if nothing is.
func (p *Part) check(to *MR, repeat uint64) (x part, depth int, detail string) {
	m := p.MR
	if m == nil || m.closed || m.table != to.table || m == to {
		return x, 0, "a part has no registered region"
	}
	if m.pd != to.pd {
		return x, 0, "a part is of another protection domain"
	}
	g := m.g
	if g.kind() != userRegion {
		if !g.pinValid() {
			return x, 0, "the region of a part is not registered at the moment"
		}
		defer g.unpin()
	}
	over, last := bits.Mul64(repeat-1, p.Stride) // where the last of them begins
	start, c1 := bits.Add64(last, p.Offset, 0)
	end, c2 := bits.Add64(start, p.Length, 0)
	switch {
	case p.Length == 0:
		return x, 0, "a part is empty"
	case over|c1|c2 != 0 || end > g.length:
		return x, 0, fmt.Sprintf("%d bytes at %d, %d times every %d, are not inside of a region of %d", p.Length, p.Offset, repeat, p.Stride, g.length)
	}
	depth = 1
	if g.kind() == indirectRegion {
		depth += m.mapping.current.depth
	}
	return part{m: m, gen: g.gen, off: p.Offset, stride: p.Stride}, depth, ""
}

// occupy counts a user of the region of each part and returns the rights of acc that all of
// them grant. The caller has claimed the grant.
func (l *layout) occupy(acc Access) (Access, Fault) {
	for i := range l.parts {
		x := &l.parts[i]
		if x.m.closed || !x.hold() {
			l.vacate(i)
			return 0, BadKey
		}
		acc &= x.m.g.access | ^partRights
		x.release()
		x.m.users.Add(1)
	}
	return acc, OK
}

// partRights are the rights that an indirect region has only if all its parts have them.
const partRights = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | MWBind | FlushGlobal

// vacate undoes occupy for the first n parts.
func (l *layout) vacate(n int) {
	for i := range l.parts[:n] {
		l.parts[i].m.users.Add(-1)
	}
}
