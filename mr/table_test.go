package mr

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// newTable returns a table whose keys are the same in every run.
func newTable() *Table { return NewTable(rand.New(rand.NewPCG(1, 2)).Uint64) }

func register(t testing.TB, tab *Table, pd *PD, n int, acc Access, opt Options) *MR {
	t.Helper()
	m, err := tab.Register(pd, aligned(n), acc, opt)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// aligned returns n bytes at an 8-byte boundary.
func aligned(n int) []byte {
	w := make([]uint64, n/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), n)
}

// TestRegisterErrno: the cases have the names of the rows of the ibv_reg_mr error table.
func TestRegisterErrno(t *testing.T) {
	dead := NewPD()
	if err := dead.Dealloc(); err != nil {
		t.Fatal(err)
	}
	pd := NewPD()
	for _, tt := range []struct {
		name string
		pd   *PD
		buf  []byte
		acc  Access
		opt  Options
		want error
	}{
		{"local only", pd, make([]byte, 8), 0, Options{}, nil},
		{"all rights", pd, make([]byte, 8), LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic, Options{}, nil},
		{"remote read without local write", pd, make([]byte, 8), RemoteRead, Options{}, nil},
		{"remote write without local write", pd, make([]byte, 8), RemoteWrite, Options{}, syscall.EINVAL},
		{"remote atomic without local write", pd, make([]byte, 8), RemoteAtomic, Options{}, syscall.EINVAL},
		{"length 0", pd, []byte{}, LocalWrite, Options{}, syscall.EINVAL},
		{"no memory", pd, nil, LocalWrite, Options{}, syscall.EINVAL},
		{"address wrap", pd, make([]byte, 8), 0, Options{IOVA: math.MaxUint64 - 3, HasIOVA: true}, syscall.EINVAL},
		{"address ends at 2^64", pd, make([]byte, 8), 0, Options{IOVA: math.MaxUint64 - 7, HasIOVA: true}, syscall.EINVAL},
		{"address ends below 2^64", pd, make([]byte, 8), 0, Options{IOVA: math.MaxUint64 - 8, HasIOVA: true}, nil},
		{"unknown flag bit", pd, make([]byte, 8), 1 << 10, Options{}, syscall.EINVAL},
		{"unknown flag bit beyond the optional range", pd, make([]byte, 8), 1 << 30, Options{}, syscall.EINVAL},
		{"optional flag bit", pd, make([]byte, 8), 1 << 29, Options{}, nil},
		{"relaxed ordering", pd, make([]byte, 8), LocalWrite | RelaxedOrdering, Options{}, nil},
		{"mw bind", pd, make([]byte, 8), LocalWrite | MWBind, Options{}, nil},
		{"flush global", pd, make([]byte, 8), LocalWrite | FlushGlobal, Options{}, nil},
		{"flush persistent", pd, make([]byte, 8), LocalWrite | FlushPersistent, Options{}, syscall.EINVAL},
		{"on demand", pd, make([]byte, 8), LocalWrite | OnDemand, Options{}, syscall.EOPNOTSUPP},
		{"huge tlb", pd, make([]byte, 8), LocalWrite | HugeTLB, Options{}, syscall.EOPNOTSUPP},
		{"zero based", pd, make([]byte, 8), ZeroBased, Options{}, nil},
		{"zero based at another address", pd, make([]byte, 8), ZeroBased, Options{IOVA: 8, HasIOVA: true}, syscall.EINVAL},
		{"no domain", nil, make([]byte, 8), 0, Options{}, syscall.EINVAL},
		{"deallocated domain", dead, make([]byte, 8), 0, Options{}, syscall.EINVAL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tab := newTable()
			m, err := tab.Register(tt.pd, tt.buf, tt.acc, tt.opt)
			if tt.want == nil {
				if err != nil {
					t.Fatalf("Register: %v", err)
				}
				if err := m.Deregister(); err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *errs.Error
			if !errors.Is(err, tt.want) || !errors.As(err, &e) || m != nil {
				t.Fatalf("Register = %v, %v, want %v", m, err, tt.want)
			}
			if tab.Len() != 0 {
				t.Errorf("%d regions after a refusal", tab.Len())
			}
		})
	}
	if err := pd.Dealloc(); err != nil {
		t.Errorf("Dealloc after all: %v", err)
	}
}

