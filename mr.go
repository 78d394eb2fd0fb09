package roce

import (
	"errors"
	"io"
	"math"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mr"
)

// PD is a protection domain (struct ibv_pd): a queue pair can use only memory
// regions of its own domain.
type PD struct {
	dev    *Device
	pd     *mr.PD
	closed bool // guarded by the device
}

// AllocPD creates a protection domain (ibv_alloc_pd).
func (d *Device) AllocPD() *PD { return &PD{dev: d, pd: mr.NewPD()} }

// Device returns the device of the domain.
func (p *PD) Device() *Device { return p.dev }

// inDomain calls f, which makes an object of a domain, with the device locked.
func inDomain[T any](p *PD, f func() (T, error)) (object T, err error) {
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	if p.closed || p.dev.nic.Closed() {
		return object, ErrClosed
	}
	return f()
}

// Close frees the domain (ibv_dealloc_pd). It fails with EBUSY while the
// domain has memory regions, windows, queue pairs or shared receive queues.
func (p *PD) Close() error { return p.dev.closeOnce(&p.closed, p.pd.Dealloc) }

// autoPD is a domain that a connection made: its Close never fails.
type autoPD struct{ *PD }

// Close frees the domain with the last object in it. The domain accepts no new
// objects.
func (p autoPD) Close() error {
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	if !p.closed {
		p.closed = true
		p.pd.DeallocUnused()
	}
	return nil
}

// Region is a memory region of any kind: an [*MR], [*FastMR], [*IndirectMR] or [*NullMR].
type Region interface {
	Addr() uint64       // of the first byte, in work requests
	Len() int           // in bytes
	LKey() LKey         // the key for local work requests
	RKey() RKey         // the key for peers
	SGE(off, n int) SGE // element of n bytes from offset off
	Flushes() uint64    // number of FLUSHes that peers have executed on the region
	Close() error       // deregisters it
	base() *region      // nil for a nil pointer
}

// region is the common part of regions of all kinds.
type region struct {
	dev    *Device
	mr     *mr.MR
	closed bool // guarded by the device
}

// baseOf returns the common part of a region of any kind, or nil for nil and for a nil pointer. A program may embed a region
// in a type of its own, so the region itself has to tell whether it is nil.
func baseOf(r Region) *region {
	if r == nil {
		return nil
	}
	return r.base()
}

// MR is a memory region (struct ibv_mr) whose memory is fixed when it is registered.
// Its methods may be called from any goroutine.
type MR struct {
	region
	mem  atomic.Pointer[memory] // for Load64, Store64, ReadAt and WriteAt
	free func()                 // frees the memory; nil: the program owns it
	conn *Conn                  // the connection whose RegMR made the region, or nil
}

// memory is the memory of an MR. It is immutable.
type memory struct {
	b       []byte
	watched bool
}

func (m *MR) base() *region {
	if m == nil {
		return nil
	}
	return &m.region
}

// RegMR registers memory (ibv_reg_mr). The caller still owns buf; with
// [RemoteWrite] or [RemoteRead] the peer writes or reads it at any time. The
// first address of the region, for the program and for peers, is the address
// of buf[0], or 0 with [ZeroBased]. RemoteWrite and RemoteAtomic need
// [LocalWrite] (EINVAL).
func (p *PD) RegMR(buf []byte, access Access) (*MR, error) { return p.reg(buf, access, mr.Options{}) }

// RegMRIova registers memory at an address that the caller chooses
// (ibv_reg_mr_iova).
func (p *PD) RegMRIova(buf []byte, iova uint64, access Access) (*MR, error) {
	return p.reg(buf, access, mr.Options{IOVA: iova, HasIOVA: true})
}

// maxAlloc is more memory than any process can have: make panics for this size. On 32-bit
// systems it is half of the address space.
const maxAlloc = min(1<<47, math.MaxInt/2+1)

// AllocMR makes a region of n zero bytes in memory of the device: the best memory for
// its link to send from. The verbs have no such call; the closest is
// IBV_EXP_ACCESS_ALLOCATE_MR of vendors' libraries. MR.Bytes returns the memory; the
// program must not access it after MR.Close.
//
// On a device of driver "xdp" with xdp.Config.Memory the memory is in the UMEM, and
// reliable queue pairs can send the payload of SENDs and WRITEs from there without a copy
// in user space, depending on xdp.Config.InPlace. The device still copies
// retransmissions, READ responses, unreliable messages, payload in several elements, and
// regions that are [Watched]. The program must not change the memory before the work
// request completes, as the verbs require anyway. If the program changes it while packets
// are in flight, or after a queue pair has failed, the receiver drops these packets for a
// wrong ICRC. AllocMR fails with ENOMEM if there are no n contiguous bytes left.
//
// On every other device, and inside a wrapper, it is ordinary memory: if the system does not
// have enough, the process ends, as with make. AllocMR fails with EINVAL where [PD.RegMR]
// does.
func (p *PD) AllocMR(n int, access Access) (*MR, error) {
	if n <= 0 {
		return nil, fail("allocate region", syscall.EINVAL, "%d bytes, need at least 1", n)
	}
	if uint64(n) > maxAlloc {
		return nil, fail("allocate region", syscall.ENOMEM, "%d bytes are more than the process can address", n)
	}
	if l, ok := p.dev.nic.Lender(); ok {
		buf, free, err := l.AllocMemory(n)
		if err == nil {
			m, err := p.reg(buf, access, mr.Options{InPlace: true})
			if err != nil {
				free()
				return nil, err
			}
			m.free = free
			return m, nil
		}
		if !errors.Is(err, link.ErrUnsupported) {
			return nil, err
		}
	}
	return p.reg(make([]byte, n), access, mr.Options{})
}

