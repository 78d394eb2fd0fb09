package mr

import (
	"bytes"
	"errors"
	"math"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goroce/roce/bth"
)

func allocFast(t testing.TB, tab *Table, pd *PD, pieces int) *MR {
	t.Helper()
	m, err := tab.AllocFast(pd, FastOptions{MaxPieces: pieces})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fastReg registers the mapped memory under the next key.
func fastReg(t testing.TB, tab *Table, m *MR, acc Access) {
	t.Helper()
	key := IncRKey(m.RKey())
	if f := tab.RegisterFast(m.PD(), m, key, acc); f != OK {
		t.Fatalf("register: %v", f)
	}
	m.Posted(key, acc, nil)
}

func mapped(t testing.TB, m *MR, opt Options, sg ...[]byte) {
	t.Helper()
	if err := m.Map(sg, opt); err != nil {
		t.Fatal(err)
	}
}

// pages returns n aligned pages of 4096 bytes.
func pages(n int) []byte {
	b := make([]byte, (n+1)*4096)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & 4095
	return b[skip : skip+n*4096]
}

func TestAllocFast(t *testing.T) {
	tab, pd := newTable(), NewPD()
	for _, tt := range []struct {
		name string
		pd   *PD
		opt  FastOptions
		want error
	}{
		{"one piece", pd, FastOptions{MaxPieces: 1}, nil},
		{"most pieces", pd, FastOptions{MaxPieces: MaxPieces}, nil},
		{"pages", pd, FastOptions{MaxPieces: 16, PageSize: 4096}, nil},
		{"no pieces", pd, FastOptions{}, syscall.EINVAL},
		{"negative", pd, FastOptions{MaxPieces: -1}, syscall.EINVAL},
		{"too many pieces", pd, FastOptions{MaxPieces: MaxPieces + 1}, syscall.EINVAL},
		{"page size", pd, FastOptions{MaxPieces: 1, PageSize: 4095}, syscall.EINVAL},
		{"negative page size", pd, FastOptions{MaxPieces: 1, PageSize: math.MinInt}, syscall.EINVAL},
		{"no domain", nil, FastOptions{MaxPieces: 1}, syscall.EINVAL},
	} {
		m, err := tab.AllocFast(tt.pd, tt.opt)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if err != nil {
			continue
		}
		refused(t, tab, pd, q1, m.RKey(), 0, 0, 0, BadKey)
		if f := tab.RegisterFast(pd, m, m.RKey(), 0); f != BadRange || m.Valid() {
			t.Errorf("%s: registered without memory: %v", tt.name, f)
		}
		if err := m.Deregister(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := pd.Dealloc(); err != nil {
		t.Error(err)
	}
}

func TestMap(t *testing.T) {
	p := pages(4)
	page := func(i int) []byte { return p[i*4096:][:4096:4096] }
	for _, tt := range []struct {
		name string
		opt  FastOptions
		at   Options
		sg   [][]byte
		ok   bool
	}{
		{"one", FastOptions{MaxPieces: 1}, Options{}, [][]byte{p[:1]}, true},
		{"any places", FastOptions{MaxPieces: 3}, Options{}, [][]byte{p[7:9], p[100:105], p[1:2]}, true},
		{"nothing", FastOptions{MaxPieces: 3}, Options{}, nil, false},
		{"empty piece", FastOptions{MaxPieces: 3}, Options{}, [][]byte{p[7:9], {}}, false},
		{"too many", FastOptions{MaxPieces: 1}, Options{}, [][]byte{p[7:9], p[3:4]}, false},
		{"address wraps", FastOptions{MaxPieces: 2}, Options{IOVA: math.MaxUint64 - 9, HasIOVA: true}, [][]byte{p[:5], p[:5]}, false},
		{"address just does not wrap", FastOptions{MaxPieces: 2}, Options{IOVA: math.MaxUint64 - 10, HasIOVA: true}, [][]byte{p[:5], p[:5]}, true},
		{"pages", FastOptions{MaxPieces: 3, PageSize: 4096}, Options{}, [][]byte{page(0), page(2), page(1)}, true},
		{"first offset and short end", FastOptions{MaxPieces: 2, PageSize: 4096}, Options{}, [][]byte{page(0)[100:], page(3)[:9]}, true},
		{"in one page", FastOptions{MaxPieces: 1, PageSize: 4096}, Options{}, [][]byte{page(0)[100:200]}, true},
		{"gap behind the first", FastOptions{MaxPieces: 2, PageSize: 4096}, Options{}, [][]byte{page(0)[:100], page(3)}, false},
		{"gap before the last", FastOptions{MaxPieces: 2, PageSize: 4096}, Options{}, [][]byte{page(0), page(3)[1:]}, false},
		{"more pages than fit", FastOptions{MaxPieces: 3, PageSize: 4096}, Options{}, [][]byte{p}, false},
		{"as many pages as fit", FastOptions{MaxPieces: 4, PageSize: 4096}, Options{}, [][]byte{p}, true},
		{"small pages", FastOptions{MaxPieces: 8, PageSize: 512}, Options{}, [][]byte{page(2)[512:1024], page(0)[:1024]}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tab, pd := newTable(), NewPD()
			m, err := tab.AllocFast(pd, tt.opt)
			if err != nil {
				t.Fatal(err)
			}
			err = m.Map(tt.sg, tt.at)
			if tt.ok != (err == nil) || err != nil && !errors.Is(err, syscall.EINVAL) {
				t.Fatalf("Map: %v", err)
			}
			if !tt.ok {
				if f := tab.RegisterFast(pd, m, m.RKey(), 0); f != BadRange {
					t.Errorf("registered after a refused Map: %v", f)
				}
				return
			}
			want := bytes.Join(tt.sg, nil)
			if a := address(tt.sg[0], 0, tt.at); m.Addr() != a || m.Length() != len(want) {
				t.Errorf("%d bytes at %#x, want %d at %#x", m.Length(), m.Addr(), len(want), a)
			}
			refused(t, tab, pd, q1, m.RKey(), m.Addr(), 1, 0, BadKey) // not registered yet
			fastReg(t, tab, m, RemoteRead)
			v, off, f := tab.Remote(pd, q1, m.RKey(), m.Addr(), uint64(len(want)), RemoteRead)
			if f != OK {
				t.Fatal(f)
			}
			got := make([]byte, len(want))
			if f := v.ReadAt(got, off); f != OK || !bytes.Equal(got, want) {
				t.Errorf("%v, or the memory differs", f)
			}
		})
	}
	tab, pd := newTable(), NewPD()
	if err := register(t, tab, pd, 8, 0, Options{}).Map([][]byte{p}, Options{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("user's region: %v", err)
	}
}

// TestRegisterFastRules: the cases in which RegisterFast succeeds or fails.
func TestRegisterFastRules(t *testing.T) {
	for _, tt := range []struct {
		name string
		pd   *PD // nil: the domain of the region
		key  func(bth.RKey) bth.RKey
		acc  Access
		prep func(tab *Table, m *MR)
		want Fault
	}{
		{"new low byte", nil, IncRKey, RemoteRead, nil, OK},
		{"any low byte", nil, func(k bth.RKey) bth.RKey { return k ^ 0xA5 }, RemoteRead, nil, OK},
		{"same key", nil, func(k bth.RKey) bth.RKey { return k }, RemoteRead, nil, OK},
		{"other upper bits", nil, func(k bth.RKey) bth.RKey { return k ^ 0x100 }, RemoteRead, nil, BadKey},
		{"other domain", NewPD(), IncRKey, RemoteRead, nil, BadPD},
		{"remote write without local write", nil, IncRKey, RemoteWrite, nil, BadAccess},
		{"unknown right", nil, IncRKey, 1 << 10, nil, BadAccess},
		{"VALID already", nil, IncRKey, RemoteRead, func(tab *Table, m *MR) { fastReg(t, tab, m, RemoteRead) }, BadState},
		{"deregistered", nil, IncRKey, RemoteRead, func(tab *Table, m *MR) { m.Deregister() }, BadKey},
		{"Map under way", nil, IncRKey, RemoteRead, func(tab *Table, m *MR) { m.mapping.begin() }, BadState},
	} {
		tab, pd := newTable(), NewPD()
		m := allocFast(t, tab, pd, 4)
		mapped(t, m, Options{}, make([]byte, 8))
		if tt.prep != nil {
			tt.prep(tab, m)
		}
		on, was := pd, m.Valid()
		if tt.pd != nil {
			on = tt.pd
		}
		if f := tab.RegisterFast(on, m, tt.key(m.RKey()), tt.acc); f != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, f, tt.want)
		}
		if m.Valid() != (was || tt.want == OK) {
			t.Errorf("%s: valid %v", tt.name, m.Valid())
		}
	}
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 8, RemoteRead, Options{})
	if f := tab.RegisterFast(pd, m, m.RKey(), 0); f != BadKey {
		t.Errorf("user's region: %v", f)
	}
}

