package rsocket

import (
	"errors"
	"math"
	"slices"
	"syscall"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/errs"
)

// Mapping is memory that the peer may write to by offset.
type Mapping struct {
	conn   *Conn
	mr     *roce.MR
	index  int
	offset uint64
}

// Map lets the peer write to buf with [Conn.WriteAt] from offset on (riomap with
// PROT_WRITE). It waits until it can announce the mapping. The peer limits the number of
// mappings (its Config.Maps); beyond it Map fails with ENOMEM. The two programs agree by
// messages on the stream when the peer writes: if this side has read data that the peer
// sent after a WriteAt, the write is done.
func (c *Conn) Map(buf []byte, offset int64) (*Mapping, error) {
	return c.mapMemory(buf, offset, func() (*roce.MR, error) { return c.pd.RegMR(buf, mapped) })
}

// MapForeign is Map for memory outside of Go's heap, registered by [roce.PD.RegMRForeign]:
// the last byte of a write changes last, for programs that watch it.
func (c *Conn) MapForeign(buf []byte, offset int64) (*Mapping, error) {
	return c.mapMemory(buf, offset, func() (*roce.MR, error) {
		return c.pd.RegMRForeign(buf, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))), mapped)
	})
}

// mapped has the rights of the peer on mapped memory.
const mapped = roce.LocalWrite | roce.RemoteWrite

func (c *Conn) mapMemory(buf []byte, offset int64, register func() (*roce.MR, error)) (*Mapping, error) {
	if offset < 0 || uint64(len(buf)) > math.MaxUint32 {
		return nil, c.fail("map", errs.New("map", syscall.EINVAL, "%d bytes at offset %d", len(buf), offset))
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	// Close waits for this lock before it frees the domain.
	if err := c.openError("map"); err != nil {
		return nil, err
	}
	index, err := c.freeMapping()
	if err != nil {
		return nil, c.fail("map", err)
	}
	mr, err := register()
	if err != nil {
		return nil, c.fail("map", err)
	}
	m := &Mapping{conn: c, mr: mr, index: index, offset: uint64(offset)}
	if err = c.announce(m); err != nil {
		return nil, c.fail("map", errors.Join(err, m.Close()))
	}
	return m, nil
}

// freeMapping finds an entry of the peer's table.
func (c *Conn) freeMapping() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.peer.maps {
		if !slices.ContainsFunc(c.ours, func(m *Mapping) bool { return m.index == i }) {
			return i, nil
		}
	}
	return 0, errs.New("transfer", syscall.ENOMEM, "the peer takes %d mappings", c.peer.maps)
}

// announce writes the mapping to the peer's table.
func (c *Conn) announce(m *Mapping) error {
	c.mu.Lock()
	c.ours = append(c.ours, m)
	c.mu.Unlock()
	if _, err := c.awaitRoom(lowWater); err != nil {
		return err
	}
	o := order(c.peer.bigEndian)
	entry := mapping{m.offset, extent{m.mr.Addr(), m.mr.RKey(), uint32(m.mr.Len())}}
	table := c.peer.table
	c.mu.Lock()
	c.tx.seq++
	at := c.tx.hold(0)
	c.busy++
	wr := &roce.SendWR{Opcode: roce.WriteImm, Imm: immediate(opMap, uint32(m.index)),
		RemoteAddr: table.addr + uint64(table.length)*extentLen + uint64(m.index)*mappingLen, RKey: table.key}
	c.signaled(wr, opMap, uint32(m.index))
	c.mu.Unlock()
	return c.write(wr, at, mappingLen, entry.append(nil, o))
}

// Close ends the mapping (riounmap): further writes of the peer to it break the
// stream. It fails with net.ErrClosed if the mapping or its stream is already closed.
func (m *Mapping) Close() error {
	c := m.conn
	c.mu.Lock()
	i := slices.Index(c.ours, m)
	if i >= 0 {
		c.ours = slices.Delete(c.ours, i, i+1)
		c.leaving.Add(1)
	}
	c.mu.Unlock()
	if i < 0 {
		return c.fail("unmap", errs.ErrClosed)
	}
	defer c.leaving.Done()
	return c.fail("unmap", m.mr.Close())
}

// WriteAt writes to memory that the peer has mapped at off (riowrite). It returns
// when all data is posted to the queue pair. It fails with EFAULT where no memory
// is mapped.
func (c *Conn) WriteAt(p []byte, off int64) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err = c.writeAt(p, off, c.awaitRoom)
	return n, c.fail("write", err)
}

// writeAt writes; room is awaitRoom or tryRoom.
func (c *Conn) writeAt(p []byte, off int64, room func(want int) (int, error)) (n int, err error) {
	for n < len(p) {
		room, err := room(len(p) - n)
		if err != nil {
			return n, err
		}
		c.mu.Lock()
		to, ok := c.locate(uint64(off)+uint64(n), room)
		if !ok {
			c.mu.Unlock()
			return n, errs.New("write", syscall.EFAULT, "the peer has mapped nothing at offset %d", off+int64(n))
		}
		k := int(to.length)
		at := c.tx.hold(k)
		c.busy++
		wr := &roce.SendWR{Opcode: roce.Write, RemoteAddr: to.addr, RKey: to.key}
		c.signaled(wr, opWrite, uint32(k))
		c.mu.Unlock()
		err = c.write(wr, at, k, p[n:n+k])
		if err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// locate finds up to n bytes of the peer's memory at an offset. The caller has
// locked the state.
func (c *Conn) locate(offset uint64, n int) (extent, bool) {
	for _, m := range c.maps {
		if d := offset - m.offset; offset >= m.offset && d < uint64(m.length) {
			return extent{m.addr + d, m.key, uint32(min(uint64(n), uint64(m.length)-d))}, true
		}
	}
	return extent{}, false
}