func TestRegisterAddress(t *testing.T) {
	tab, pd := newTable(), NewPD()
	buf := make([]byte, 100)
	for _, tt := range []struct {
		name string
		acc  Access
		opt  Options
		want uint64
	}{
		{"of the memory", 0, Options{}, uint64(uintptr(unsafe.Pointer(&buf[0])))},
		{"zero based", ZeroBased, Options{}, 0},
		{"chosen", 0, Options{IOVA: 0x1234567, HasIOVA: true}, 0x1234567},
		{"chosen 0", 0, Options{HasIOVA: true}, 0},
		{"ignored without HasIOVA", ZeroBased, Options{IOVA: 0x1234567}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := tab.Register(pd, buf, tt.acc, tt.opt)
			if err != nil {
				t.Fatal(err)
			}
			if m.Addr() != tt.want || m.Length() != 100 || m.PD() != pd || m.Access() != tt.acc {
				t.Errorf("addr %#x length %d access %v, want %#x 100 %v", m.Addr(), m.Length(), m.Access(), tt.want, tt.acc)
			}
			if uint32(m.LKey()) != uint32(m.RKey()) {
				t.Errorf("L_Key %#x, R_Key %#x", m.LKey(), m.RKey())
			}
			s := m.SGE(10, 20)
			if _, off, f := tab.Local(pd, s, 0); f != OK || off != 10 {
				t.Errorf("Local(%+v) = %d, %v", s, off, f)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	tab, pd, other := newTable(), NewPD(), NewPD()
	const iova = 0x10000
	at := Options{IOVA: iova, HasIOVA: true}
	rw := register(t, tab, pd, 4096, LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic, at)
	ro := register(t, tab, pd, 4096, RemoteRead, at)
	local := register(t, tab, pd, 4096, LocalWrite, at)
	high := register(t, tab, pd, 4096, RemoteRead, Options{IOVA: math.MaxUint64 - 4096, HasIOVA: true})
	top := uint64(math.MaxUint64 - 4096)

	for _, tt := range []struct {
		name  string
		pd    *PD
		key   bth.RKey
		va, n uint64
		need  Access
		off   uint64
		want  Fault
	}{
		{"whole region", pd, rw.RKey(), iova, 4096, RemoteWrite, 0, OK},
		{"last byte", pd, rw.RKey(), iova + 4095, 1, RemoteRead, 4095, OK},
		{"one beyond the end", pd, rw.RKey(), iova + 4095, 2, RemoteRead, 0, BadRange},
		{"before the start", pd, rw.RKey(), iova - 1, 1, RemoteRead, 0, BadRange},
		{"across the start", pd, rw.RKey(), iova - 1, 2, RemoteRead, 0, BadRange},
		{"at the end", pd, rw.RKey(), iova + 4096, 1, RemoteRead, 0, BadRange},
		{"longer than the region", pd, rw.RKey(), iova, 4097, RemoteRead, 0, BadRange},
		{"address plus length wraps to inside", pd, rw.RKey(), math.MaxUint64 - 15, iova + 32, RemoteRead, 0, BadRange},
		{"length wraps", pd, rw.RKey(), iova + 8, math.MaxUint64 - 7, RemoteRead, 0, BadRange},
		{"length 2^64-1", pd, rw.RKey(), iova, math.MaxUint64, RemoteRead, 0, BadRange},
		{"address 0", pd, rw.RKey(), 0, 1, RemoteRead, 0, BadRange},
		{"address 2^64-1", pd, rw.RKey(), math.MaxUint64, 1, RemoteRead, 0, BadRange},
		{"top region", pd, high.RKey(), top, 4096, RemoteRead, 0, OK},
		{"top region last byte", pd, high.RKey(), top + 4095, 1, RemoteRead, 4095, OK},
		{"top region wraps", pd, high.RKey(), top + 4095, 2, RemoteRead, 0, BadRange},
		{"top region, address 0", pd, high.RKey(), 0, 1, RemoteRead, 0, BadRange},
		{"length 0", pd, rw.RKey(), iova + 7, 0, RemoteWrite, 7, OK},
		{"length 0 at the end", pd, rw.RKey(), iova + 4096, 0, RemoteWrite, 4096, OK},
		{"length 0 beyond the end", pd, rw.RKey(), iova + 4097, 0, RemoteWrite, 0, BadRange},
		{"length 0 with a bad key", pd, 0xdead, 0, 0, RemoteWrite, 0, BadKey},
		{"domain", other, rw.RKey(), iova, 1, RemoteRead, 0, BadPD},
		{"no domain", nil, rw.RKey(), iova, 1, RemoteRead, 0, BadPD},
		{"write to a read-only region", pd, ro.RKey(), iova, 1, RemoteWrite, 0, BadAccess},
		{"atomic on a read-only region", pd, ro.RKey(), iova, 8, RemoteAtomic, 0, BadAccess},
		{"read of a local region", pd, local.RKey(), iova, 1, RemoteRead, 0, BadAccess},
		{"flush without the right", pd, rw.RKey(), iova, 1, FlushGlobal, 0, BadAccess},
		{"key 0", pd, 0, iova, 1, RemoteRead, 0, BadKey},
		{"key 2^32-1", pd, math.MaxUint32, iova, 1, RemoteRead, 0, BadKey},
		{"other variant", pd, rw.RKey() ^ 1, iova, 1, RemoteRead, 0, BadKey},
		{"other index", pd, rw.RKey() ^ 0x100, iova, 1, RemoteRead, 0, BadKey},
		{"domain is checked before access", other, ro.RKey(), iova, 1, RemoteWrite, 0, BadPD},
		{"access is checked before range", pd, ro.RKey(), 0, 1, RemoteWrite, 0, BadAccess},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, off, f := tab.Remote(tt.pd, 0x11, tt.key, tt.va, tt.n, tt.need)
			if f != tt.want || off != tt.off || (m.m != nil) != (f == OK) {
				t.Errorf("Remote = %v, %d, %v, want offset %d, %v", m, off, f, tt.off, tt.want)
			}
		})
	}

	t.Run("local", func(t *testing.T) {
		for _, tt := range []struct {
			name string
			s    SGE
			need Access
			want Fault
		}{
			{"read", ro.SGE(0, 4096), 0, OK},
			{"write", local.SGE(0, 4096), LocalWrite, OK},
			{"write without local write", ro.SGE(0, 1), LocalWrite, BadAccess},
			{"beyond the end", ro.SGE(4000, 97), 0, BadRange},
			{"negative offset", ro.SGE(-1, 1), 0, BadRange},
			{"negative length", ro.SGE(1, -1), 0, BadRange},
			{"too long for the region", ro.SGE(0, math.MaxInt), 0, BadRange},
			{"bad key", SGE{iova, 1, 5}, 0, BadKey},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if _, _, f := tab.Local(pd, tt.s, tt.need); f != tt.want {
					t.Errorf("Local(%+v) = %v, want %v", tt.s, f, tt.want)
				}
			})
		}
	})
}