// TestFastRegCycle repeats what a storage program does: map, register, use, invalidate. The new key opens the new
// memory. A registration without a new Map opens the same memory as before, which an upstream bug lost.
func TestFastRegCycle(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := allocFast(t, tab, pd, 4)
	a, b := []byte("first memory"), []byte("other memory")
	read := func(key bth.RKey, n int) string {
		v, off, f := tab.Remote(pd, q2, key, 0x1000, uint64(n), RemoteRead)
		if f != OK {
			return f.String()
		}
		got := make([]byte, n)
		v.ReadAt(got, off)
		return string(got)
	}
	at := Options{IOVA: 0x1000, HasIOVA: true}
	mapped(t, m, at, a[:5], a[5:])
	fastReg(t, tab, m, RemoteRead)
	k1 := m.RKey()
	mapped(t, m, at, b) // does not change the registered memory
	if got := read(k1, 12); got != "first memory" {
		t.Errorf("after Map of the next: %q", got)
	}
	if f := tab.Invalidate(pd, q2, k1); f != OK {
		t.Fatal(f)
	}
	if got := read(k1, 12); got != "bad key" {
		t.Errorf("invalidated: %q", got)
	}
	fastReg(t, tab, m, RemoteRead|LocalWrite)
	k2 := m.RKey()
	if got := read(k1, 12) + ", " + read(k2, 12); k2 == k1 || got != "bad key, other memory" {
		t.Errorf("second registration: %q", got)
	}
	if f := tab.Invalidate(pd, q1, k2); f != OK {
		t.Fatal(f)
	}
	fastReg(t, tab, m, RemoteRead)
	if got := read(m.RKey(), 12); got != "other memory" {
		t.Errorf("registered again without Map: %q", got)
	}
	if f := tab.Invalidate(pd, q1, m.RKey()); f != OK {
		t.Fatal(f)
	}
	if f := tab.Invalidate(pd, q1, m.RKey()); f != BadKey {
		t.Errorf("invalidated twice: %v", f)
	}
	fastReg(t, tab, m, RemoteRead|ZeroBased)
	if m.Addr() != 0 {
		t.Errorf("zero based at %#x", m.Addr())
	}
	reachesAll(t, tab, m, []byte("other memory"))
	if err := m.Deregister(); err != nil { // also when VALID
		t.Error(err)
	}
	if got := read(m.RKey(), 12); got != "bad key" {
		t.Errorf("deregistered: %q", got)
	}
}

