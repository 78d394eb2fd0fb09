package mr

import "sort"

// layout is memory in pieces: where the bytes of a region lie that is not one
// slice.
type layout struct {
	iova   uint64
	length uint64
	ends   []uint64 // offset behind each piece
	pieces [][]byte
}

// clear forgets the pieces but keeps the room for them.
func (l *layout) clear() {
	clear(l.pieces) // so that nothing is kept alive
	l.iova, l.length, l.ends, l.pieces = 0, 0, l.ends[:0], l.pieces[:0]
}

// add appends a piece.
func (l *layout) add(b []byte) {
	l.length += uint64(len(b))
	l.ends = append(l.ends, l.length)
	l.pieces = append(l.pieces, b)
}

// walk calls f with the pieces that make up n bytes from offset off, in order.
// It finds the first by bisection.
func (m *MR) walk(off, n uint64, f func([]byte)) Fault {
	l := &m.mapping.current
	for i := l.find(off); n > 0; i++ {
		p := l.pieces[i]
		p = p[uint64(len(p))-(l.ends[i]-off):]
		p = p[:min(n, uint64(len(p)))]
		f(p)
		off, n = off+uint64(len(p)), n-uint64(len(p))
	}
	return OK
}

// find returns the piece that holds offset off.
func (l *layout) find(off uint64) int {
	return sort.Search(len(l.ends), func(i int) bool { return off < l.ends[i] })
}
