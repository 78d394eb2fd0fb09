package mr

import (
	"bytes"
	"errors"
	"math"
	"syscall"
	"testing"
)

func allocIndirect(t testing.TB, tab *Table, pd *PD, parts int) *MR {
	t.Helper()
	m, err := tab.AllocIndirect(pd, parts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// indirect makes a VALID indirect region that is zero based.
func indirect(t testing.TB, tab *Table, pd *PD, acc Access, repeat uint64, parts ...Part) *MR {
	t.Helper()
	m := allocIndirect(t, tab, pd, len(parts))
	if err := m.MapParts(parts, repeat, Options{}); err != nil {
		t.Fatal(err)
	}
	fastReg(t, tab, m, acc)
	return m
}

// text registers the bytes of a string.
func text(t testing.TB, tab *Table, pd *PD, s string, acc Access) *MR {
	t.Helper()
	m, err := tab.Register(pd, []byte(s), acc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAllocIndirect(t *testing.T) {
	tab, pd := newTable(), NewPD()
	for _, n := range []int{0, -1, MaxPieces + 1} {
		if _, err := tab.AllocIndirect(pd, n); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d parts: %v", n, err)
		}
	}
	if _, err := tab.AllocIndirect(nil, 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no domain: %v", err)
	}
	m := allocIndirect(t, tab, pd, MaxPieces)
	refused(t, tab, pd, q1, m.RKey(), 0, 0, 0, BadKey)
	if f := tab.RegisterFast(pd, m, m.RKey(), 0); f != BadRange {
		t.Errorf("registered without parts: %v", f)
	}
	if err := m.Map([][]byte{make([]byte, 8)}, Options{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Map: %v", err)
	}
	if err := m.Reregister(ReregAccess, nil, nil, 0, Options{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Reregister: %v", err)
	}
	if err := m.Deregister(); err != nil {
		t.Error(err)
	}
	if err := m.MapParts([]Part{{MR: m, Length: 1}}, 1, Options{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("MapParts afterwards: %v", err)
	}
}

// TestIndirectContents: the two forms of the user-mode memory registration are a list of parts, and interleaved parts
// at regular distances.
func TestIndirectContents(t *testing.T) {
	tab, pd := newTable(), NewPD()
	a := text(t, tab, pd, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", 0)
	b := text(t, tab, pd, "abcdefghijklmnopqrstuvwxyz", 0)
	digits := []byte("0123456789")
	f := allocFast(t, tab, pd, 3)
	mapped(t, f, Options{}, digits[8:], digits[:3], digits[5:6]) // "890125"
	fastReg(t, tab, f, 0)
	nested := indirect(t, tab, pd, 0, 0, Part{MR: b, Offset: 10, Length: 3}, Part{MR: f, Offset: 1, Length: 4})
	for _, tt := range []struct {
		name   string
		repeat uint64
		parts  []Part
		want   string
	}{
		{"one part", 0, []Part{{MR: a, Offset: 3, Length: 5}}, "DEFGH"},
		{"list", 1, []Part{{MR: a, Offset: 3, Length: 5}, {MR: b, Length: 1}, {MR: a, Offset: 25, Length: 1}, {MR: a, Offset: 3, Length: 2}}, "DEFGHaZDE"},
		{"stride does not matter to a list", 1, []Part{{MR: a, Offset: 3, Length: 5, Stride: math.MaxUint64}}, "DEFGH"},
		{"regular", 4, []Part{{MR: a, Offset: 1, Length: 2, Stride: 5}}, "BCGHLMQR"},
		{"interleaved", 3, []Part{{MR: a, Length: 2, Stride: 4}, {MR: b, Offset: 20, Length: 1, Stride: 2}}, "ABuEFwIJy"},
		{"again and again", 3, []Part{{MR: a, Length: 3}}, "ABCABCABC"},
		{"overlapping", 3, []Part{{MR: a, Length: 3, Stride: 1}}, "ABCBCDCDE"},
		{"last byte", 5, []Part{{MR: a, Offset: 1, Length: 5, Stride: 5}}, "BCDEFGHIJKLMNOPQRSTUVWXYZ"},
		{"fast registration", 1, []Part{{MR: f, Offset: 1, Length: 4}, {MR: f, Length: 2}}, "901289"},
		{"regular parts of a fast registration", 3, []Part{{MR: f, Length: 2, Stride: 2}}, "890125"},
		{"nested", 2, []Part{{MR: nested, Offset: 1, Length: 4, Stride: 2}, {MR: a, Length: 1, Stride: 1}}, "lm90A9012B"},
		{"million", 1 << 20, []Part{{MR: a, Length: 1}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := indirect(t, tab, pd, 0, tt.repeat, tt.parts...)
			if tt.want == "" {
				if m.Length() != 1<<20 {
					t.Errorf("%d bytes", m.Length())
				}
				v, off, _ := tab.Local(pd, m.SGE(1<<20-9, 9), 0)
				got := make([]byte, 9)
				if f := v.ReadAt(got, off); f != OK || string(got) != "AAAAAAAAA" {
					t.Errorf("%q, %v", got, f)
				}
			} else {
				if m.Length() != len(tt.want) || m.Addr() != 0 {
					t.Errorf("%d bytes at %#x", m.Length(), m.Addr())
				}
				reachesAll(t, tab, m, []byte(tt.want))
			}
			for _, p := range tt.parts {
				if err := p.MR.Deregister(); !errors.Is(err, syscall.EBUSY) {
					t.Errorf("deregister a part: %v", err)
				}
			}
			if f := tab.Invalidate(pd, q1, m.RKey()); f != OK {
				t.Fatal(f)
			}
		})
	}
	for _, m := range []*MR{a, b, f, nested} { // nested is still VALID and keeps b and f in use
		err := m.Deregister()
		if busy := m == b || m == f; busy != errors.Is(err, syscall.EBUSY) || !busy && err != nil {
			t.Errorf("deregister: %v", err)
		}
	}
	if err := b.Deregister(); err != nil {
		t.Error(err)
	}
}

func TestMapPartsErrors(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 100, 0, Options{})
	foreign := register(t, tab, NewPD(), 100, 0, Options{})
	elsewhere := register(t, newTable(), pd, 100, 0, Options{})
	gone := register(t, tab, pd, 100, 0, Options{})
	if err := gone.Deregister(); err != nil {
		t.Fatal(err)
	}
	free := allocFast(t, tab, pd, 1)
	mapped(t, free, Options{}, make([]byte, 100))
	big := uint64(math.MaxUint64)
	self := allocIndirect(t, tab, pd, 2)
	for _, tt := range []struct {
		name   string
		repeat uint64
		at     Options
		parts  []Part
	}{
		{"no parts", 1, Options{}, nil},
		{"too many", 1, Options{}, []Part{{MR: m, Length: 1}, {MR: m, Length: 1}, {MR: m, Length: 1}}},
		{"no region", 1, Options{}, []Part{{Length: 1}}},
		{"deregistered", 1, Options{}, []Part{{MR: gone, Length: 1}}},
		{"of another domain", 1, Options{}, []Part{{MR: foreign, Length: 1}}},
		{"of another table", 1, Options{}, []Part{{MR: elsewhere, Length: 1}}},
		{"FREE", 1, Options{}, []Part{{MR: free, Length: 1}}},
		{"itself", 1, Options{}, []Part{{MR: self, Length: 1}}},
		{"empty", 1, Options{}, []Part{{MR: m}}},
		{"second is empty", 1, Options{}, []Part{{MR: m, Length: 1}, {MR: m}}},
		{"beyond the end", 1, Options{}, []Part{{MR: m, Offset: 90, Length: 11}}},
		{"offset wraps", 1, Options{}, []Part{{MR: m, Offset: big - 5, Length: 10}}},
		{"length wraps", 1, Options{}, []Part{{MR: m, Offset: 10, Length: big - 5}}},
		{"last of several beyond the end", 4, Options{}, []Part{{MR: m, Length: 11, Stride: 30}}},
		{"stride wraps", 3, Options{}, []Part{{MR: m, Length: 1, Stride: 1 << 63}}},
		{"stride and offset wrap", 2, Options{}, []Part{{MR: m, Offset: 10, Length: 1, Stride: big - 5}}},
		{"more than a region may have", 1 << 62, Options{}, []Part{{MR: m, Length: 2}}},
		{"repeated beyond 2^64", big, Options{}, []Part{{MR: m, Length: 2}}},
		{"address wraps", 1, Options{IOVA: big - 9, HasIOVA: true}, []Part{{MR: m, Length: 11}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := self.MapParts(tt.parts, tt.repeat, tt.at); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("MapParts: %v", err)
			}
			if _, err := self.ListParts(tt.parts, tt.repeat, tt.at); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("ListParts: %v", err)
			}
			if f := tab.RegisterFast(pd, self, self.RKey(), 0); f != BadRange {
				t.Errorf("registered after a refusal: %v", f)
			}
		})
	}
	if m.users.Load() != 0 {
		t.Error("a refusal left something in use")
	}
	for _, x := range []*MR{m, free} {
		if err := x.MapParts([]Part{{MR: m, Length: 1}}, 1, Options{}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("not an indirect region: %v", err)
		}
		if _, err := x.ListParts([]Part{{MR: m, Length: 1}}, 1, Options{}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("list of what is not an indirect region: %v", err)
		}
	}
}

func TestIndirectDepth(t *testing.T) {
	tab, pd := newTable(), NewPD()
	below := text(t, tab, pd, "bottom", 0)
	for depth := 1; depth <= MaxDepth; depth++ {
		below = indirect(t, tab, pd, 0, 0, Part{MR: below, Length: 6})
		reachesAll(t, tab, below, []byte("bottom"))
	}
	if err := allocIndirect(t, tab, pd, 1).MapParts([]Part{{MR: below, Length: 1}}, 0, Options{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%d deep: %v", MaxDepth+1, err)
	}
}

// TestIndirectRights: a peer has a right only if the region and all its parts grant it.
func TestIndirectRights(t *testing.T) {
	const all = LocalWrite | RemoteRead | RemoteWrite | RemoteAtomic | MWBind | FlushGlobal
	for _, tt := range []struct{ own, first, second, want Access }{
		{all, all, all, all},
		{RemoteRead, all, all, RemoteRead},
		{all, RemoteRead, all, RemoteRead},
		{all, all, RemoteRead | MWBind, RemoteRead | MWBind},
		{all, LocalWrite | RemoteRead, LocalWrite | RemoteWrite, LocalWrite},
		{all, 0, all, 0},
	} {
		tab, pd := newTable(), NewPD()
		m := indirect(t, tab, pd, tt.own, 0, Part{MR: register(t, tab, pd, 8, tt.first, Options{}), Length: 8},
			Part{MR: register(t, tab, pd, 8, tt.second, Options{}), Length: 8})
		for _, right := range []Access{LocalWrite, RemoteRead, RemoteWrite, RemoteAtomic, MWBind, FlushGlobal} {
			_, _, f := tab.Remote(pd, q1, m.RKey(), 0, 8, right)
			if (f == OK) != (tt.want&right != 0) {
				t.Errorf("%v of %v and %v: %v is %v", tt.own, tt.first, tt.second, right, f)
			}
		}
	}
	tab, pd := newTable(), NewPD()
	m := allocIndirect(t, tab, pd, 1)
	if err := m.MapParts([]Part{{MR: register(t, tab, pd, 8, 0, Options{}), Length: 8}}, 0, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, acc := range []Access{RemoteWrite, FlushPersistent, 1 << 11} {
		if f := tab.RegisterFast(pd, m, m.RKey(), acc); f != BadAccess {
			t.Errorf("registered with %v: %v", acc, f)
		}
	}
	refused(t, tab, NewPD(), q1, m.RKey(), 0, 8, 0, BadKey)
}

// TestIndirectDeadPart: if a part is invalidated, the regions above it lose its bytes, and stay without them when it
// is registered again.
func TestIndirectDeadPart(t *testing.T) {
	tab, pd := newTable(), NewPD()
	user := text(t, tab, pd, "user", LocalWrite|RemoteWrite|RemoteRead)
	fast := allocFast(t, tab, pd, 1)
	mem := []byte("fast")
	mapped(t, fast, Options{}, mem)
	fastReg(t, tab, fast, LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic)
	m := indirect(t, tab, pd, LocalWrite|RemoteWrite|RemoteRead, 0, Part{MR: user, Length: 4}, Part{MR: fast, Length: 4}, Part{MR: user, Length: 4})
	over := indirect(t, tab, pd, RemoteRead, 0, Part{MR: m, Offset: 2, Length: 8})
	reachesAll(t, tab, m, []byte("userfastuser"))

	if f := tab.Invalidate(pd, q1, fast.RKey()); f != OK {
		t.Fatalf("a part may be invalidated: %v", f)
	}
	if err := fast.Deregister(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("but not deregistered: %v", err)
	}
	if err := fast.Reset(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("nor reset: %v", err)
	}
	check := func(what string) {
		t.Helper()
		for _, tt := range []struct {
			m    *MR
			off  int
			n    int
			want Fault
		}{{m, 0, 4, OK}, {m, 8, 4, OK}, {m, 4, 1, BadKey}, {m, 0, 12, BadKey}, {m, 7, 2, BadKey}, {over, 0, 2, OK}, {over, 1, 2, BadKey}, {over, 6, 2, OK}} {
			v, off, f := tab.Local(pd, tt.m.SGE(tt.off, tt.n), 0)
			if f != OK {
				t.Fatalf("%s: %d+%d: %v", what, tt.off, tt.n, f)
			}
			if f := v.ReadAt(make([]byte, tt.n), off); f != tt.want {
				t.Errorf("%s: read %d+%d: %v, want %v", what, tt.off, tt.n, f, tt.want)
			}
		}
	}
	check("invalidated")
	if f := tab.RegisterFast(pd, fast, fast.RKey(), LocalWrite|RemoteWrite|RemoteRead); f != OK {
		t.Fatal(f)
	}
	check("registered again, with the same key")
	v, off, _ := tab.Remote(pd, q1, m.RKey(), 0, 12, RemoteWrite)
	if f := v.WriteAt(off, []byte("............")); f != BadKey || string(mem) != "fast" {
		t.Errorf("write: %v, %q", f, mem)
	}
	// Regions that are mapped to it again and registered open its bytes.
	for _, x := range []*MR{over, m} {
		if f := tab.Invalidate(pd, q1, x.RKey()); f != OK {
			t.Fatal(f)
		}
	}
	if f := tab.RegisterFast(pd, m, m.RKey(), 0); f != BadKey {
		t.Errorf("registered with a part that is not what it was: %v", f)
	}
	if err := m.MapParts([]Part{{MR: fast, Length: 4}}, 0, Options{}); err != nil {
		t.Fatal(err)
	}
	fastReg(t, tab, m, 0)
	reachesAll(t, tab, m, []byte("fast"))
}

// TestIndirectTeardown: objects can be freed in any order in which none of them is in use.
func TestIndirectTeardown(t *testing.T) {
	tab, pd := newTable(), NewPD()
	a := register(t, tab, pd, 8, RemoteRead|MWBind, Options{})
	m := indirect(t, tab, pd, RemoteRead|MWBind, 0, Part{MR: a, Length: 8}, Part{MR: a, Length: 8})
	over := indirect(t, tab, pd, RemoteRead|MWBind, 0, Part{MR: m, Length: 16})
	w := allocMW(t, tab, pd, MWType2)
	var l Windows
	bind(t, tab, &l, w, to(w, over, 4, 8, RemoteRead))
	v, off, f := tab.Remote(pd, q1, w.RKey(), 4, 8, RemoteRead)
	copy(a.buf, "abcdefgh")
	got := make([]byte, 8)
	if f |= v.ReadAt(got, off); f != OK || string(got) != "efghabcd" {
		t.Errorf("through the window: %q, %v", got, f)
	}
	if f := tab.Invalidate(pd, q1, over.RKey()); f != HasWindows {
		t.Errorf("invalidate under a window: %v", f)
	}
	for _, x := range []*MR{a, m, over} {
		if err := x.Deregister(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("deregister: %v", err)
		}
		if err := a.Reregister(ReregAccess, nil, nil, 0, Options{}); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("reregister: %v", err)
		}
	}
	if err := w.Dealloc(); err != nil {
		t.Fatal(err)
	}
	if err := over.Reset(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*MR{m, a, over} { // a VALID region releases its parts
		if err := x.Deregister(); err != nil {
			t.Error(err)
		}
	}
	if err := pd.Dealloc(); err != nil || tab.Len() != 0 {
		t.Errorf("%v, %d objects", err, tab.Len())
	}
}

// TestIndirectWrite: a write changes the parts, in the order of their bytes, and no other memory.
func TestIndirectWrite(t *testing.T) {
	tab, pd := newTable(), NewPD()
	a, err := tab.Register(pd, bytes.Repeat([]byte{'.'}, 32), LocalWrite, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := indirect(t, tab, pd, LocalWrite, 3, Part{MR: a, Offset: 1, Length: 2, Stride: 5}, Part{MR: a, Offset: 20, Length: 1, Stride: 4})
	v, off, f := tab.Local(pd, m.SGE(1, 7), LocalWrite)
	if f |= v.WriteAt(off, []byte("1234567")); f != OK {
		t.Fatal(f)
	}
	if want := "..1...34...67.......2...5......."; string(a.buf) != want {
		t.Errorf("memory %q, want %q", a.buf, want)
	}
}

// TestIndirectAtomics: an atomic must be in one part and in one piece of memory. Else it fails and changes nothing.
func TestIndirectAtomics(t *testing.T) {
	tab, pd := newTable(), NewPD()
	const acc = LocalWrite | RemoteAtomic
	a, fmem := register(t, tab, pd, 64, acc, Options{}), aligned(32)
	f := allocFast(t, tab, pd, 2)
	mapped(t, f, Options{}, fmem[:16], fmem[16:])
	fastReg(t, tab, f, acc)
	inner := indirect(t, tab, pd, acc, 2, Part{MR: a, Length: 8, Stride: 16}, Part{MR: f, Offset: 4, Length: 12, Stride: 12})
	m := indirect(t, tab, pd, acc, 0, Part{MR: inner, Offset: 4, Length: 36})
	// The content of m: a[4:8] f[4:16] a[16:24] f[16:28].
	for _, tt := range []struct {
		off  uint64
		want Fault
		mem  []byte
	}{
		{0, BadRange, nil}, {4, OK, fmem[4:]}, {8, OK, fmem[8:]}, {10, BadRange, nil}, {16, OK, a.buf[16:]}, {17, BadRange, nil},
		{24, OK, fmem[16:]}, {28, OK, fmem[20:]},
	} {
		v, off, fault := tab.Local(pd, m.SGE(int(tt.off), 8), LocalWrite)
		if fault != OK {
			t.Fatal(fault)
		}
		old, fault := v.FetchAdd(off, 3)
		if fault != tt.want || fault == OK && (load(tt.mem[:8]) != 3 || old != 0) {
			t.Errorf("offset %d: %v", tt.off, fault)
		}
		if fault == OK {
			if _, fault := v.CompareSwap(off, 3, 0); fault != OK || load(tt.mem[:8]) != 0 {
				t.Errorf("offset %d: CompareSwap: %v", tt.off, fault)
			}
			if fault := v.AtomicWrite(off, 9); fault != OK || load(tt.mem[:8]) != 9 {
				t.Errorf("offset %d: AtomicWrite: %v", tt.off, fault)
			}
			if old, fault := v.MaskedFetchAdd(off, Operand{VA: 0, Size: 4}, 1, 0); fault != OK || old != load(tt.mem[:8])&0xFFFFFFFF-1 && !bigEndian {
				t.Errorf("offset %d: MaskedFetchAdd: %d, %v", tt.off, old, fault)
			}
			clear(tt.mem[:8])
		} else if _, fault := v.MaskedFetchAdd(off, Operand{VA: 0, Size: 8}, 1, 0); fault != BadRange {
			t.Errorf("offset %d: MaskedFetchAdd: %v", tt.off, fault)
		}
	}
	v, off, _ := tab.Local(pd, m.SGE(24, 8), LocalWrite)
	if f := tab.Invalidate(pd, q1, f.RKey()); f != OK {
		t.Fatal(f)
	}
	if _, fault := v.FetchAdd(off, 3); fault != BadKey {
		t.Errorf("in a part that is gone: %v", fault)
	}
}

// TestIndirectWatched: a watched region is also watched as a part of an indirect region.
func TestIndirectWatched(t *testing.T) {
	tab, pd := newTable(), NewPD()
	buf := aligned(64)
	a, err := tab.Register(pd, buf, LocalWrite|Watched, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := indirect(t, tab, pd, LocalWrite, 0, Part{MR: a, Offset: 8, Length: 24}, Part{MR: a, Offset: 32, Length: 8})
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				Load64(buf[16:]) // the race detector would report a plain copy
			}
		}
	}()
	v, off, _ := tab.Local(pd, m.SGE(0, 32), LocalWrite)
	for i := range 200 {
		if f := v.WriteAt(off, bytes.Repeat([]byte{byte(i)}, 32)); f != OK {
			t.Fatal(f)
		}
		v.ReadAt(make([]byte, 32), off)
	}
	close(stop)
	<-done
}

func TestIndirectDoesNotAllocate(t *testing.T) {
	tab, pd := newTable(), NewPD()
	a := register(t, tab, pd, 4096, LocalWrite|RemoteWrite|RemoteAtomic, Options{})
	f := allocFast(t, tab, pd, 4)
	mapped(t, f, Options{}, a.buf[:100], a.buf[200:1000])
	fastReg(t, tab, f, LocalWrite|RemoteWrite|RemoteAtomic)
	inner := indirect(t, tab, pd, LocalWrite|RemoteWrite|RemoteAtomic, 10, Part{MR: a, Length: 64, Stride: 128}, Part{MR: f, Length: 32, Stride: 64})
	m := allocIndirect(t, tab, pd, 4)
	parts := []Part{{MR: inner, Length: 500}, {MR: a, Offset: 8, Length: 500}}
	var data [900]byte
	cycle := func() {
		fault := OK
		if m.MapParts(parts, 0, Options{}) != nil {
			fault = BadState
		}
		key := IncRKey(m.RKey())
		fault |= tab.RegisterFast(pd, m, key, LocalWrite|RemoteWrite|RemoteAtomic)
		m.Posted(key, 0, nil)
		v, off, f := tab.Remote(pd, q1, key, 50, 900, RemoteWrite)
		fault |= f | v.WriteAt(off, data[:]) | v.ReadAt(data[:], off)
		_, f = v.FetchAdd(520, 1)
		fault |= f
		_, f = v.MaskedFetchAdd(520, Operand{VA: 0, Size: 4}, 1, 0)
		fault |= f | tab.Invalidate(pd, q1, key)
		if fault != OK {
			t.Fatal(fault)
		}
	}
	cycle()
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations", n)
	}
	list := listed(t, m, 0, 1, parts...)
	if n := testing.AllocsPerRun(100, func() {
		key := IncRKey(m.RKey())
		fault := tab.RegisterParts(pd, m, list, key, 0)
		m.Posted(key, 0, list)
		if fault |= tab.Invalidate(pd, q1, key); fault != OK {
			t.Fatal(fault)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a list", n)
	}
}
