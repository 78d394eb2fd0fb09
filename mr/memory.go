package mr

// Memory is the result of a lookup, for one access: look up, copy, discard.
// Between lookup and copy another shard may revoke the key (bind,
// invalidate); the copy then returns [BadKey]. Nobody revokes a user's region
// while the engine runs, so its copies always succeed.
//
// Callers pass only offsets within an access that [Table.Local] or
// [Table.Remote] allowed; the methods panic on others.
type Memory struct {
	m   *MR
	g   *grant // nil: a user's region, looked up by its own key
	gen uint32 // generation of g when it was looked up
}

// ReadAt copies len(dst) bytes at off to dst.
func (v Memory) ReadAt(dst []byte, off uint64) Fault {
	if v.g == nil {
		return v.m.get(dst, v.m.buf[off:off+uint64(len(dst))])
	}
	return v.read(dst, off)
}

func (v Memory) read(dst []byte, off uint64) Fault {
	return v.walk(off, uint64(len(dst)), func(m *MR, b []byte) Fault {
		f := m.get(dst[:len(b)], b)
		dst = dst[len(b):]
		return f
	})
}

// WriteAt copies src to off. If it fails it may have copied a part of src.
func (v Memory) WriteAt(off uint64, src []byte) Fault {
	if v.g == nil {
		return v.m.put(v.m.buf[off:off+uint64(len(src))], src)
	}
	return v.write(off, src)
}

func (v Memory) write(off uint64, src []byte) Fault {
	return v.walk(off, uint64(len(src)), func(m *MR, b []byte) Fault {
		f := m.put(b, src[:len(b)])
		src = src[len(b):]
		return f
	})
}

// InPlace returns the n bytes at off themselves, so that a link can send them without a
// copy. ok is true only for memory registered with Options.InPlace and without
// [Watched], because the bytes must not change until they are sent.
func (v Memory) InPlace(off, n uint64) (b []byte, ok bool) {
	if v.g != nil || !v.m.inPlace || v.m.watched {
		return nil, false
	}
	return v.m.buf[off : off+n : off+n], true
}

// walk calls do with the pieces of memory that make up n bytes from off, and
// keeps the key from being revoked meanwhile.
func (v Memory) walk(off, n uint64, do func(owner *MR, b []byte) Fault) Fault {
	if !v.g.pinned(v.gen) {
		return BadKey
	}
	f := v.m.walk(off, n, do)
	v.g.unpin()
	return f
}

// word calls do with the 8 bytes at off, which must lie in one piece of memory.
func (v Memory) word(off uint64, do func(b []byte)) Fault {
	if v.g == nil {
		return v.m.touch(func() { do(v.m.buf[off : off+8]) })
	}
	return v.piece(off, 8, func(b []byte, at uint64) { do(b[at : at+8]) })
}

// piece calls do with the piece of memory that holds the size bytes at off, and
// with their place in it. They must lie in one piece: an atomic cannot span
// two.
func (v Memory) piece(off uint64, size int, do func(b []byte, at uint64)) Fault {
	if v.g == nil {
		return v.m.touch(func() { do(v.m.buf, off) })
	}
	if !v.g.pinned(v.gen) {
		return BadKey
	}
	split := false
	f := v.m.around(off, func(b []byte, at uint64) {
		if split = at+uint64(size) > uint64(len(b)); !split {
			do(b, at)
		}
	})
	v.g.unpin()
	if split {
		return BadRange
	}
	return f
}
