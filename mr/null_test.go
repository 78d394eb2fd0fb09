package mr

import (
	"bytes"
	"math"
	"testing"
)

// TestNull: a null region, at every address, reads as zeros and discards the bytes that are written. It grants peers
// nothing.
func TestNull(t *testing.T) {
	tab := newTable()
	pd := NewPD()
	m, err := tab.RegisterNull(pd)
	if err != nil {
		t.Fatal(err)
	}
	ones := bytes.Repeat([]byte{1}, 3*len(zeros)+7)
	for _, addr := range []uint64{0, 12345, math.MaxUint64 - uint64(len(ones))} {
		v, off, f := tab.Local(pd, SGE{Addr: addr, Length: uint32(len(ones)), LKey: m.LKey()}, LocalWrite)
		if f != OK {
			t.Fatalf("address %#x: %v", addr, f)
		}
		if f := v.WriteAt(off, ones); f != OK {
			t.Fatalf("write at %#x: %v", addr, f)
		}
		got := bytes.Clone(ones)
		if f := v.ReadAt(got, off); f != OK {
			t.Fatalf("read at %#x: %v", addr, f)
		}
		if !bytes.Equal(got, make([]byte, len(got))) {
			t.Errorf("read at %#x: not zeros", addr)
		}
		if _, ok := v.InPlace(off, 1); ok {
			t.Error("a null region is lent to a link")
		}
	}
	for _, need := range []Access{RemoteRead, RemoteWrite, RemoteAtomic} {
		if _, _, f := tab.Remote(pd, 1, m.RKey(), 0, 8, need); f != BadAccess {
			t.Errorf("%v of a peer: %v, want %v", need, f, BadAccess)
		}
	}
	if f := tab.Invalidate(pd, 1, m.RKey()); f != NotInvalidable {
		t.Errorf("invalidate: %v, want %v", f, NotInvalidable)
	}
	if err := m.Reregister(ReregAccess, nil, nil, LocalWrite, Options{}); err == nil {
		t.Error("a null region is reregistered")
	}
	v, off, _ := tab.Local(pd, SGE{Length: 8, LKey: m.LKey()}, LocalWrite)
	if err := m.Deregister(); err != nil {
		t.Fatal(err)
	}
	if f := v.WriteAt(off, ones[:8]); f != BadKey {
		t.Errorf("write after deregistration: %v, want %v", f, BadKey)
	}
	if _, err := tab.RegisterNull(nil); err == nil {
		t.Error("a region without a domain")
	}
}

// TestNullPart: a write to an indirect region skips the bytes of a part that is in a null region.
func TestNullPart(t *testing.T) {
	tab := newTable()
	pd := NewPD()
	null, err := tab.RegisterNull(pd)
	if err != nil {
		t.Fatal(err)
	}
	mem := []byte("abcdef")
	m, err := tab.Register(pd, mem, LocalWrite|RemoteWrite, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ind, err := tab.AllocIndirect(pd, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := ind.MapParts([]Part{{MR: m, Length: 2}, {MR: null, Length: 3}, {MR: m, Offset: 4, Length: 2}}, 0, Options{}); err != nil {
		t.Fatal(err)
	}
	if f := tab.RegisterFast(pd, ind, ind.RKey(), LocalWrite|RemoteWrite); f != OK {
		t.Fatal(f)
	}
	v, off, f := tab.Local(pd, ind.SGE(0, 7), LocalWrite)
	if f != OK {
		t.Fatal(f)
	}
	if f := v.WriteAt(off, []byte("1234567")); f != OK {
		t.Fatal(f)
	}
	if string(mem) != "12cd67" {
		t.Errorf("memory %q", mem)
	}
	if _, _, f := tab.Remote(pd, 1, ind.RKey(), 0, 1, RemoteWrite); f != BadAccess {
		t.Errorf("write of a peer: %v, want %v", f, BadAccess)
	}
}
