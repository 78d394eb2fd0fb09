package mr

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

// WriteAt copies src in. When it fails a part of src may have been copied.
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

// InPlace returns the n bytes at off where they are, to be sent from there without a
// copy. Only memory registered for it is lent, and not if it is [Watched]: what it holds
// must not change on the way.
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
// where in it. They must lie in one: there is no atomic on two.
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