func (p *PD) reg(buf []byte, access Access, o mr.Options) (*MR, error) {
	e, err := inDomain(p, func() (*mr.MR, error) { return p.dev.mem.Register(p.pd, buf, access, o) })
	if err != nil {
		return nil, err
	}
	m := &MR{region: region{dev: p.dev, mr: e}}
	m.mem.Store(&memory{buf, access&mr.Watched != 0})
	return m, nil
}

// Close deregisters the region (ibv_dereg_mr). When it returns, neither the engine
// nor a peer accesses the memory any more. Queued operations with its keys fail.
//
// It fails with EBUSY while memory windows are bound to the region, or while
// it is part of an indirect region.
func (m *MR) Close() error {
	err := m.dev.closeOnce(&m.closed, func() error {
		err := m.mr.Deregister()
		if err == nil && m.free != nil {
			m.mem.Store(&memory{})
			m.free()
		}
		return err
	})
	if err == nil && m.conn != nil {
		m.conn.forget(m)
	}
	return err
}

// Bytes returns the registered memory. Memory of the device ([PD.AllocMR]) is
// not valid after the region is closed.
func (m *MR) Bytes() []byte { return m.mem.Load().b }

// Close deregisters the region (ibv_dereg_mr), also one that a work request has
// registered. See [MR.Close].
func (m *region) Close() error { return m.dev.closeOnce(&m.closed, m.mr.Deregister) }

// Addr returns the address of the first byte, for work requests.
func (m *region) Addr() uint64 { return m.mr.Addr() }

// Len returns the length in bytes.
func (m *region) Len() int { return m.mr.Length() }

// LKey returns the key for local work requests.
func (m *region) LKey() LKey { return m.mr.LKey() }

// RKey returns the key for peers.
func (m *region) RKey() RKey { return m.mr.RKey() }

// SGE returns a scatter/gather element of n bytes from offset off. It does not check them: a
// work request with an element outside of the region ends with LOC_PROT_ERR; posting fails
// with EINVAL for a length below 0 or of 4 GiB and more.
func (m *region) SGE(off, n int) SGE { return m.mr.SGE(off, n) }

// Flushes returns how many FLUSHes of peers the region has executed. A goroutine that sees
// the number grow also sees, without a race, everything that the peer's queue pair wrote before
// that FLUSH.
func (m *region) Flushes() uint64 { return m.mr.Flushes() }

// RegMRPersistent registers memory that survives a loss of power, so that a peer
// may FLUSH it with [PlacePersistent] if access has [FlushPersistent]. persist
// makes b, a part of buf, persistent: by msync of a mapped file, or by the
// write-back of cache lines. The device calls persist while it executes the
// FLUSH: persist must not call the device, and blocks all other work. If persist
// fails, the peer's FLUSH fails (REM_OP_ERR).
func (p *PD) RegMRPersistent(buf []byte, access Access, persist func(b []byte) error) (*MR, error) {
	return p.reg(buf, access, mr.Options{Persist: persist})
}

// RegMRForeign registers memory outside of Go's heap, at an address that the caller chooses
// (ibv_reg_mr_iova): mapped files, memory shared with other processes, memory of C. It differs from
// [PD.RegMRIova] in two ways. If the memory is unmapped or protected while it is registered, work requests
// that touch it end with LOC_PROT_ERR, and those of peers with REM_ACCESS_ERR; the process does not crash.
// And the device stores the last word of each packet last, at once, for programs that watch the last byte
// of a message, as they do with adapters. This costs a little time for each packet. Watched is EINVAL.
func (p *PD) RegMRForeign(buf []byte, iova uint64, access Access) (*MR, error) {
	return p.reg(buf, access, mr.Options{IOVA: iova, HasIOVA: true, Foreign: true})
}

// Rereg selects the changes of a reregistration (enum ibv_rereg_mr_flags).
type Rereg = mr.Rereg

// Changes of a reregistration.
const (
	ReregTranslation = mr.ReregTranslation // memory and address
	ReregPD          = mr.ReregPD          // protection domain
	ReregAccess      = mr.ReregAccess      // rights
)

// MRChange is the new state of a region for [MR.Reregister]. Reregister uses only the
// fields that Change selects.
type MRChange struct {
	Change Rereg // one or more of the Rereg constants

	PD *PD // ReregPD

	// ReregTranslation: the memory, and if HasIOVA is set its address.
	Mem     []byte
	IOVA    uint64
	HasIOVA bool

	Access Access // ReregAccess
}