func TestLookupEmptyTable(t *testing.T) {
	tab := newTable()
	for _, key := range []bth.RKey{0, 1, 0x100, math.MaxUint32} {
		if _, _, f := tab.Remote(NewPD(), 1, key, 0, 0, 0); f != BadKey {
			t.Errorf("key %#x: %v", key, f)
		}
		if f := tab.Invalidate(NewPD(), 1, key); f != BadKey {
			t.Errorf("invalidate %#x: %v", key, f)
		}
	}
}

// TestKeyDiesWithRegion: Deregister invalidates a key at once. The key stays invalid while other keys are made, and
// none of these has the same upper bits.
func TestKeyDiesWithRegion(t *testing.T) {
	tab, pd := newTable(), NewPD()
	lookup := func(key bth.RKey, n uint64) Fault {
		_, _, f := tab.Remote(pd, 1, key, 0, n, RemoteRead)
		return f
	}
	names := map[bth.RKey]bool{}
	var last bth.RKey
	for i := range keyRest + 1 {
		m := register(t, tab, pd, 64, RemoteRead|ZeroBased, Options{})
		key := m.RKey()
		if key == last {
			t.Fatalf("round %d: key %#x twice in a row", i, key)
		}
		if names[key>>8] {
			t.Fatalf("round %d: key %#x has the upper bits of an earlier one", i, key)
		}
		if f := lookup(key, 64); f != OK {
			t.Fatalf("new key: %v", f)
		}
		if i > 0 {
			if f := lookup(last, 64); f != BadKey {
				t.Fatalf("stale key: %v", f)
			}
		}
		if err := m.Deregister(); err != nil {
			t.Fatal(err)
		}
		if f := lookup(key, 64); f != BadKey {
			t.Fatalf("dead key: %v", f)
		}
		if f := lookup(key, 0); f != BadKey {
			t.Fatalf("dead key, no bytes: %v", f)
		}
		if err := m.Deregister(); !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("second Deregister: %v", err)
		}
		last, names[key>>8] = key, true
	}
}

