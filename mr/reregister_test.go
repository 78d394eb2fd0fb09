package mr

import (
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/goroce/roce/errs"
)

// TestReregister: the cases have the names of the rows of the ibv_rereg_mr error table. A refusal must leave the
// region as it was.
func TestReregister(t *testing.T) {
	const iova = 0x10000
	tab := newTable()
	pd, other, dead := NewPD(), NewPD(), NewPD()
	if err := dead.Dealloc(); err != nil {
		t.Fatal(err)
	}
	small := aligned(64)
	for _, tt := range []struct {
		name  string
		was   Access
		flags Rereg
		pd    *PD
		buf   []byte
		acc   Access
		opt   Options
		want  error
	}{
		{"translation", LocalWrite, ReregTranslation, nil, small, 0, Options{}, nil},
		{"translation at an address", LocalWrite, ReregTranslation, nil, small, 0, Options{IOVA: 5, HasIOVA: true}, nil},
		{"domain", LocalWrite, ReregPD, other, nil, 0, Options{}, nil},
		{"access", LocalWrite, ReregAccess, nil, nil, RemoteRead, Options{}, nil},
		{"access to nothing", LocalWrite | RemoteWrite, ReregAccess, nil, nil, 0, Options{}, nil},
		{"all", LocalWrite, reregAll, other, small, RemoteRead | LocalWrite, Options{}, nil},
		{"all, zero based", LocalWrite, reregAll, other, small, RemoteRead | ZeroBased, Options{}, nil},
		{"translation of a zero based region", LocalWrite | ZeroBased, ReregTranslation, nil, small, 0, Options{}, nil},
		{"memory is ignored without its flag", LocalWrite, ReregPD, other, small, 0, Options{IOVA: 7, HasIOVA: true}, nil},
		{"domain is ignored without its flag", LocalWrite, ReregAccess, dead, nil, RemoteRead, Options{}, nil},
		{"no flags", LocalWrite, 0, nil, nil, 0, Options{}, syscall.EINVAL},
		{"unknown flag", LocalWrite, ReregPD | 8, other, nil, 0, Options{}, syscall.EINVAL},
		{"access without its flag", LocalWrite, ReregPD, other, nil, RemoteRead, Options{}, syscall.EINVAL},
		{"remote write without local write", LocalWrite, ReregAccess, nil, nil, RemoteWrite, Options{}, syscall.EINVAL},
		{"remote atomic without local write", LocalWrite, ReregAccess, nil, nil, RemoteAtomic, Options{}, syscall.EINVAL},
		{"unknown access bit", LocalWrite, ReregAccess, nil, nil, 1 << 10, Options{}, syscall.EINVAL},
		{"flush persistent", LocalWrite, ReregAccess, nil, nil, FlushPersistent, Options{}, syscall.EINVAL},
		{"flush persistent memory", LocalWrite, ReregTranslation | ReregAccess, nil, small, FlushPersistent, Options{Persist: func([]byte) error { return nil }}, nil},
		{"on demand", LocalWrite, ReregAccess, nil, nil, OnDemand, Options{}, syscall.EOPNOTSUPP},
		{"length 0", LocalWrite, ReregTranslation, nil, nil, 0, Options{}, syscall.EINVAL},
		{"address wrap", LocalWrite, ReregTranslation, nil, small, 0, Options{IOVA: math.MaxUint64 - 62, HasIOVA: true}, syscall.EINVAL},
		{"zero based at an address", LocalWrite, ReregTranslation | ReregAccess, nil, small, ZeroBased, Options{IOVA: 8, HasIOVA: true}, syscall.EINVAL},
		{"zero based without translation", LocalWrite, ReregAccess, nil, nil, ZeroBased, Options{}, syscall.EINVAL},
		{"no longer zero based without translation", ZeroBased, ReregAccess, nil, nil, LocalWrite, Options{}, syscall.EINVAL},
		{"no domain", LocalWrite, ReregPD, nil, nil, 0, Options{}, syscall.EINVAL},
		{"deallocated domain", LocalWrite, ReregPD, dead, nil, 0, Options{}, syscall.EINVAL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := Options{IOVA: iova, HasIOVA: true}
			if tt.was&ZeroBased != 0 {
				opt = Options{}
			}
			m := register(t, tab, pd, 4096, tt.was, opt)
			key, addr := m.RKey(), m.Addr()
			err := m.Reregister(tt.flags, tt.pd, tt.buf, tt.acc, tt.opt)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Reregister: %v, want %v", err, tt.want)
			}
			var e *errs.Error
			if err != nil && !errors.As(err, &e) {
				t.Errorf("%T is not an *errs.Error", err)
			}
			wantPD, acc, length := pd, tt.was, 4096
			if err == nil {
				if tt.flags&ReregPD != 0 {
					wantPD = tt.pd
				}
				if tt.flags&ReregAccess != 0 {
					acc = tt.acc
				}
				if tt.flags&ReregTranslation != 0 {
					length, addr = len(tt.buf), address(tt.buf, acc, tt.opt)
				}
			}
			if m.RKey() != key || m.PD() != wantPD || m.Access() != acc || m.Length() != length || m.Addr() != addr {
				t.Errorf("now key %v, %d bytes at %#x, %v", m.RKey(), m.Length(), m.Addr(), m.Access())
			}
			// A lookup succeeds with the values that the region reports, and fails beyond them.
			for _, p := range []*PD{pd, other} {
				_, _, f := tab.Remote(p, q1, key, addr, uint64(length), acc)
				if (f == OK) != (p == wantPD) {
					t.Errorf("lookup: %v", f)
				}
			}
			refused(t, tab, wantPD, q1, key, addr, uint64(length)+1, 0, BadRange)
			refused(t, tab, wantPD, q1, key, addr, 1, windowed&^acc, map[bool]Fault{true: OK, false: BadAccess}[windowed&^acc == 0])
			if err := m.Deregister(); err != nil {
				t.Fatal(err)
			}
			if err := m.Reregister(ReregAccess, nil, nil, LocalWrite, Options{}); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("after Deregister: %v", err)
			}
		})
	}
	for _, p := range []*PD{pd, other} {
		if err := p.Dealloc(); err != nil { // the use counts are right
			t.Error(err)
		}
	}
}

