package mr

import "math"

// A null region has no memory: a read returns zeros, and a write is discarded. Local work
// requests use it to skip bytes of a message, at any address. It grants peers nothing, so no
// atomic ever operates on it.

// zeros are the bytes of a null region, one piece at a time.
var zeros [1 << 16]byte

// RegisterNull makes a null region (ibv_alloc_null_mr). The errors are *[errs.Error] and
// wrap EINVAL for no domain and ENOMEM when there are too many regions.
func (t *Table) RegisterNull(pd *PD) (*MR, error) {
	m, err := t.newRegion("register null region", pd, nullRegion)
	if err != nil {
		return nil, err
	}
	m.null, m.special = true, true
	m.length.Store(math.MaxInt)
	m.access.Store(uint32(LocalWrite))
	m.g.length, m.g.access = math.MaxUint64, LocalWrite
	m.g.publish(m.g.key(), stateValid)
	return m, nil
}

// walkNull is [MR.walk] for a null region. f may only read the bytes or call [MR.put], which handles
// null regions.
func (m *MR) walkNull(n uint64, f func(owner *MR, b []byte) Fault) Fault {
	for n > 0 {
		k := min(n, uint64(len(zeros)))
		if fault := f(m, zeros[:k]); fault != OK {
			return fault
		}
		n -= k
	}
	return OK
}