// TestKeysEnd: the table does not leak ended keys.
func TestKeysEnd(t *testing.T) {
	tab, pd := newTable(), NewPD()
	var live []*MR
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		if len(live) < 50 || (len(live) < 100 && rnd.IntN(2) == 0) {
			live = append(live, register(t, tab, pd, 8, RemoteRead|ZeroBased, Options{}))
			continue
		}
		i := rnd.IntN(len(live))
		if err := live[i].Deregister(); err != nil {
			t.Fatal(err)
		}
		live[i] = live[len(live)-1]
		live = live[:len(live)-1]
	}
	if tab.Len() != len(live) {
		t.Errorf("Len %d, %d live", tab.Len(), len(live))
	}
	if used, rest := tab.keys.Len(), tab.keys.Resting(); used != len(live) || rest > keyRest {
		t.Errorf("%d keys are used by %d regions, and %d rest", used, len(live), rest)
	}
	for _, m := range live {
		if got, _, f := tab.Remote(pd, 1, m.RKey(), 0, 8, RemoteRead); f != OK || got.m != m {
			t.Fatalf("live key %#x: %v", m.RKey(), f)
		}
	}
}

// TestKeysAreNotSequential: the keys of regions that are registered one after another differ in an irregular way.
func TestKeysAreNotSequential(t *testing.T) {
	const n = 2048
	buf := make([]byte, 8)
	first := map[uint32]bool{}
	for seed := range uint64(50) {
		tab, pd := NewTable(rand.New(rand.NewPCG(seed, 2)).Uint64), NewPD()
		diffs := map[uint32]int{}
		seen := map[uint32]bool{}
		bits := [32]int{}
		var last uint32
		for i := range n {
			m, err := tab.Register(pd, buf, 0, Options{})
			if err != nil {
				t.Fatal(err)
			}
			k := uint32(m.RKey())
			if seen[k>>8] {
				t.Fatalf("seed %d: index of key %#x given twice", seed, k)
			}
			seen[k>>8] = true
			if i == 0 {
				first[k] = true
			} else {
				diffs[k>>8-last>>8]++
			}
			last = k
			for b := range bits {
				bits[b] += int(k >> b & 1)
			}
		}
		for d, c := range diffs {
			if c > n/64 {
				t.Errorf("seed %d: difference %#x occurs %d times among %d keys", seed, d, c, n)
			}
		}
		for b, c := range bits {
			if c < n*2/5 || c > n*3/5 {
				t.Errorf("seed %d: bit %d is set in %d of %d keys", seed, b, c, n)
			}
		}
	}
	if len(first) != 50 {
		t.Errorf("50 tables begin with %d different keys", len(first))
	}
}

