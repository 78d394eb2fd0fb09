package mr

import "github.com/goroce/roce/bth"

// Memory is what a key opened, for one access: look up, copy, forget. Between
// the two another shard may revoke the key (bind, invalidate); the copy then
// returns [BadKey]. A user's region is not revoked while the engine runs, and
// its copies always succeed.
//
// The offsets of the methods are those that [Table.Local] and [Table.Remote]
// return for an access they allowed; others are the caller's fault and panic.
type Memory struct {
	m   *MR
	g   *grant // nil: a user's region, looked up by its own key
	gen uint32 // generation of g when it was looked up
}

// ReadAt copies len(dst) bytes out.
func (v Memory) ReadAt(dst []byte, off uint64) Fault {
	if v.g == nil {
		v.m.get(dst, v.m.buf[off:off+uint64(len(dst))])
		return OK
	}
	return v.read(dst, off)
}

func (v Memory) read(dst []byte, off uint64) Fault {
	return v.pieces(off, uint64(len(dst)), func(b []byte) {
		v.m.get(dst[:len(b)], b)
		dst = dst[len(b):]
	})
}

// WriteAt copies src in. When it fails a part of src may have been copied.
func (v Memory) WriteAt(off uint64, src []byte) Fault {
	if v.g == nil {
		v.m.put(v.m.buf[off:off+uint64(len(src))], src)
		return OK
	}
	return v.write(off, src)
}

func (v Memory) write(off uint64, src []byte) Fault {
	return v.pieces(off, uint64(len(src)), func(b []byte) {
		v.m.put(b, src[:len(b)])
		src = src[len(b):]
	})
}

// CopyOut copies len(dst) bytes out and returns crc continued over them: one
// pass over the data instead of two.
func (v Memory) CopyOut(dst []byte, off uint64, crc bth.CRC) (bth.CRC, Fault) {
	if v.g == nil {
		return v.m.getCRC(dst, v.m.buf[off:off+uint64(len(dst))], crc), OK
	}
	return v.copyOut(dst, off, crc)
}

func (v Memory) copyOut(dst []byte, off uint64, crc bth.CRC) (bth.CRC, Fault) {
	f := v.pieces(off, uint64(len(dst)), func(b []byte) {
		crc = v.m.getCRC(dst[:len(b)], b, crc)
		dst = dst[len(b):]
	})
	return crc, f
}

// word calls do with the 8 bytes at off. They must lie in one piece of memory:
// there is no atomic on two.
func (v Memory) word(off uint64, do func(b []byte)) Fault {
	if v.g == nil {
		do(v.m.buf[off : off+8])
		return OK
	}
	split := false
	f := v.pieces(off, 8, func(b []byte) {
		if len(b) == 8 {
			do(b)
		} else {
			split = true
		}
	})
	if split {
		return BadRange
	}
	return f
}

// pieces calls do with the pieces of memory that make up n bytes from off, and
// keeps the key from being revoked meanwhile.
func (v Memory) pieces(off, n uint64, do func(b []byte)) (f Fault) {
	if !v.g.pinned(v.gen) {
		return BadKey
	}
	if buf := v.m.buf; buf != nil {
		do(buf[off : off+n])
	} else {
		f = v.m.walk(off, n, do)
	}
	v.g.unpin()
	return f
}
