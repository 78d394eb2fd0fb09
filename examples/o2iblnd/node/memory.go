package node

import (
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// PoolMode is how memory is registered for transfers.
type PoolMode uint8

// The modes.
const (
	// FastReg registers by a work request in front of the message that tells the key, and ends the
	// key when the transfer is over.
	FastReg PoolMode = iota
	// FMR keeps a key until DirtyWatermark of them wait to be ended, and ends these together. With
	// Cache, the same memory gets its old key again meanwhile, without a registration. The peer of a
	// finished transfer can use the key until then.
	FMR
)

// PoolConfig says how a [Pool] registers.
type PoolConfig struct {
	Mode           PoolMode
	DirtyWatermark int // FMR: keys that wait to be ended; 0: 32
	Cache          bool
}

const defaultWatermark = 32

// Pool registers memory for transfers. Its regions are made on demand and used again. One goroutine
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
	if cfg.DirtyWatermark == 0 {
		cfg.DirtyWatermark = defaultWatermark
	}
	return &Pool{pd: pd, cfg: cfg}
}

// Mapping is memory under one key.
type Mapping struct {
	reg  *roce.FastMR
	key  mapKey
	size int
	// wr registers the memory; it must be posted before the key is used. Nil once it is posted, and
	// of a cached mapping.
	wr *roce.SendWR
}

// mapKey identifies memory: two slices with the same key are the same bytes.
type mapKey struct {
	first *byte
	size  int
}

const access = roce.LocalWrite | roce.RemoteWrite

// Map prepares memory for one transfer. Memory of length 0 is no memory: an error.
func (p *Pool) Map(b []byte) (*Mapping, error) {
	key := mapKey{unsafe.SliceData(b), len(b)}
	if p.cfg.Mode == FMR && p.cfg.Cache {
		for i, m := range p.dirty {
			if m.key == key {
				p.dirty = append(p.dirty[:i], p.dirty[i+1:]...)
				p.Reused++
				return m, nil
			}
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

// Unmap gives a mapping back.
func (p *Pool) Unmap(m *Mapping) {
	p.dirty = append(p.dirty, m)
	if p.cfg.Mode == FastReg || len(p.dirty) >= p.cfg.DirtyWatermark || m.wr != nil || !m.reg.Valid() {
		p.Flush() // of a registration that was not executed, as of a queue pair that is gone, the key is no good
	}
}

// Flush ends the keys of all mappings that were given back.
func (p *Pool) Flush() {
	for _, m := range p.dirty {
		if m.reg.Valid() { // it is not if its registration was never executed
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

// rkey is the key that the mapping has, or will have when its work request is posted.
func (m *Mapping) rkey() roce.RKey {
	if m.wr != nil {
		return m.wr.RKey
	}
	return m.reg.RKey()
}

// Descriptor describes the mapping to a peer, in fragments of at most size bytes; 0: in one.
func (m *Mapping) Descriptor(size int) wire.Descriptor {
	if size <= 0 {
		size = m.size
	}
	size = max(size, (m.size+wire.MaxFragments-1)/wire.MaxFragments) // more fragments have no room in a message
	d := wire.Descriptor{RKey: uint32(m.rkey())}
	for off := 0; off < m.size; off += size {
		d.Frags = append(d.Frags, wire.Fragment{Len: uint32(min(size, m.size-off)), Addr: m.reg.Addr() + uint64(off)})
	}
	return d
}
