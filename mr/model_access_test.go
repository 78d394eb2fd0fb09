package mr

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/roce/bth"
)

// The accesses of the model.

// opening is the access that a key gives in the model.
type opening struct {
	pd    int
	qpn   bth.QPN
	iova  uint64
	acc   Access
	bytes []modelByte
}

func (x *machine) find(key uint32, local bool) (o opening, ok bool) {
	for _, r := range x.regions {
		if r.valid && r.key == key {
			return opening{r.pd, 0, r.iova, r.acc, r.bytes}, true
		}
	}
	for _, w := range x.windows {
		if w.on != nil && w.key == key && !local {
			return opening{w.pd, w.qpn, w.iova, w.acc, w.bytes}, true
		}
	}
	return o, false
}

// access looks up a key, locally or as a peer, and uses the memory that it opens.
func (x *machine) access() error {
	key, _ := pick(x, x.keys)
	switch x.dice(4) { // prefers keys that are valid
	case 0, 1:
		if w, ok := pick(x, x.windows); ok {
			key = w.key
		}
	case 2:
		if r, ok := pick(x, x.regions); ok {
			key = r.key
		}
	case 3:
		for _, r := range x.regions {
			if r.indirect && r.valid {
				key = r.key
			}
		}
	}
	local := x.dice(4) == 0
	o, found := x.find(key, local)
	pd, q := o.pd, modelQPs[x.dice(2)]
	if o.qpn != 0 && x.dice(4) > 0 {
		q = o.qpn
	}
	if x.dice(8) == 0 {
		pd = 1 - pd
	}
	need := []Access{RemoteRead, RemoteWrite, RemoteAtomic}[x.dice(3)]
	if o.acc&need == 0 && x.dice(4) > 0 {
		need = o.acc & (RemoteRead | RemoteWrite)
	}
	if local {
		need = []Access{0, LocalWrite}[x.dice(2)]
	}
	off, n := x.offset(len(o.bytes)), uint64(1+x.dice(20))
	if need == RemoteAtomic {
		n = 8
	}
	if x.dice(16) == 0 {
		n = ^uint64(0) - uint64(x.dice(200))
	}
	var v Memory
	var at uint64
	var f Fault
	if local {
		n = uint64(uint32(n))
		sge := SGE{o.iova + off, uint32(n), bth.LKey(key)}
		v, at, f = x.tab.Local(x.pds[pd], sge, need)
		if v2, at2, f2 := x.trail.Local(x.tab, x.pds[pd], sge, need); v2 != v || at2 != at || f2 != f {
			return fmt.Errorf("L_Key %#x by a trail: %+v at %d, %v, want %+v at %d, %v", key, v2, at2, f2, v, at, f)
		}
	} else {
		v, at, f = x.tab.Remote(x.pds[pd], q, bth.RKey(key), o.iova+off, n, need)
		if v2, at2, f2 := x.trail.Remote(x.tab, x.pds[pd], q, bth.RKey(key), o.iova+off, n, need); v2 != v || at2 != at || f2 != f {
			return fmt.Errorf("R_Key %#x by a trail: %+v at %d, %v, want %+v at %d, %v", key, v2, at2, f2, v, at, f)
		}
	}
	want := OK
	switch {
	case !found:
		want = BadKey
	case pd != o.pd:
		want = BadPD
	case o.qpn != 0 && o.qpn != q:
		want = BadQP
	case o.acc&need != need:
		want = BadAccess
	case off > uint64(len(o.bytes)) || n > uint64(len(o.bytes))-off:
		want = BadRange
	}
	if f != want {
		return fmt.Errorf("access %v: %v, model says %v", need, f, want)
	}
	if f != OK {
		return nil
	}
	x.allowed++
	return x.use(v, at, o.bytes[off:off+n], need)
}

// use reads or changes memory and compares the result with the bytes of the model.
func (x *machine) use(v Memory, at uint64, bytes []modelByte, need Access) error {
	buf := make([]byte, len(bytes))
	dead := 0
	for _, b := range bytes {
		if !b.live() {
			dead++
		}
	}
	if dead > 0 {
		x.dead++
	}
	switch need {
	case RemoteAtomic:
		for i := range bytes {
			buf[i] = *bytes[i].byte
		}
		was := binary.NativeEndian.Uint64(buf)
		old, f := v.FetchAdd(at, 5)
		if !bytes[0].live() {
			if f != BadKey {
				return fmt.Errorf("atomic on memory that is gone: %v", f)
			}
			return nil
		}
		if bytes[0].piece != bytes[7].piece {
			if f != BadRange {
				return fmt.Errorf("atomic across pieces: %v", f)
			}
			return nil
		}
		for i := range bytes {
			buf[i] = *bytes[i].byte
		}
		if f != OK || old != was || binary.NativeEndian.Uint64(buf) != old+5 {
			return fmt.Errorf("atomic on %d: %v, returned %d and left %x", was, f, old, buf)
		}
	case RemoteWrite, LocalWrite:
		for i := range buf {
			buf[i] = byte(x.steps*31 + i)
		}
		if f := v.WriteAt(at, buf); (f != OK) != (dead > 0) {
			return fmt.Errorf("write with %d dead bytes: %v", dead, f)
		} else if f != OK {
			return nil
		}
		if x.overlap(bytes) {
			return nil // the last copy of a byte wins, and the model does not cover that
		}
		for i := range bytes {
			if *bytes[i].byte != buf[i] {
				return fmt.Errorf("byte %d of a write is missing", i)
			}
		}
	default:
		if f := v.ReadAt(buf, at); (f != OK) != (dead > 0) {
			return fmt.Errorf("read with %d dead bytes: %v", dead, f)
		} else if f != OK {
			return nil
		}
		for i := range bytes {
			if *bytes[i].byte != buf[i] {
				return fmt.Errorf("byte %d of a read is wrong", i)
			}
		}
	}
	return nil
}

// overlap reports whether a byte occurs twice.
func (x *machine) overlap(bytes []modelByte) bool {
	seen := map[*byte]bool{}
	for _, b := range bytes {
		if seen[b.byte] {
			return true
		}
		seen[b.byte] = true
	}
	return false
}