// TestKeysAreIndependent: the keys of a table do not reveal its next keys. The keys of regions that are registered in
// a row, and the differences between them, are spread over the whole space.
func TestKeysAreIndependent(t *testing.T) {
	const n, buckets = 4000, 16
	tab, pd := newTable(), NewPD()
	var numbers, steps [buckets]int
	last := uint32(0)
	for range n {
		k := uint32(register(t, tab, pd, 8, 0, Options{}).RKey())
		numbers[k>>28]++
		steps[(k-last)>>28]++
		last = k
	}
	for i := range buckets {
		if lo, hi := n/buckets*3/4, n/buckets*5/4; min(numbers[i], steps[i]) < lo || max(numbers[i], steps[i]) > hi {
			t.Errorf("bucket %d of %d: %d keys and %d differences of %d, want between %d and %d", i, buckets, numbers[i], steps[i], n, lo, hi)
		}
	}
}

// TestKeysAreDrawnLate: the table draws the random number of a key when it makes the key. Whoever knows the table
// until then, including the state of its random source, does not know the next keys.
func TestKeysAreDrawnLate(t *testing.T) {
	const before, after = 200, 50
	buf := make([]byte, 8)
	keys := func(later uint64) (early, late []bth.RKey) {
		source := rand.New(rand.NewPCG(1, 1))
		tab, pd := NewTable(func() uint64 { return source.Uint64() }), NewPD()
		for i := range before + after {
			if i == before {
				source = rand.New(rand.NewPCG(2, later))
			}
			m, err := tab.Register(pd, buf, 0, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if i < before {
				early = append(early, m.RKey())
			} else {
				late = append(late, m.RKey())
			}
		}
		return early, late
	}
	early, late := keys(1)
	same, other := keys(2)
	if !slices.Equal(early, same) {
		t.Fatal("one source gives different keys")
	}
	for i, k := range late {
		if k>>8 == other[i]>>8 {
			t.Errorf("key %d after the others is %v, with either random source", i, k)
		}
	}
}

// TestTrailOfEndedKey: a trail finds a new region whose key has the same upper bits as an ended key.
func TestTrailOfEndedKey(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 8, ZeroBased, Options{})
	var trail Trail
	local := func(m *MR) Fault {
		_, _, f := trail.Local(tab, pd, m.SGE(0, 8), 0)
		return f
	}
	if f := local(m); f != OK {
		t.Fatal(f)
	}
	key := m.g.key()
	if err := m.Deregister(); err != nil {
		t.Fatal(err)
	}
	if f := local(m); f != BadKey {
		t.Fatalf("an ended key opens something: %v", f)
	}
	fixed := NewTable(func() uint64 { return uint64(key >> 8) }) // its first key has these upper bits
	m = register(t, fixed, pd, 8, ZeroBased, Options{})
	if !sameName(m.g.key(), key) {
		t.Fatalf("the region has key %#x, want one like %#x", m.g.key(), key)
	}
	if _, _, f := trail.Local(fixed, pd, m.SGE(0, 8), 0); f != OK {
		t.Errorf("the region that has the upper bits now: %v", f)
	}
}

// TestPoorRandomness: with a random source that returns one value for ever, the table neither hangs nor makes key 0.
func TestPoorRandomness(t *testing.T) {
	for _, v := range []uint64{0, math.MaxUint64} {
		tab, pd := NewTable(func() uint64 { return v }), NewPD()
		last := bth.RKey(0)
		for range 300 {
			m := register(t, tab, pd, 8, 0, Options{})
			if m.RKey() == 0 || m.RKey() == last {
				t.Fatalf("key %#x after %#x", m.RKey(), last)
			}
			last = m.RKey()
			if err := m.Deregister(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestInvalidateUserRegion(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 8, RemoteRead|ZeroBased, Options{})
	for _, tt := range []struct {
		name string
		pd   *PD
		key  bth.RKey
		want Fault
	}{
		{"user region", pd, m.RKey(), NotInvalidable},
		{"other domain", NewPD(), m.RKey(), BadPD},
		{"other variant", pd, m.RKey() ^ 0x80, BadKey},
		{"nothing", pd, 0xdeadbe, BadKey},
	} {
		if f := tab.Invalidate(tt.pd, 0x11, tt.key); f != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, f, tt.want)
		}
	}
	if _, _, f := tab.Remote(pd, 1, m.RKey(), 0, 8, RemoteRead); f != OK {
		t.Errorf("region after the attempts: %v", f)
	}
}

func TestPD(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 8, 0, Options{})
	if err := pd.Dealloc(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Dealloc with a region: %v", err)
	}
	if err := pd.Retain(); err != nil {
		t.Fatal(err)
	}
	if err := m.Deregister(); err != nil {
		t.Fatal(err)
	}
	if err := pd.Dealloc(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Dealloc with a queue pair: %v", err)
	}
	pd.Release()
	if err := pd.Dealloc(); err != nil {
		t.Errorf("Dealloc: %v", err)
	}
	if err := pd.Dealloc(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("second Dealloc: %v", err)
	}
	if err := pd.Retain(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Retain after Dealloc: %v", err)
	}
}

