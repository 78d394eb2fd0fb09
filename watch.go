package roce

import (
	"io"
	"syscall"

	"github.com/goroce/roce/mr"
)

// The methods below look at memory while peers change it, and change it while
// they look. docs/memory.md has the rules.

// Load64 returns the 64-bit word at offset off, in the byte order of the host.
// It synchronizes like sync/atomic: who sees what a peer stored with an atomic or
// ATOMIC_WRITE, or with any WRITE if the region is [Watched], sees everything that
// came before on that queue pair. off must be inside of the region and the memory
// there aligned to 8 bytes; otherwise Load64 panics, as a slice does.
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
		return 0, fail("read memory", syscall.EINVAL, "offset %d of region %v is negative", off, m.LKey())
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
		return 0, fail("write memory", syscall.EINVAL, "%d bytes at offset %d do not fit into region %v of %d", len(p), off, m.LKey(), len(mem.b))
	}
	if mem.watched {
		mr.StoreWords(mem.b[off:], p)
	} else {
		copy(mem.b[off:], p)
	}
	return len(p), nil
}