// reachesAll compares every range of the bytes that a region opens with the expected bytes.
func reachesAll(t testing.TB, tab *Table, m *MR, want []byte) {
	t.Helper()
	for i := range want {
		for j := i + 1; j <= len(want); j++ {
			v, off, f := tab.Local(m.pd, m.SGE(i, j-i), 0)
			if f != OK {
				t.Fatalf("%d to %d: %v", i, j, f)
			}
			got := make([]byte, j-i)
			if f := v.ReadAt(got, off); f != OK || !bytes.Equal(got, want[i:j]) {
				t.Fatalf("%d to %d: %q, %v", i, j, got, f)
			}
		}
	}
	if _, _, f := tab.Local(m.pd, m.SGE(0, len(want)+1), 0); f != BadRange {
		t.Errorf("beyond the end: %v", f)
	}
}

// TestFastRegPieces: copies go through the pieces in order and change no other memory.
func TestFastRegPieces(t *testing.T) {
	tab, pd := newTable(), NewPD()
	backing := bytes.Repeat([]byte{'.'}, 64)
	m := allocFast(t, tab, pd, 8)
	mapped(t, m, Options{}, backing[40:44], backing[3:4], backing[10:17], backing[20:21])
	fastReg(t, tab, m, LocalWrite|RemoteAtomic|ZeroBased)
	v, off, f := tab.Local(pd, m.SGE(1, 11), LocalWrite)
	if f != OK {
		t.Fatal(f)
	}
	if f := v.WriteAt(off, []byte("abcdefghijk")); f != OK {
		t.Fatal(f)
	}
	want := bytes.Repeat([]byte{'.'}, 64)
	copy(want[41:], "abc")
	copy(want[3:], "d")
	copy(want[10:], "efghijk")
	if !bytes.Equal(backing, want) {
		t.Errorf("memory %q", backing)
	}
	reachesAll(t, tab, m, []byte(".abcdefghijk."))
}