// TestReregisterMovesMemory: a write does not change the memory that the region had before.
func TestReregisterMovesMemory(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 8, LocalWrite|RemoteWrite|ZeroBased, Options{})
	before, after := m.buf, aligned(16)
	if err := m.Reregister(ReregTranslation, nil, after[:16], 0, Options{}); err != nil {
		t.Fatal(err)
	}
	v, at, f := tab.Remote(pd, q1, m.RKey(), 8, 8, RemoteWrite)
	if f != OK {
		t.Fatal(f)
	}
	v.WriteAt(at, []byte("new home"))
	if string(after[8:16]) != "new home" || before[0] != 0 {
		t.Errorf("wrote into %q, %q", before, after)
	}
}

func TestReregisterUnderWindow(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := register(t, tab, pd, 4096, bindable, Options{})
	w := allocMW(t, tab, pd, MWType1)
	bind(t, tab, nil, w, to(w, m, 0, 8, RemoteRead))
	for _, flags := range []Rereg{ReregTranslation, ReregPD, ReregAccess} {
		acc := LocalWrite
		if flags != ReregAccess {
			acc = 0
		}
		if err := m.Reregister(flags, NewPD(), aligned(8), acc, Options{}); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("flags %v: %v", flags, err)
		}
	}
	reach(t, tab, pd, q1, w.RKey(), m.Addr(), 8, RemoteRead, m, 0)
	if err := w.Dealloc(); err != nil {
		t.Fatal(err)
	}
	if err := m.Reregister(ReregAccess, nil, nil, 0, Options{}); err != nil {
		t.Error(err)
	}
}