func TestStrings(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Access(0).String(), "0"},
		{(LocalWrite | RemoteRead).String(), "LOCAL_WRITE|REMOTE_READ"},
		{(RelaxedOrdering | 1<<30).String(), "RELAXED_ORDERING|0x40000000"},
		{OK.String(), "OK"},
		{BadRange.String(), "out of range"},
		{NotInvalidable.String(), "not invalidatable"},
		{Fault(99).String(), "Fault(99)"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// FuzzRemote compares the check of Remote with arithmetic that cannot overflow. It then reads the memory that Remote
// allowed.
func FuzzRemote(f *testing.F) {
	f.Add(uint64(0), uint16(1), uint64(0), uint64(1))
	f.Add(uint64(math.MaxUint64-9), uint16(8), uint64(math.MaxUint64), uint64(2))
	f.Fuzz(func(t *testing.T, iova uint64, size uint16, va, n uint64) {
		tab, pd := newTable(), NewPD()
		m, err := tab.Register(pd, make([]byte, size), RemoteRead, Options{IOVA: iova, HasIOVA: true})
		if err != nil {
			return
		}
		got, off, fault := tab.Remote(pd, 1, m.RKey(), va, n, RemoteRead)
		inside := va >= iova && va-iova <= uint64(size) && n <= uint64(size)-(va-iova)
		if inside != (fault == OK) {
			t.Fatalf("iova %#x size %d va %#x n %#x: %v", iova, size, va, n, fault)
		}
		if fault == OK {
			got.ReadAt(make([]byte, n), off)
		}
	})
}

func TestLookupsDoNotAllocate(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 64, LocalWrite|RemoteWrite|RemoteAtomic|ZeroBased, Options{})
	var buf [16]byte
	if n := testing.AllocsPerRun(100, func() {
		r, off, _ := tab.Remote(pd, 1, m.RKey(), 8, 16, RemoteWrite)
		r.WriteAt(off, buf[:])
		l, off, _ := tab.Local(pd, m.SGE(8, 16), LocalWrite)
		l.ReadAt(buf[:], off)
		l.FetchAdd(off, 1)
		tab.Remote(pd, 1, m.RKey()+1, 8, 16, RemoteWrite)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRemote(b *testing.B) {
	tab, pd := newTable(), NewPD()
	var keys [64]bth.RKey
	for i := range keys {
		keys[i] = register(b, tab, pd, 4096, RemoteRead|ZeroBased, Options{}).RKey()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, _, f := tab.Remote(pd, 1, keys[i&63], 100, 1024, RemoteRead); f != OK {
			b.Fatal(f)
		}
	}
}

func BenchmarkLocal(b *testing.B) {
	tab, pd := newTable(), NewPD()
	m := register(b, tab, pd, 4096, LocalWrite, Options{})
	s := m.SGE(100, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, f := tab.Local(pd, s, LocalWrite); f != OK {
			b.Fatal(f)
		}
	}
}

func BenchmarkRegister(b *testing.B) {
	tab, pd := newTable(), NewPD()
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		m, err := tab.Register(pd, buf, LocalWrite, Options{})
		if err != nil {
			b.Fatal(err)
		}
		m.Deregister()
	}
}