// TestFastRegAtomics: an atomic must be in one piece of memory. Else it fails and changes nothing.
func TestFastRegAtomics(t *testing.T) {
	tab, pd := newTable(), NewPD()
	a, b := aligned(16), aligned(16)
	m := allocFast(t, tab, pd, 4)
	mapped(t, m, Options{}, a[:12], b[4:16])
	fastReg(t, tab, m, LocalWrite|RemoteAtomic|ZeroBased)
	for _, tt := range []struct {
		va   uint64
		want Fault
		mem  []byte
	}{
		{0, OK, a}, {4, OK, a[4:]}, {8, BadRange, nil}, {12, OK, b[4:]}, {16, OK, b[8:]},
	} {
		v, off, f := tab.Remote(pd, q1, m.RKey(), tt.va, 8, RemoteAtomic)
		if f != OK {
			t.Fatal(f)
		}
		before := append(bytes.Clone(a), b...)
		old, f := v.FetchAdd(off, 3)
		if f != tt.want {
			t.Errorf("FetchAdd at %d: %v, want %v", tt.va, f, tt.want)
			continue
		}
		if f != OK {
			if _, f := v.CompareSwap(off, 0, 1); f != tt.want || !bytes.Equal(append(bytes.Clone(a), b...), before) {
				t.Errorf("CompareSwap at %d: %v, or memory changed", tt.va, f)
			}
			continue
		}
		if got := load(tt.mem[:8]); got != old+3 {
			t.Errorf("FetchAdd at %d: %d after %d", tt.va, got, old)
		}
		if was, f := v.CompareSwap(off, old+3, 7); f != OK || was != old+3 || load(tt.mem[:8]) != 7 {
			t.Errorf("CompareSwap at %d: %d, %v", tt.va, was, f)
		}
		clear(a)
		clear(b)
	}
}

// TestWindowOnFastReg: a region with windows is not invalidated. A window reads through the pieces of its region.
func TestWindowOnFastReg(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := allocFast(t, tab, pd, 4)
	mem := []byte("0123456789")
	mapped(t, m, Options{IOVA: 100, HasIOVA: true}, mem[:3], mem[3:])
	var l Windows
	w := allocMW(t, tab, pd, MWType2)
	if f := tab.Bind(pd, q1, &l, w, to(w, m, 2, 4, RemoteRead)); f != BadKey {
		t.Errorf("bind to a FREE region: %v", f)
	}
	fastReg(t, tab, m, LocalWrite|MWBind)
	bind(t, tab, &l, w, to(w, m, 2, 4, RemoteRead))
	v, off, f := tab.Remote(pd, q1, w.RKey(), 102, 4, RemoteRead)
	got := make([]byte, 4)
	if v.ReadAt(got, off); f != OK || string(got) != "2345" {
		t.Errorf("through the window: %q, %v", got, f)
	}
	if f := tab.Invalidate(pd, q1, m.RKey()); f != HasWindows {
		t.Errorf("invalidate under a window: %v", f)
	}
	if err := m.Deregister(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("deregister under a window: %v", err)
	}
	if f := tab.Invalidate(pd, q1, w.RKey()); f != OK {
		t.Fatal(f)
	}
	if f := v.ReadAt(got, off); f != BadKey {
		t.Errorf("copy after the key was revoked: %v", f)
	}
	if f := tab.Invalidate(pd, q1, m.RKey()); f != OK {
		t.Errorf("invalidate afterwards: %v", f)
	}
}

