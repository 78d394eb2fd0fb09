package roce

import (
	"syscall"

	"github.com/goroce/roce/mr"
)

// IndirectMR is a memory region made of parts of other regions: scattered
// memory, or the columns of a matrix, behind one key and one range of addresses
// (the user-mode memory registration, UMR, of adapters). It is used like any
// region, by peers and in scatter/gather lists, and can be part of another, up
// to [mr.MaxDepth] below one another.
//
// It is registered at once by [PD.RegIndirect], or like a [FastMR], again and
// again, by work requests. The regions it is made of refuse to close while it
// is registered. If they are fast registrations or indirect regions they may be
// invalidated; what touches them then fails.
//
// Its methods may be called from any goroutine. What Addr, Len and SGE say is what was
// mapped or posted last.
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
	Stride uint64 // with Repeat: from one to the next
}

// Layout says what an indirect region is made of: the parts, one behind the
// other (IBV_EXP_UMR_MR_LIST). With Repeat all of that comes so many times, and
// each time every part begins Stride further on in its region, so that several
// parts interleave (IBV_EXP_UMR_REPEAT).
type Layout struct {
	Parts  []Part
	Repeat uint64 // 0: once
	IOVA   uint64 // the first address, as work requests name it
}

// RegIndirect creates an indirect region and registers it. Peers may do what
// access and all parts allow. The parts must be of the same domain (EINVAL), and
// inside of their regions (EINVAL).
func (p *PD) RegIndirect(l Layout, access Access) (*IndirectMR, error) {
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
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
		m.closeLocked()
		return nil, err
	}
	return m, nil
}

// AllocIndirect creates an indirect region of up to maxParts parts
// (ibv_exp_create_mr). Its key opens nothing until it is registered.
func (p *PD) AllocIndirect(maxParts int) (*IndirectMR, error) {
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	return p.allocIndirect(maxParts)
}

func (p *PD) allocIndirect(maxParts int) (*IndirectMR, error) {
	if p.closed || p.dev.nic.Closed() {
		return nil, ErrClosed
	}
	m, err := p.dev.mem.AllocIndirect(p.pd, maxParts)
	if err != nil {
		return nil, err
	}
	return &IndirectMR{postedRegion{region{dev: p.dev, mr: m}}}, nil
}

// Map says what the next registration makes the region of. What is registered
// now does not change. The regions of parts that work requests register must be
// registered now, and still so when this one is.
func (m *IndirectMR) Map(l Layout) error {
	s := m.dev.nic.Shard(0) // one is enough: no key is made or ended meanwhile
	s.Lock()
	defer s.Unlock()
	if m.closed {
		return ErrClosed
	}
	return m.mapParts(l)
}

// FillWR returns the work request that makes the region of a layout and registers it under the
// next key (IBV_EXP_WR_UMR_FILL). The list is copied, as with IBV_EXP_SEND_INLINE, and does not
// touch what Map has prepared: a program can post the work requests that fill the region, use it,
// invalidate it and fill it with something else, all at once. It refuses what Map refuses.
//
// The next key is that behind the last that was posted. A second work request that is posted
// together with the first takes [IncRKey] of the first's RKey.
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

// parts returns the parts of a layout, whose regions must be of the device.
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
