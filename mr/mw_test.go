package mr

import (
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
)

const (
	q1, q2 bth.QPN = 0x11, 0x22

	bindable = LocalWrite | RemoteRead | RemoteWrite | RemoteAtomic | MWBind
	windowed = RemoteRead | RemoteWrite | RemoteAtomic
)

func allocMW(t testing.TB, tab *Table, pd *PD, typ MWType) *MW {
	t.Helper()
	w, err := tab.AllocMW(pd, typ)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// to returns the binding of a window to n bytes of a region from offset off.
func to(w *MW, m *MR, off, n uint64, acc Access) *Binding {
	return &Binding{Key: IncRKey(w.RKey()), MR: m, LKey: m.LKey(), Addr: m.Addr() + off, Length: n, Access: acc}
}

// bind binds on queue pair q1 and reports the new key with Posted, as PostSend does.
func bind(t testing.TB, tab *Table, l *Windows, w *MW, b *Binding) {
	t.Helper()
	if f := tab.Bind(w.PD(), q1, l, w, b); f != OK {
		t.Fatalf("bind: %v", f)
	}
	w.Posted(b.Key)
}

// reach looks up n bytes as a peer on queue pair q does. It checks that they are the memory of the region from offset
// off.
func reach(t testing.TB, tab *Table, pd *PD, q bth.QPN, key bth.RKey, va, n uint64, need Access, m *MR, off uint64) {
	t.Helper()
	v, at, f := tab.Remote(pd, q, key, va, n, need)
	if f != OK {
		t.Fatalf("key %v, address %#x: %v", key, va, f)
	}
	m.buf[off]++
	var got [1]byte
	if f := v.ReadAt(got[:], at); f != OK || got[0] != m.buf[off] {
		t.Fatalf("key %v, address %#x is not offset %d: %v", key, va, off, f)
	}
}

// refused looks up memory as a peer does and expects a fault.
func refused(t testing.TB, tab *Table, pd *PD, q bth.QPN, key bth.RKey, va, n uint64, need Access, want Fault) {
	t.Helper()
	if _, _, f := tab.Remote(pd, q, key, va, n, need); f != want {
		t.Errorf("key %v, address %#x: %v, want %v", key, va, f, want)
	}
}

func TestAllocMW(t *testing.T) {
	tab, pd := newTable(), NewPD()
	for _, typ := range []MWType{0, 3} {
		if w, err := tab.AllocMW(pd, typ); !errors.Is(err, syscall.EINVAL) || w != nil {
			t.Errorf("%v: %v, %v", typ, w, err)
		}
	}
	if _, err := tab.AllocMW(nil, MWType1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no domain: %v", err)
	}
	w := allocMW(t, tab, pd, MWType2)
	if w.Type() != MWType2 || w.PD() != pd || tab.Len() != 1 {
		t.Errorf("type %v, %d objects", w.Type(), tab.Len())
	}
	refused(t, tab, pd, q1, w.RKey(), 0, 0, 0, BadKey) // unbound
	if err := pd.Dealloc(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("domain with a window: %v", err)
	}
	if err := w.Dealloc(); err != nil {
		t.Fatal(err)
	}
	if err := w.Dealloc(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("twice: %v", err)
	}
	if err := pd.Dealloc(); err != nil || tab.Len() != 0 {
		t.Errorf("domain without: %v, %d objects", err, tab.Len())
	}
}

// TestBindRules: the rules of a bind. The cases have the names of the compliance statements of the standard.
func TestBindRules(t *testing.T) {
	type env struct {
		tab         *Table
		pd, other   *PD
		m, zero, ro *MR
		noBind      *MR
		gone        *MR
		l           Windows
	}
	both := []MWType{MWType1, MWType2}
	only := func(x MWType) []MWType { return []MWType{x} }
	top := uint64(math.MaxUint64)
	for _, tt := range []struct {
		name  string
		types []MWType
		b     func(e *env, w *MW) *Binding
		pd    func(e *env) *PD // of the queue pair; nil: the same as that of the window
		want  Fault
	}{
		{"whole region", both, func(e *env, w *MW) *Binding { return to(w, e.m, 0, 4096, windowed) }, nil, OK},
		{"last byte", both, func(e *env, w *MW) *Binding { return to(w, e.m, 4095, 1, RemoteRead) }, nil, OK},
		{"no rights", both, func(e *env, w *MW) *Binding { return to(w, e.m, 0, 8, 0) }, nil, OK},
		{"LOCAL_WRITE among the rights means nothing", both, func(e *env, w *MW) *Binding { return to(w, e.m, 0, 8, RemoteWrite|LocalWrite) }, nil, OK},
		{"optional right", both, func(e *env, w *MW) *Binding { return to(w, e.m, 0, 8, RemoteRead|RelaxedOrdering) }, nil, OK},
		{"any low byte", both, func(e *env, w *MW) *Binding {
			b := to(w, e.m, 0, 8, RemoteRead)
			b.Key ^= 0x5A
			return b
		}, nil, OK},
		{"C10-72: queue pair of another domain", both, func(e *env, w *MW) *Binding { return to(w, e.m, 0, 8, RemoteRead) },
			func(e *env) *PD { return e.other }, BadPD},
		{"C10-72: region of another domain", both, func(e *env, w *MW) *Binding {
			return to(w, register(t, e.tab, e.other, 64, bindable, Options{}), 0, 8, RemoteRead)
		}, nil, BadPD},
		{"C10-73: region without MW_BIND", both, func(e *env, w *MW) *Binding { return to(w, e.noBind, 0, 8, RemoteRead) }, nil, BadAccess},
		{"C10-74: remote write without local write", both, func(e *env, w *MW) *Binding { return to(w, e.ro, 0, 8, RemoteWrite) }, nil, BadAccess},
		{"C10-74: remote atomic without local write", both, func(e *env, w *MW) *Binding { return to(w, e.ro, 0, 8, RemoteAtomic) }, nil, BadAccess},
		{"C10-74: remote read needs none", both, func(e *env, w *MW) *Binding { return to(w, e.ro, 0, 8, RemoteRead) }, nil, OK},
		{"C10-75: beyond the end", both, func(e *env, w *MW) *Binding { return to(w, e.m, 4090, 7, RemoteRead) }, nil, BadRange},
		{"C10-75: before the start", both, func(e *env, w *MW) *Binding { return to(w, e.m, top, 8, RemoteRead) }, nil, BadRange},
		{"C10-75: address plus length wraps to inside", both, func(e *env, w *MW) *Binding {
			b := to(w, e.m, 0, 0, RemoteRead)
			b.Addr, b.Length = top-7, e.m.Addr()+16
			return b
		}, nil, BadRange},
		{"C10-75: length 2^64-1", both, func(e *env, w *MW) *Binding { return to(w, e.m, 8, top, RemoteRead) }, nil, BadRange},
		{"C10-75: length wraps", both, func(e *env, w *MW) *Binding { return to(w, e.m, 16, top-8, RemoteRead) }, nil, BadRange},
		{"C10-75: zero based, longer than the region", only(MWType2), func(e *env, w *MW) *Binding { return to(w, e.m, 0, 4097, RemoteRead|ZeroBased) }, nil, BadRange},
		{"C10-75: zero based, beyond the end", only(MWType2), func(e *env, w *MW) *Binding { return to(w, e.m, 4096, 1, RemoteRead|ZeroBased) }, nil, BadRange},
		{"zero based type 2", only(MWType2), func(e *env, w *MW) *Binding { return to(w, e.m, 64, 8, RemoteRead|ZeroBased) }, nil, OK},
		{"o10-36.2.2: zero based type 1", only(MWType1), func(e *env, w *MW) *Binding { return to(w, e.m, 64, 8, RemoteRead|ZeroBased) }, nil, BadAccess},
		{"o10-36.2.2: type 1 on a zero based region", only(MWType1), func(e *env, w *MW) *Binding { return to(w, e.zero, 64, 8, RemoteRead) }, nil, BadAccess},
		{"type 2 on a zero based region", only(MWType2), func(e *env, w *MW) *Binding { return to(w, e.zero, 64, 8, RemoteRead) }, nil, OK},
		{"o10-37.2.40: length 0", only(MWType2), func(e *env, w *MW) *Binding { return to(w, e.m, 0, 0, 0) }, nil, BadRange},
		{"o10-37.2.40: no region", only(MWType2), func(e *env, w *MW) *Binding { return &Binding{Key: w.RKey(), Length: 8} }, nil, BadKey},
		{"length 0 unbinds", only(MWType1), func(e *env, w *MW) *Binding { return &Binding{Key: IncRKey(w.RKey())} }, nil, OK},
		{"no region for a length", only(MWType1), func(e *env, w *MW) *Binding { return &Binding{Key: w.RKey(), Length: 8} }, nil, BadKey},
		{"key of another object", both, func(e *env, w *MW) *Binding {
			b := to(w, e.m, 0, 8, RemoteRead)
			b.Key ^= 0x100
			return b
		}, nil, BadKey},
		{"stale key of the region", both, func(e *env, w *MW) *Binding {
			b := to(w, e.m, 0, 8, RemoteRead)
			b.LKey ^= 1
			return b
		}, nil, BadKey},
		{"deregistered region", both, func(e *env, w *MW) *Binding { return to(w, e.gone, 0, 8, RemoteRead) }, nil, BadKey},
		{"unknown right", both, func(e *env, w *MW) *Binding { return to(w, e.m, 0, 8, RemoteRead|1<<11) }, nil, BadAccess},
		{"MW_BIND is not a right of a window", both, func(e *env, w *MW) *Binding { return to(w, e.m, 0, 8, RemoteRead|MWBind) }, nil, BadAccess},
	} {
		for _, typ := range tt.types {
			t.Run(tt.name+", "+typ.String(), func(t *testing.T) {
				e := &env{tab: newTable(), pd: NewPD(), other: NewPD()}
				at := Options{IOVA: 0x10000, HasIOVA: true}
				e.m = register(t, e.tab, e.pd, 4096, bindable, at)
				e.zero = register(t, e.tab, e.pd, 4096, bindable|ZeroBased, Options{})
				e.ro = register(t, e.tab, e.pd, 4096, RemoteRead|MWBind, at)
				e.noBind = register(t, e.tab, e.pd, 4096, bindable&^MWBind, at)
				e.gone = register(t, e.tab, e.pd, 4096, bindable, at)
				if err := e.gone.Deregister(); err != nil {
					t.Fatal(err)
				}
				w := allocMW(t, e.tab, e.pd, typ)
				pd := e.pd
				if tt.pd != nil {
					pd = tt.pd(e)
				}
				b := tt.b(e, w)
				before := w.RKey()
				if f := e.tab.Bind(pd, q1, &e.l, w, b); f != tt.want {
					t.Fatalf("Bind = %v, want %v", f, tt.want)
				}
				if tt.want == OK && b.Length > 0 {
					va := b.Addr
					if b.Access&ZeroBased != 0 {
						va = 0
					}
					refused(t, e.tab, e.pd, q1, b.Key, va+b.Length, 1, 0, BadRange)
					reach(t, e.tab, e.pd, q1, b.Key, va, b.Length, b.Access&windowed, b.MR, b.Addr-b.MR.Addr())
					refused(t, e.tab, e.pd, q1, before, va, 1, 0, BadKey)
					if err := b.MR.Deregister(); !errors.Is(err, syscall.EBUSY) {
						t.Errorf("region under a window: %v", err)
					}
				} else {
					refused(t, e.tab, e.pd, q1, b.Key, b.Addr, 0, 0, BadKey)
				}
				if err := w.Dealloc(); err != nil { // unbinds
					t.Fatal(err)
				}
				refused(t, e.tab, e.pd, q1, b.Key, b.Addr, 0, 0, BadKey)
				for _, m := range []*MR{e.m, e.zero, e.ro, e.noBind} {
					if err := m.Deregister(); err != nil {
						t.Errorf("region afterwards: %v", err)
					}
				}
				if e.l.first != nil {
					t.Error("a window is left on the list of the queue pair")
				}
			})
		}
	}
}

// TestWindowRights: a window grants its own rights and not those of its region.
func TestWindowRights(t *testing.T) {
	tab, pd, other := newTable(), NewPD(), NewPD()
	m := register(t, tab, pd, 4096, LocalWrite|MWBind, Options{IOVA: 0x10000, HasIOVA: true}) // no remote rights
	var l Windows
	for _, typ := range []MWType{MWType1, MWType2} {
		w := allocMW(t, tab, pd, typ)
		bind(t, tab, &l, w, to(w, m, 64, 8, RemoteRead))
		k, va := w.RKey(), uint64(0x10040)
		reach(t, tab, pd, q1, k, va, 8, RemoteRead, m, 64)
		reach(t, tab, pd, q1, k, va+7, 1, RemoteRead, m, 71)
		refused(t, tab, pd, q1, k, va, 1, RemoteWrite, BadAccess)
		refused(t, tab, pd, q1, k, va, 8, RemoteAtomic, BadAccess)
		refused(t, tab, pd, q1, k, va, 1, LocalWrite, BadAccess)
		refused(t, tab, pd, q1, k, va-1, 1, RemoteRead, BadRange)
		refused(t, tab, pd, q1, k, va+8, 1, RemoteRead, BadRange)
		refused(t, tab, pd, q1, k, va+1, 8, RemoteRead, BadRange)
		refused(t, tab, pd, q1, k, va, math.MaxUint64, RemoteRead, BadRange)
		refused(t, tab, other, q1, k, va, 1, RemoteRead, BadPD)
		refused(t, tab, pd, q1, m.RKey(), va, 1, RemoteRead, BadAccess) // not through the region
		if typ == MWType2 {
			refused(t, tab, pd, q2, k, va, 1, RemoteRead, BadQP)
		} else {
			reach(t, tab, pd, q2, k, va, 1, RemoteRead, m, 64)
		}
		// A window is for peers only.
		if _, _, f := tab.Local(pd, SGE{va, 1, bth.LKey(k)}, 0); f != BadKey {
			t.Errorf("%v as L_Key: %v", typ, f)
		}
	}
}

// TestRebindType1: a type 1 window can be bound repeatedly, to other regions. Each bind invalidates the previous key.
func TestRebindType1(t *testing.T) {
	tab, pd := newTable(), NewPD()
	at := Options{IOVA: 0x10000, HasIOVA: true}
	a, b := register(t, tab, pd, 4096, bindable, at), register(t, tab, pd, 4096, bindable, at)
	w := allocMW(t, tab, pd, MWType1)
	keys := []bth.RKey{w.RKey()}
	for i, m := range []*MR{a, b, b, a} {
		bind(t, tab, nil, w, to(w, m, uint64(i)*8, 8, RemoteWrite))
		for _, old := range keys {
			refused(t, tab, pd, q1, old, 0x10000+uint64(i)*8, 8, RemoteWrite, BadKey)
		}
		if w.RKey() != IncRKey(keys[len(keys)-1]) {
			t.Errorf("bind %d: key %v after %v", i, w.RKey(), keys[len(keys)-1])
		}
		keys = append(keys, w.RKey())
		reach(t, tab, pd, q2, w.RKey(), 0x10000+uint64(i)*8, 8, RemoteWrite, m, uint64(i)*8)
		for _, x := range []*MR{a, b} {
			if n := x.g.windows(); (n == 1) != (x == m) {
				t.Fatalf("bind %d: %d windows on a region", i, n)
			}
		}
	}
	// A refused bind leaves the window as it is.
	bad := to(w, a, 4090, 8, RemoteWrite)
	if f := tab.Bind(pd, q1, nil, w, bad); f != BadRange {
		t.Fatalf("bad bind: %v", f)
	}
	reach(t, tab, pd, q1, w.RKey(), 0x10000+24, 8, RemoteWrite, a, 24)

	bind(t, tab, nil, w, &Binding{Key: IncRKey(w.RKey())})
	refused(t, tab, pd, q1, w.RKey(), 0x10000+24, 8, RemoteWrite, BadKey)
	if err := a.Deregister(); err != nil {
		t.Errorf("after the unbind: %v", err)
	}
}

// TestType2LifeCycle: a type 2 window can be bound only while it is free. Only the queue pair that it is bound to can
// free it.
func TestType2LifeCycle(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 4096, bindable|ZeroBased, Options{})
	w := allocMW(t, tab, pd, MWType2)
	var l Windows
	for round := range 3 {
		b := to(w, m, 8, 8, RemoteWrite)
		if round == 2 {
			b.Key = w.RKey() // the program may even keep the key
		}
		bind(t, tab, &l, w, b)
		reach(t, tab, pd, q1, w.RKey(), 8, 8, RemoteWrite, m, 8)
		if f := tab.Bind(pd, q1, &l, w, to(w, m, 0, 8, RemoteWrite)); f != BadState {
			t.Fatalf("o10-37.2.30: bind of a bound window: %v", f)
		}
		if n := m.g.windows(); n != 1 {
			t.Fatalf("%d windows after a refused bind", n)
		}
		for _, tt := range []struct {
			name string
			pd   *PD
			qpn  bth.QPN
			key  bth.RKey
			want Fault
		}{
			{"other queue pair", pd, q2, w.RKey(), BadQP},
			{"other domain", NewPD(), q1, w.RKey(), BadPD},
			{"other variant", pd, q1, IncRKey(w.RKey()), BadKey},
			{"its queue pair", pd, q1, w.RKey(), OK},
			{"twice", pd, q1, w.RKey(), BadKey},
		} {
			if f := tab.Invalidate(tt.pd, tt.qpn, tt.key); f != tt.want {
				t.Fatalf("invalidate by %s: %v, want %v", tt.name, f, tt.want)
			}
		}
		refused(t, tab, pd, q1, w.RKey(), 8, 8, RemoteWrite, BadKey)
	}
	if err := m.Deregister(); err != nil {
		t.Error(err)
	}
}

