package mr

import "github.com/goroce/roce/bth"

// Memory is what a key opened, for one access: look up, copy, forget. Between
// the two another shard may revoke the key (bind, invalidate); the copy then
// does nothing and returns [BadKey]. A user's region is not revoked while the
// engine runs, and its copies always succeed.
//
// The offsets of the methods are those that [Table.Local] and [Table.Remote]
// return for an access they allowed; others are the caller's fault and panic.
type Memory struct {
	m   *MR
	g   *grant // set if the key can be revoked
	gen uint32 // generation of g when it was looked up
}

// hold keeps the memory from being revoked until release.
func (v Memory) hold() bool { return v.g == nil || v.g.pinned(v.gen) }

func (v Memory) release() {
	if v.g != nil {
		v.g.unpin()
	}
}

// ReadAt copies len(dst) bytes out.
func (v Memory) ReadAt(dst []byte, off uint64) Fault {
	if !v.hold() {
		return BadKey
	}
	copy(dst, v.m.buf[off:off+uint64(len(dst))])
	v.release()
	return OK
}

// WriteAt copies src in.
func (v Memory) WriteAt(off uint64, src []byte) Fault {
	if !v.hold() {
		return BadKey
	}
	copy(v.m.buf[off:off+uint64(len(src))], src)
	v.release()
	return OK
}

// CopyOut copies len(dst) bytes out and returns crc continued over them: one
// pass over the data instead of two.
func (v Memory) CopyOut(dst []byte, off uint64, crc bth.CRC) (bth.CRC, Fault) {
	if !v.hold() {
		return crc, BadKey
	}
	crc = crc.Copy(dst, v.m.buf[off:off+uint64(len(dst))])
	v.release()
	return crc, OK
}
