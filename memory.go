package roce

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
)

// PD is a protection domain (struct ibv_pd): queue pairs and memory regions
// work together only within one.
type PD struct {
	dev    *Device
	pd     *mr.PD
	closed bool // guarded by the device
}

// AllocPD creates a protection domain (ibv_alloc_pd).
func (d *Device) AllocPD() *PD { return &PD{dev: d, pd: mr.NewPD()} }

// Device returns the device the domain is of.
func (p *PD) Device() *Device { return p.dev }

// Close frees the domain (ibv_dealloc_pd). It fails with EBUSY while memory
// regions, windows, queue pairs or shared receive queues are in it.
func (p *PD) Close() error {
	p.dev.lockAll()
	defer p.dev.unlockAll()
	if p.closed {
		return ErrClosed
	}
	if err := p.pd.Dealloc(); err != nil {
		return err
	}
	p.closed = true
	return nil
}

// MR is a memory region (struct ibv_mr).
type MR struct {
	dev    *Device
	mr     *mr.MR
	buf    []byte
	closed bool // guarded by the device
}

// RegMR registers memory (ibv_reg_mr). buf stays the caller's: with
// [RemoteWrite] or [RemoteRead] the peer changes or reads it at any time. By
// default a region is addressed, locally and by the peer, by the address of
// buf[0]; with [ZeroBased] by offset. RemoteWrite and RemoteAtomic need
// [LocalWrite] (EINVAL).
func (p *PD) RegMR(buf []byte, access Access) (*MR, error) { return p.reg(buf, access, mr.Options{}) }

// RegMRIova registers memory under an address of the caller's choice
// (ibv_reg_mr_iova).
func (p *PD) RegMRIova(buf []byte, iova uint64, access Access) (*MR, error) {
	return p.reg(buf, access, mr.Options{IOVA: iova, HasIOVA: true})
}

func (p *PD) reg(buf []byte, access Access, o mr.Options) (*MR, error) {
	p.dev.lockAll()
	defer p.dev.unlockAll()
	if p.closed || p.dev.closed {
		return nil, ErrClosed
	}
	m, err := p.dev.mem.Register(p.pd, buf, access, o)
	if err != nil {
		return nil, err
	}
	return &MR{dev: p.dev, mr: m, buf: buf}, nil
}

// Close deregisters the region (ibv_dereg_mr). When it returns nobody touches
// the memory any more, whatever is still queued; operations that name its keys
// fail.
//
// It fails with EBUSY while memory windows are bound to the region, or it is
// part of an indirect one.
func (m *MR) Close() error {
	m.dev.lockAll()
	defer m.dev.unlockAll()
	return m.closeLocked()
}

// closeLocked is Close with the device locked.
func (m *MR) closeLocked() error {
	if m.closed {
		return ErrClosed
	}
	if err := m.mr.Deregister(); err != nil {
		return err
	}
	m.closed = true
	return nil
}

// Bytes returns the memory that was registered.
func (m *MR) Bytes() []byte { return m.buf }

// Addr returns the address of the first byte, as work requests name it.
func (m *MR) Addr() uint64 { return m.mr.Addr() }

// Len returns the length in bytes.
func (m *MR) Len() int { return m.mr.Length() }

// LKey returns the key for local work requests.
func (m *MR) LKey() bth.LKey { return m.mr.LKey() }

// RKey returns the key a peer needs.
func (m *MR) RKey() RKey { return m.mr.RKey() }

// SGE describes n bytes from offset off, for a work request.
func (m *MR) SGE(off, n int) SGE { return m.mr.SGE(off, n) }