// Reregister changes a region in place (ibv_rereg_mr): its memory, its protection
// domain, its rights, or several at once. The keys stay the same. When it returns,
// nothing accesses the old memory any more. Queued work requests use the region in
// the state at their execution.
//
// If it fails, nothing has changed (IBV_REREG_MR_ERR_INPUT; the codes for a
// lost region have no counterpart here). It fails with EINVAL where [PD.RegMR]
// does, for a Change that is 0 or unknown, for rights without ReregAccess, and
// for new memory of a region of [PD.AllocMR]; and with EBUSY while windows are
// bound to the region or it is part of an indirect region.
func (m *MR) Reregister(c MRChange) error {
	m.dev.nic.Lock()
	defer m.dev.nic.Unlock()
	if m.closed {
		return ErrClosed
	}
	if c.Change&ReregTranslation != 0 && m.free != nil {
		return fail("reregister", syscall.EINVAL, "the region's memory is the device's own")
	}
	var pd *mr.PD
	if c.Change&ReregPD != 0 {
		if c.PD == nil || c.PD.dev != m.dev {
			return fail("reregister", syscall.EINVAL, "a protection domain of the same device is required")
		}
		pd = c.PD.pd
	}
	if err := m.mr.Reregister(c.Change, pd, c.Mem, c.Access, mr.Options{IOVA: c.IOVA, HasIOVA: c.HasIOVA}); err != nil {
		return err
	}
	mem := *m.mem.Load()
	if c.Change&ReregTranslation != 0 {
		mem.b = c.Mem
	}
	mem.watched = m.mr.Access()&mr.Watched != 0
	m.mem.Store(&mem)
	return nil
}

// The methods below read memory while peers write it, and write memory while
// peers read it. docs/memory.md has the rules.

// Load64 returns the 64-bit word at offset off, in the byte order of the host. It
// synchronizes like sync/atomic: a goroutine that loads a value which a peer stored with an
// atomic or ATOMIC_WRITE, or with any WRITE if the region is [Watched], also sees everything
// that the peer wrote before on that queue pair. off must be inside the region, and the
// memory there aligned to 8 bytes; otherwise Load64 panics, as indexing a slice does.
func (m *MR) Load64(off int) uint64 { return mr.Load64(m.Bytes()[off:]) }

// Store64 stores a 64-bit word at offset off, in the byte order of the host, with
// the memory order of sync/atomic. Peers' atomics see it, and their READs if the
// region is [Watched]. See [MR.Load64].
func (m *MR) Store64(off int, v uint64) { mr.Store64(m.Bytes()[off:], v) }

// ReadAt copies from offset off ([io.ReaderAt]). In a [Watched] region it loads
// every aligned word at once, as [MR.Load64] does, from the first to the last; in
// other regions it is a plain copy.
func (m *MR) ReadAt(p []byte, off int64) (n int, err error) {
	mem := m.mem.Load()
	switch {
	case off < 0:
		return 0, errs.On("read memory", m.LKey().Object(), syscall.EINVAL, "offset %d is negative", off)
	case off >= int64(len(mem.b)):
		return 0, io.EOF
	}
	b := mem.b[off:]
	n = min(len(p), len(b))
	if mem.watched {
		mr.LoadWords(p[:n], b)
	} else {
		copy(p, b)
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// WriteAt copies to offset off ([io.WriterAt]). In a [Watched] region it stores
// every aligned word at once, as [MR.Store64] does, from the first to the last,
// and does not change neighbouring bytes; in other regions it is a plain copy. If
// p does not fit, WriteAt fails with EINVAL and changes nothing.
func (m *MR) WriteAt(p []byte, off int64) (n int, err error) {
	mem := m.mem.Load()
	if off < 0 || off > int64(len(mem.b)) || len(p) > len(mem.b)-int(off) {
		return 0, errs.On("write memory", m.LKey().Object(), syscall.EINVAL, "%d bytes at offset %d do not fit into %d", len(p), off, len(mem.b))
	}
	if mem.watched {
		mr.StoreWords(mem.b[off:], p)
	} else {
		copy(mem.b[off:], p)
	}
	return len(p), nil
}

// NullMR is a memory region without memory (ibv_alloc_null_mr): reads return zeros, writes are
// discarded. Its scatter/gather elements, of any address and length, skip bytes of a message.
// Its key gives peers no rights.
type NullMR struct{ region }

func (m *NullMR) base() *region {
	if m == nil {
		return nil
	}
	return &m.region
}

// AllocNullMR makes a null region (ibv_alloc_null_mr).
func (p *PD) AllocNullMR() (*NullMR, error) {
	m, err := inDomain(p, func() (*mr.MR, error) { return p.dev.mem.RegisterNull(p.pd) })
	if err != nil {
		return nil, err
	}
	return &NullMR{region{dev: p.dev, mr: m}}, nil
}