// TestStaleMemory: if a key is invalidated after a lookup, the copy fails, even if the same key is valid again.
func TestStaleMemory(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := allocFast(t, tab, pd, 1)
	a, b := make([]byte, 16), make([]byte, 16)
	mapped(t, m, Options{HasIOVA: true}, a)
	fastReg(t, tab, m, LocalWrite|RemoteWrite)
	v, off, f := tab.Remote(pd, q1, m.RKey(), 8, 8, RemoteWrite)
	if f != OK {
		t.Fatal(f)
	}
	tab.Invalidate(pd, q1, m.RKey())
	mapped(t, m, Options{HasIOVA: true}, b)
	if f := tab.RegisterFast(pd, m, m.RKey(), LocalWrite|RemoteWrite); f != OK {
		t.Fatal(f)
	}
	if f := v.WriteAt(off, []byte("too late")); f != BadKey {
		t.Errorf("WriteAt: %v", f)
	}
	if _, f := v.FetchAdd(off, 1); f != BadKey {
		t.Errorf("FetchAdd: %v", f)
	}
	if !bytes.Equal(append(a, b...), make([]byte, 32)) {
		t.Errorf("memory was touched: %q %q", a, b)
	}
}

func TestWorkRequestsDoNotAllocate(t *testing.T) {
	tab, pd := newTable(), NewPD()
	buf := aligned(4096)
	user := register(t, tab, pd, 4096, bindable|ZeroBased, Options{})
	m := allocFast(t, tab, pd, 8)
	sg := [][]byte{buf[:100], buf[200:300], buf[1000:]}
	w1, w2 := allocMW(t, tab, pd, MWType1), allocMW(t, tab, pd, MWType2)
	plain := register(t, tab, pd, 64, bindable, Options{})
	var l Windows
	var data [512]byte
	cycle := func() {
		m.Map(sg, Options{HasIOVA: true})
		key := IncRKey(m.RKey())
		fault := tab.RegisterFast(pd, m, key, LocalWrite|RemoteWrite|RemoteAtomic)
		m.Posted(key, LocalWrite|RemoteWrite|RemoteAtomic, nil)
		v, off, f := tab.Remote(pd, q1, key, 50, 512, RemoteWrite)
		fault |= f | v.WriteAt(off, data[:])
		fault |= v.ReadAt(data[:], off)
		_, f = v.FetchAdd(0, 1)
		fault |= f | tab.Invalidate(pd, q1, key)

		b := Binding{Key: IncRKey(w2.RKey()), MR: user, LKey: user.LKey(), Addr: 8, Length: 64, Access: RemoteWrite}
		fault |= tab.Bind(pd, q1, &l, w2, &b)
		v, off, f = tab.Remote(pd, q1, b.Key, 8, 64, RemoteWrite)
		fault |= f | v.WriteAt(off, data[:64])
		fault |= tab.Invalidate(pd, q1, b.Key)
		w2.Posted(b.Key)
		b = Binding{Key: IncRKey(w1.RKey()), MR: plain, LKey: plain.LKey(), Addr: plain.Addr(), Length: 64, Access: RemoteWrite}
		fault |= tab.Bind(pd, q1, &l, w1, &b)
		w1.Posted(b.Key)
		if fault != OK {
			t.Fatal(fault)
		}
	}
	cycle() // the lists grow to their size
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
