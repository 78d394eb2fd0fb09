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
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	if p.closed {
		return ErrClosed
	}
	if err := p.pd.Dealloc(); err != nil {
		return err
	}
	p.closed = true
	return nil
}

// autoPD is a domain that a connection made: its Close never fails.
type autoPD struct{ *PD }

// Close lets the domain go with the last object in it. Nothing more comes into it.
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
	Addr() uint64       // of the first byte, as work requests name it
	Len() int           // in bytes
	LKey() LKey         // the key for local work requests
	RKey() RKey         // the key a peer needs
	SGE(off, n int) SGE // n bytes from offset off, for a work request
	Flushes() uint64    // of peers, that the region has seen
	Close() error       // deregisters it
	base() *region      // nil: of a nil pointer
}

// region is what regions of all kinds have.
type region struct {
	dev    *Device
	mr     *mr.MR
	closed bool // guarded by the device
}

// baseOf returns what a region of any kind has, or nil if it is nil.
func baseOf(r Region) *region {
	if r == nil {
		return nil
	}
	return r.base()
}

// MR is a memory region (struct ibv_mr) of memory that was given when it was made. Its
// methods may be called from any goroutine.
type MR struct {
	region
	mem  atomic.Pointer[memory] // what Load64, Store64, ReadAt and WriteAt look at
	free func()                 // gives the memory back; nil: it is the program's
	conn *Conn                  // whose RegMR made the region; nil: no connection's
}

// memory is the memory of an MR. It does not change.
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

// maxAlloc is more than any process has: make of as much panics. On systems of 32 bits it is
// half of what a pointer can name.
const maxAlloc = min(1<<47, math.MaxInt/2+1)

// AllocMR makes a region of n bytes, which are zero, in memory of the device's own: the
// best that its link can send from. There is no such call in the verbs; the closest is
// IBV_EXP_ACCESS_ALLOCATE_MR of vendors' libraries. MR.Bytes is the memory; after
// MR.Close it must not be touched any more.
//
// On a device of driver "xdp" with xdp.Config.Memory the memory is of the UMEM, and the
// payload of SENDs and WRITEs of reliable queue pairs can be sent from there without a
// copy in user space, where xdp.Config.InPlace says that this pays. What is sent again,
// READ responses, unreliable messages, packets whose payload is in several elements, and
// regions that are [Watched], are copied as ever. It must not be changed before the work
// request completes, which the verbs ask for anyway: packets that were on their way while
// it changed, or when a queue pair failed, are thrown away by their receiver for a wrong
// ICRC. ENOMEM says that there are not n bytes left in one piece.
//
// On every other device, and inside a wrapper, it is ordinary memory: if the system has not as
// much the process ends, as with make. EINVAL is returned for what [PD.RegMR] refuses.
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
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	if p.closed || p.dev.nic.Closed() {
		return nil, ErrClosed
	}
	e, err := p.dev.mem.Register(p.pd, buf, access, o)
	if err != nil {
		return nil, err
	}
	m := &MR{region: region{dev: p.dev, mr: e}}
	m.mem.Store(&memory{buf, access&mr.Watched != 0})
	return m, nil
}

// Close deregisters the region (ibv_dereg_mr). When it returns, neither
// the engine nor a peer touches the memory any more. Queued operations that name its
// keys fail.
//
// It fails with EBUSY while memory windows are bound to the region, or it is
// part of an indirect one.
func (m *MR) Close() error {
	err := m.close()
	if err == nil && m.conn != nil {
		m.conn.forget(m)
	}
	return err
}

func (m *MR) close() error {
	m.dev.nic.Lock()
	defer m.dev.nic.Unlock()
	if err := m.closeLocked(); err != nil {
		return err
	}
	if m.free != nil {
		m.mem.Store(&memory{})
		m.free()
	}
	return nil
}

// Bytes returns the memory that was registered. Memory of the device's own
// ([PD.AllocMR]) is none any more when the region is closed.
func (m *MR) Bytes() []byte { return m.mem.Load().b }

// closeLocked deregisters a region with the device locked.
func (m *region) closeLocked() error {
	if m.closed {
		return ErrClosed
	}
	if err := m.mr.Deregister(); err != nil {
		return err
	}
	m.closed = true
	return nil
}

// Close deregisters the region (ibv_dereg_mr), registered or not by a work request. See
// [MR.Close].
func (m *region) Close() error {
	m.dev.nic.Lock()
	defer m.dev.nic.Unlock()
	return m.closeLocked()
}

// Addr returns the address of the first byte, as work requests name it.
func (m *region) Addr() uint64 { return m.mr.Addr() }

// Len returns the length in bytes.
func (m *region) Len() int { return m.mr.Length() }

// LKey returns the key for local work requests.
func (m *region) LKey() LKey { return m.mr.LKey() }

// RKey returns the key a peer needs.
func (m *region) RKey() RKey { return m.mr.RKey() }

// SGE describes n bytes from offset off, for a work request. It does not check them: an
// element that is not inside of the region ends its work request with LOC_PROT_ERR, and one of
// a length below 0 or of 4 GiB and more is refused while posting (EINVAL).
func (m *region) SGE(off, n int) SGE { return m.mr.SGE(off, n) }

