package node

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// PoolMode is how memory is registered for transfers.
type PoolMode uint8

// The modes.
const (
	// FastReg registers memory by a work request before the message that carries the key, and invalidates the
	// key when the transfer is over.
	FastReg PoolMode = iota
	// FMR keeps the key of a finished transfer valid until there are DirtyWatermark of them, and then invalidates all. With
	// Cache, memory that is mapped again before that keeps its key, without a registration. The peer of a
	// finished transfer can use the key until it is invalidated.
	FMR
)

// PoolConfig has the parameters of a [Pool].
type PoolConfig struct {
	Mode           PoolMode
	DirtyWatermark int // FMR: unused keys that may stay valid; 0: 32
	Cache          bool
}

const defaultWatermark = 32

// Pool registers memory for transfers. It makes regions on demand and reuses them. One goroutine
// at a time may call its methods.
type Pool struct {
	pd    *roce.PD
	cfg   PoolConfig
	free  []*roce.FastMR
	dirty []*Mapping
	all   []*roce.FastMR

	Registered, Reused, Flushed int // for statistics
}

// NewPool returns a pool of a protection domain.
func NewPool(pd *roce.PD, cfg PoolConfig) *Pool {
	cfg.DirtyWatermark = cmp.Or(cfg.DirtyWatermark, defaultWatermark)
	return &Pool{pd: pd, cfg: cfg}
}

// Mapping is memory that is registered with one key.
type Mapping struct {
	reg  *roce.FastMR
	key  mapKey
	size int
	// wr registers the memory. It must be posted before the key is used. It is nil when it is posted, and
	// in a cached mapping.
	wr *roce.SendWR
}

// mapKey identifies memory: two slices with the same key are the same bytes.
type mapKey struct {
	first *byte
	size  int
}

const access = roce.LocalWrite | roce.RemoteWrite

// Map prepares memory for one transfer. Memory of length 0 is an error.
func (p *Pool) Map(b []byte) (*Mapping, error) {
	key := mapKey{unsafe.SliceData(b), len(b)}
	if p.cfg.Mode == FMR && p.cfg.Cache {
		if i := slices.IndexFunc(p.dirty, func(m *Mapping) bool { return m.key == key }); i >= 0 {
			m := p.dirty[i]
			p.dirty = slices.Delete(p.dirty, i, i+1)
			p.Reused++
			return m, nil
		}
	}
	reg, err := p.region()
	if err != nil {
		return nil, err
	}
	if err := reg.Map(b); err != nil {
		p.free = append(p.free, reg)
		return nil, err
	}
	wr := reg.RegWR(access)
	p.Registered++
	return &Mapping{reg: reg, key: key, size: len(b), wr: &wr}, nil
}

// region takes a free region, or makes one.
func (p *Pool) region() (*roce.FastMR, error) {
	if n := len(p.free); n > 0 {
		r := p.free[n-1]
		p.free = p.free[:n-1]
		return r, nil
	}
	r, err := p.pd.AllocFastReg(roce.FastRegConfig{Pieces: wire.MaxFragments})
	if err == nil {
		p.all = append(p.all, r)
	}
	return r, err
}

// Unmap returns a mapping to the pool.
func (p *Pool) Unmap(m *Mapping) {
	p.dirty = append(p.dirty, m)
	if p.cfg.Mode == FastReg || len(p.dirty) >= p.cfg.DirtyWatermark || m.wr != nil || !m.reg.Valid() {
		p.Flush() // also if the registration was not executed: its key is not valid
	}
}

// Flush invalidates the keys of all returned mappings.
func (p *Pool) Flush() {
	for _, m := range p.dirty {
		if m.reg.Valid() { // false if its registration was never executed
			m.reg.Invalidate()
		}
		p.free = append(p.free, m.reg)
		p.Flushed++
	}
	p.dirty = p.dirty[:0]
}

// Close frees the regions.
func (p *Pool) Close() {
	p.Flush()
	for _, r := range p.all {
		r.Close()
	}
	p.all, p.free = nil, nil
}

// rkey returns the key of the mapping, or the key that it gets when wr is executed.
func (m *Mapping) rkey() roce.RKey {
	if m.wr != nil {
		return m.wr.RKey
	}
	return m.reg.RKey()
}

// Descriptor describes the mapping to a peer in fragments of size bytes, 0: in one. It makes larger fragments if a message
// has no room for so many.
func (m *Mapping) Descriptor(size int) wire.Descriptor {
	if size <= 0 {
		size = m.size
	}
	size = max(size, (m.size+wire.MaxFragments-1)/wire.MaxFragments) // at most MaxFragments fit into a message
	d := wire.Descriptor{RKey: uint32(m.rkey())}
	for off := 0; off < m.size; off += size {
		d.Frags = append(d.Frags, wire.Fragment{Len: uint32(min(size, m.size-off)), Addr: m.reg.Addr() + uint64(off)})
	}
	return d
}
