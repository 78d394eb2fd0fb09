package roce

import (
	"syscall"

	"github.com/goroce/roce/mr"
)

// IndirectMR is a memory region made of parts of other regions: scattered
// memory, or the columns of a matrix, with one key and one range of addresses
// (the user-mode memory registration, UMR, of adapters). Peers and
// scatter/gather lists use it like any region. It can be part of another
// indirect region, up to a depth of [mr.MaxDepth].
//
// [PD.RegIndirect] registers it at once; work requests can register it
// repeatedly, like a [FastMR]. While it is registered, its parts cannot be
// closed. If a part is a fast registration or an indirect region, it can be
// invalidated; access to it then fails.
//
// Its methods may be called from any goroutine. Addr, Len and SGE return the values
// that were mapped or posted last.
type IndirectMR struct{ postedRegion }

func (m *IndirectMR) base() *region {
	if m == nil {
		return nil
	}
	return &m.region
}

// Part is a part of a region: Length bytes from Offset.
type Part struct {
	MR     Region
	Offset uint64
	Length uint64
	Stride uint64 // with Repeat: distance from one repetition to the next
}

// Layout describes the contents of an indirect region: the parts in sequence
// (IBV_EXP_UMR_MR_LIST). With Repeat the sequence is repeated that many times,
// and in each repetition every part begins Stride bytes further in its region,
// so that several parts interleave (IBV_EXP_UMR_REPEAT).
type Layout struct {
	Parts  []Part
	Repeat uint64 // 0: once
	IOVA   uint64 // the first address
}

// RegIndirect creates an indirect region and registers it. Peers have the rights
// that access and all parts grant. The parts must be in the same domain
// (EINVAL), and inside their regions (EINVAL).
func (p *PD) RegIndirect(l Layout, access Access) (*IndirectMR, error) {
	return inDomain(p, func() (*IndirectMR, error) {
		m, err := p.allocIndirect(len(l.Parts))
		if err != nil {
			return nil, err
		}
		if err = m.mapParts(l); err == nil {
			key := m.RKey()
			if f := p.dev.mem.RegisterFast(p.pd, m.mr, key, access); f != mr.OK {
				err = fail("register", syscall.EINVAL, "access %v: %v; an indirect region has no rights but those that its parts can have", access, f)
			}
			m.mr.Posted(key, access, nil)
		}
		if err != nil {
			m.mr.Deregister()
			return nil, err
		}
		return m, nil
	})
}

// AllocIndirect creates an indirect region of up to maxParts parts
// (ibv_exp_create_mr). Its key is not valid until the region is registered.
func (p *PD) AllocIndirect(maxParts int) (*IndirectMR, error) {
	return inDomain(p, func() (*IndirectMR, error) { return p.allocIndirect(maxParts) })
}

// allocIndirect is AllocIndirect for [inDomain].
func (p *PD) allocIndirect(maxParts int) (*IndirectMR, error) {
	m, err := p.dev.mem.AllocIndirect(p.pd, maxParts)
	if err != nil {
		return nil, err
	}
	return &IndirectMR{postedRegion{region{dev: p.dev, mr: m}}}, nil
}

// MaxParts returns how many parts the region can have (ibv_exp_query_mkey).
func (m *IndirectMR) MaxParts() int { return m.mr.MaxParts() }

// Map sets the layout for the next registration. It does not change a current
// registration. If work requests register the regions of parts, these must be
// registered now, and still be registered when this region is.
func (m *IndirectMR) Map(l Layout) error {
	s := m.dev.nic.Shard(0) // one shard is enough: while it is locked, no key changes
	s.Lock()
	defer s.Unlock()
	if m.closed {
		return ErrClosed
	}
	return m.mapParts(l)
}

// FillWR returns the work request that registers the region with a layout and the next key
// (IBV_EXP_WR_UMR_FILL). It copies the list, as IBV_EXP_SEND_INLINE does, and does not change the
// layout of Map. So a program can post the work requests that register the region, use it,
// invalidate it and register another layout, all at once. It returns the errors of Map.
//
// The next key is the successor of the last posted key. For a second work request that is
// posted together with the first, set RKey to [IncRKey] of the first's RKey.
func (m *IndirectMR) FillWR(l Layout, access Access) (SendWR, error) {
	s := m.dev.nic.Shard(0) // as with Map
	s.Lock()
	defer s.Unlock()
	if m.closed {
		return SendWR{}, ErrClosed
	}
	parts, err := m.parts("fill", l)
	if err != nil {
		return SendWR{}, err
	}
	list, err := m.mr.ListParts(parts, l.Repeat, mr.Options{IOVA: l.IOVA, HasIOVA: true})
	if err != nil {
		return SendWR{}, err
	}
	wr := m.RegWR(access)
	wr.Parts = list
	return wr, nil
}

func (m *IndirectMR) mapParts(l Layout) error {
	parts, err := m.parts("map", l)
	if err != nil {
		return err
	}
	return m.mr.MapParts(parts, l.Repeat, mr.Options{IOVA: l.IOVA, HasIOVA: true})
}

// parts returns the parts of a layout. It refuses regions of other devices.
func (m *IndirectMR) parts(op string, l Layout) ([]mr.Part, error) {
	parts := make([]mr.Part, len(l.Parts))
	for i, p := range l.Parts {
		r := baseOf(p.MR)
		if r == nil || r.dev != m.dev {
			return nil, fail(op, syscall.EINVAL, "part %d: a region of the same device is required", i)
		}
		parts[i] = mr.Part{MR: r.mr, Offset: p.Offset, Length: p.Length, Stride: p.Stride}
	}
	return parts, nil
}