// Flushes returns how many FLUSHes of peers the region has executed. A goroutine that sees
// the number grow also sees, without a race, everything that the peer's queue pair wrote before
// that FLUSH.
func (m *region) Flushes() uint64 { return m.mr.Flushes() }

// RegMRPersistent registers memory that survives a loss of power, so that a
// peer may FLUSH it with [PlacePersistent] if access has [FlushPersistent].
// persist makes what was written to b, a part of buf, survive: msync of a mapped
// file, or the write-back of cache lines. It runs while the FLUSH is executed:
// it must not call the device, and while it blocks nothing else is done. If it
// fails the peer's FLUSH does (REM_OP_ERR).
func (p *PD) RegMRPersistent(buf []byte, access Access, persist func(b []byte) error) (*MR, error) {
	return p.reg(buf, access, mr.Options{Persist: persist})
}

// RegMRForeign registers memory that is not of Go's heap, under an address of the caller's choice
// (ibv_reg_mr_iova): mapped files, memory shared with other processes, memory of C. It stays usable
// for Go programs, with two differences. Memory that is unmapped or protected while it is registered
// ends the work requests that touch it (LOC_PROT_ERR, and for peers REM_ACCESS_ERR), not the
// process. And of each packet that is written the last word is stored last, at once, for programs that look
// at the last byte of a message to see that it is there, as they do with adapters. It costs some
// nanoseconds a packet. Watched is EINVAL.
func (p *PD) RegMRForeign(buf []byte, iova uint64, access Access) (*MR, error) {
	return p.reg(buf, access, mr.Options{IOVA: iova, HasIOVA: true, Foreign: true})
}

// Rereg says what a reregistration changes (enum ibv_rereg_mr_flags).
type Rereg = mr.Rereg

// What a reregistration changes.
const (
	ReregTranslation = mr.ReregTranslation // memory and address
	ReregPD          = mr.ReregPD          // protection domain
	ReregAccess      = mr.ReregAccess      // rights
)

// MRChange is the new state of a region for [MR.Reregister]. Only what Change names counts.
type MRChange struct {
	Change Rereg // what to change, one or more of the Rereg constants

	PD *PD // ReregPD

	// ReregTranslation: the memory, and if HasIOVA is set its address.
	Mem     []byte
	IOVA    uint64
	HasIOVA bool

	Access Access // ReregAccess
}

// Reregister changes a region in place (ibv_rereg_mr): its memory, its
// protection domain, its rights, or several at once. The keys stay the same.
// When it returns, nothing touches the memory that it had before. Work requests that
// are queued use the region as it is when they come to it.
//
// When it fails nothing has changed (IBV_REREG_MR_ERR_INPUT; the codes after
// which a region is lost have no counterpart here): EINVAL for what
// [PD.RegMR] refuses, for a Change that is 0 or unknown, and for rights without
// ReregAccess; EBUSY while windows are bound to the region or it is part of an
// indirect one. A region of [PD.AllocMR] keeps its memory (EINVAL).
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

// The methods below look at memory while peers change it, and change it while
// they look. docs/memory.md has the rules.

// Load64 returns the 64-bit word at offset off, in the byte order of the host.
// It synchronizes like sync/atomic: a goroutine that loads a value which a peer stored
// with an atomic or ATOMIC_WRITE, or with any WRITE if the region is [Watched], also sees
// everything that the peer wrote before on that queue pair. off must be inside of the region
// and the memory there aligned to 8 bytes; otherwise Load64 panics, as a slice does.
func (m *MR) Load64(off int) uint64 { return mr.Load64(m.Bytes()[off:]) }

// Store64 stores a 64-bit word at offset off, in the byte order of the host, with
// the memory order of sync/atomic. Peers' atomics see it, and their READs if the
// region is [Watched]. See [MR.Load64].
func (m *MR) Store64(off int, v uint64) { mr.Store64(m.Bytes()[off:], v) }

// ReadAt copies from offset off ([io.ReaderAt]). Of a [Watched] region every
// aligned word is loaded at once, as with [MR.Load64], from the first to the last;
// of others it is a plain copy.
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

// WriteAt copies to offset off ([io.WriterAt]). In a [Watched] region every
// aligned word is stored at once, as with [MR.Store64], from the first to the
// last, and bytes beside what is written stay as they are; in others it is a plain
// copy. It changes nothing if p does not fit (EINVAL).
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

// NullMR is a memory region without memory (ibv_alloc_null_mr): what is read from it is zero,
// what is written to it is discarded. Scatter/gather elements of it, of any address and length,
// skip bytes of a message. Peers can do nothing with its key.
type NullMR struct{ region }

func (m *NullMR) base() *region {
	if m == nil {
		return nil
	}
	return &m.region
}

// AllocNullMR makes a null region (ibv_alloc_null_mr).
func (p *PD) AllocNullMR() (*NullMR, error) {
	p.dev.nic.Lock()
	defer p.dev.nic.Unlock()
	if p.closed || p.dev.nic.Closed() {
		return nil, ErrClosed
	}
	m, err := p.dev.mem.RegisterNull(p.pd)
	if err != nil {
		return nil, err
	}
	return &NullMR{region{dev: p.dev, mr: m}}, nil
}
