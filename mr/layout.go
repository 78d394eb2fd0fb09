package mr

import "sort"

// layout is the memory of a region that is not one slice: pieces of memory one
// behind the other, or parts of other regions, possibly in several rounds.
type layout struct {
	iova   uint64
	length uint64
	round  uint64   // bytes of one round; all of them for pieces
	ends   []uint64 // offset in the round behind each piece or part
	pieces [][]byte // of a fast registration
	parts  []part   // of an indirect region
	depth  int      // of an indirect region: regions below one another, itself included
}

// part is a part of another region. In each round it begins stride bytes further on.
type part struct {
	m      *MR
	gen    uint32 // the generation that m must still have
	off    uint64
	stride uint64
}

// clear empties the layout and keeps its memory.
func (l *layout) clear() {
	clear(l.pieces) // so that nothing is kept alive
	clear(l.parts)
	*l = layout{ends: l.ends[:0], pieces: l.pieces[:0], parts: l.parts[:0]}
}

// place is a place in a layout.
type place struct {
	i     int    // piece or part
	round uint64 // number of the round
	at    uint64 // offset in the piece, or in the part of this round
	left  uint64 // bytes from there to its end
}

// seek finds the place of an offset by bisection.
func (l *layout) seek(off uint64) (p place) {
	if off >= l.round { // otherwise no division is needed
		p.round = off / l.round
		off -= p.round * l.round
	}
	p.i = sort.Search(len(l.ends), func(i int) bool { return off < l.ends[i] })
	p.left = l.ends[p.i] - off
	p.at = l.size(p.i) - p.left
	return p
}

// size returns how long a piece or part is.
func (l *layout) size(i int) uint64 {
	if i == 0 {
		return l.ends[0]
	}
	return l.ends[i] - l.ends[i-1]
}

// next moves to the next piece or part.
func (l *layout) next(p *place) {
	if p.i++; p.i == len(l.ends) {
		p.i = 0
		p.round++
	}
	p.at, p.left = 0, l.size(p.i)
}

// walk calls f with the pieces of memory that make up n bytes from offset off
// of a region, in order, and with the region of each piece. It stops at a
// part whose region has changed since the registration.
func (m *MR) walk(off, n uint64, f func(owner *MR, b []byte) Fault) Fault {
	switch {
	case m.null:
		return m.walkNull(n, f)
	case m.mapping == nil:
		return f(m, m.buf[off:off+n])
	}
	l := &m.mapping.current
	for p := l.seek(off); n > 0; l.next(&p) {
		k := min(n, p.left)
		var fault Fault
		if len(l.parts) == 0 {
			fault = f(m, l.pieces[p.i][p.at:p.at+k])
		} else {
			fault = l.parts[p.i].walk(p, k, f)
		}
		if fault != OK {
			return fault
		}
		n -= k
	}
	return OK
}

func (x *part) walk(p place, n uint64, f func(*MR, []byte) Fault) Fault {
	if !x.hold() {
		return BadKey
	}
	fault := x.m.walk(x.off+p.round*x.stride+p.at, n, f)
	x.release()
	return fault
}

// around calls f with the piece of memory that holds the byte at offset off,
// up to the end of the region, and with the place of that byte in the piece.
func (m *MR) around(off uint64, f func(b []byte, at uint64)) Fault {
	if m.mapping == nil {
		return m.touch(func() { f(m.buf, off) })
	}
	l := &m.mapping.current
	p := l.seek(off)
	if len(l.parts) == 0 {
		f(l.pieces[p.i], p.at)
		return OK
	}
	x := &l.parts[p.i]
	if !x.hold() {
		return BadKey
	}
	fault := x.m.around(x.off+p.round*x.stride+p.at, func(b []byte, at uint64) {
		lo, hi := at-min(at, p.at), min(at+p.left, uint64(len(b)))
		f(b[lo:hi], at-lo)
	})
	x.release()
	return fault
}

// hold prevents the invalidation of a part's region until release. While it
// is part of a region nobody can deregister or reregister it.
func (x *part) hold() bool {
	g := x.m.g
	return g.kind() == userRegion && g.gen == x.gen || g.kind() != userRegion && g.pinned(x.gen)
}

func (x *part) release() {
	if g := x.m.g; g.kind() != userRegion {
		g.unpin()
	}
}