func TestInvalidateType1(t *testing.T) { // o10-37.2.26
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 64, bindable|ZeroBased, Options{})
	v := register(t, tab, pd, 64, bindable, Options{})
	w := allocMW(t, tab, pd, MWType1)
	bind(t, tab, nil, w, to(w, v, 0, 8, RemoteRead))
	if f := tab.Invalidate(pd, q1, w.RKey()); f != NotInvalidable {
		t.Errorf("type 1 window: %v", f)
	}
	if f := tab.Invalidate(pd, q1, m.RKey()); f != NotInvalidable {
		t.Errorf("region: %v", f)
	}
	reach(t, tab, pd, q1, w.RKey(), v.Addr(), 8, RemoteRead, v, 0)
}

// TestUnbindAll: UnbindAll unbinds all windows of one queue pair that are still bound, and none of another.
func TestUnbindAll(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 64, bindable|ZeroBased, Options{})
	var mine, yours Windows
	var ws []*MW
	for i := range 6 {
		w := allocMW(t, tab, pd, MWType2)
		l, q := &mine, q1
		if i == 5 {
			l, q = &yours, q2
		}
		b := to(w, m, 0, 8, RemoteRead)
		if f := tab.Bind(pd, q, l, w, b); f != OK {
			t.Fatal(f)
		}
		w.Posted(b.Key)
		ws = append(ws, w)
	}
	for _, i := range []int{4, 0} { // first and last of the list
		if f := tab.Invalidate(pd, q1, ws[i].RKey()); f != OK {
			t.Fatal(f)
		}
	}
	if err := ws[2].Dealloc(); err != nil { // in the middle
		t.Fatal(err)
	}
	if n := m.g.windows(); n != 3 {
		t.Fatalf("%d windows are bound, want 3", n)
	}
	tab.UnbindAll(&mine)
	tab.UnbindAll(&mine)
	for _, i := range []int{1, 3} {
		refused(t, tab, pd, q1, ws[i].RKey(), 0, 8, RemoteRead, BadKey)
		b := to(ws[i], m, 0, 8, RemoteRead) // free for another queue pair
		if f := tab.Bind(pd, q2, &yours, ws[i], b); f != OK {
			t.Fatal(f)
		}
	}
	reach(t, tab, pd, q2, ws[5].RKey(), 0, 8, RemoteRead, m, 0)
	tab.UnbindAll(&yours)
	if err := m.Deregister(); err != nil {
		t.Error(err)
	}
}

// TestWindowKeyDies: Dealloc invalidates the key of a window.
func TestWindowKeyDies(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 64, bindable, Options{})
	var old bth.RKey
	for range 300 {
		w := allocMW(t, tab, pd, MWType1)
		if old != 0 && w.RKey() == old {
			t.Fatalf("key %v again", old)
		}
		bind(t, tab, nil, w, to(w, m, 0, 8, RemoteRead))
		reach(t, tab, pd, q1, w.RKey(), m.Addr(), 8, RemoteRead, m, 0)
		if old != 0 && old != w.RKey() { // the low 8 bits repeat
			refused(t, tab, pd, q1, old, m.Addr(), 8, RemoteRead, BadKey)
		}
		old = w.RKey()
		if err := w.Dealloc(); err != nil {
			t.Fatal(err)
		}
		refused(t, tab, pd, q1, old, m.Addr(), 8, RemoteRead, BadKey)
		if f := tab.Bind(pd, q1, nil, w, to(w, m, 0, 8, RemoteRead)); f != BadKey {
			t.Fatalf("bind after Dealloc: %v", f)
		}
		if n := tab.keys.Len(); n != 1 {
			t.Fatalf("%d keys for one object", n)
		}
	}
}
