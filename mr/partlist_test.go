package mr

import (
	"errors"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
)

// listed makes a list of parts for a region that begins at address iova.
func listed(t testing.TB, m *MR, iova, repeat uint64, parts ...Part) *PartList {
	t.Helper()
	l, err := m.ListParts(parts, repeat, Options{IOVA: iova, HasIOVA: true})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// listReg registers a list under the next key.
func listReg(t testing.TB, tab *Table, m *MR, l *PartList) {
	t.Helper()
	key := IncRKey(m.RKey())
	m.Posted(key, 0, l)
	if f := tab.RegisterParts(m.PD(), m, l, key, 0); f != OK {
		t.Fatalf("register: %v", f)
	}
}

// invalidated invalidates the key of a region.
func invalidated(t testing.TB, tab *Table, m *MR) {
	t.Helper()
	if f := tab.Invalidate(m.PD(), q1, m.RKey()); f != OK {
		t.Fatalf("invalidate: %v", f)
	}
}

// TestPartLists: lists do not depend on the mapped parts, nor on each other, and can be registered again.
func TestPartLists(t *testing.T) {
	tab, pd := newTable(), NewPD()
	a := text(t, tab, pd, "ABCDEFGHIJ", 0)
	m := allocIndirect(t, tab, pd, 3)
	list := listed(t, m, 0, 1, Part{MR: a, Offset: 3, Length: 2}, Part{MR: a, Length: 1})
	repeat := listed(t, m, 0x1000, 3, Part{MR: a, Length: 1, Stride: 2}, Part{MR: a, Offset: 9, Length: 1})
	if err := m.MapParts([]Part{{MR: a, Offset: 7, Length: 3}}, 1, Options{}); err != nil {
		t.Fatal(err)
	}
	if a.users.Load() != 0 {
		t.Error("a list that is not registered keeps its regions in use")
	}
	for range 2 {
		listReg(t, tab, m, list)
		reachesAll(t, tab, m, []byte("DEA"))
		if err := a.Deregister(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("deregister a part: %v", err)
		}
		if f := tab.RegisterParts(pd, m, repeat, m.RKey(), 0); f != BadState {
			t.Errorf("registered while it is: %v", f)
		}
		invalidated(t, tab, m)
		listReg(t, tab, m, repeat)
		if m.Addr() != 0x1000 || m.Length() != 6 {
			t.Errorf("%d bytes at %#x", m.Length(), m.Addr())
		}
		v, off, _ := tab.Local(pd, m.SGE(0, 6), 0)
		got := make([]byte, 6)
		if f := v.ReadAt(got, off); f != OK || string(got) != "AJCJEJ" {
			t.Errorf("%q, %v", got, f)
		}
		invalidated(t, tab, m)
	}
	fastReg(t, tab, m, 0) // the parts that were mapped before the lists
	if m.Addr() != 0 || m.Length() != 3 {
		t.Errorf("%d bytes at %#x", m.Length(), m.Addr())
	}
	reachesAll(t, tab, m, []byte("HIJ"))
	invalidated(t, tab, m)
	fastReg(t, tab, m, 0) // and again
	reachesAll(t, tab, m, []byte("HIJ"))
	invalidated(t, tab, m)
	listReg(t, tab, m, list)
	invalidated(t, tab, m)
	if f := tab.RegisterFast(pd, m, m.RKey(), 0); f != BadRange {
		t.Errorf("what was mapped is registered again after a list: %v", f)
	}
}

// TestPartListsThatFail: regions may end between ListParts and RegisterParts. The registration then fails and keeps
// no region in use.
func TestPartListsThatFail(t *testing.T) {
	tab, pd := newTable(), NewPD()
	good := text(t, tab, pd, "good", 0)
	m, other := allocIndirect(t, tab, pd, 2), allocIndirect(t, tab, pd, 2)
	fast := allocFast(t, tab, pd, 1)
	mapped(t, fast, Options{}, []byte("fast"))
	fastReg(t, tab, fast, 0)
	gone := text(t, tab, pd, "gone", 0)
	ofFast := listed(t, m, 0, 1, Part{MR: good, Length: 4}, Part{MR: fast, Length: 4})
	ofGone := listed(t, m, 0, 1, Part{MR: good, Length: 4}, Part{MR: gone, Length: 4})
	ofGood := listed(t, m, 0, 1, Part{MR: good, Length: 4})
	invalidated(t, tab, fast)
	fastReg(t, tab, fast, 0) // under another key
	if err := gone.Deregister(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		m    *MR
		list *PartList
		pd   *PD
		key  uint32
		acc  Access
		want Fault
	}{
		{"a part that was registered anew", m, ofFast, pd, 0, 0, BadKey},
		{"a part that was deregistered", m, ofGone, pd, 0, 0, BadKey},
		{"a list of another region", other, ofGood, pd, 0, 0, BadKey},
		{"another domain", m, ofGood, NewPD(), 0, 0, BadPD},
		{"a key of another region", m, ofGood, pd, 0x100, 0, BadKey},
		{"REMOTE_WRITE alone", m, ofGood, pd, 0, RemoteWrite, BadAccess},
	} {
		if f := tab.RegisterParts(tt.pd, tt.m, tt.list, tt.m.RKey()^bth.RKey(tt.key), tt.acc); f != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, f, tt.want)
		}
		if good.users.Load() != 0 || tt.m.Valid() {
			t.Errorf("%s: %d in use, valid %v", tt.name, good.users.Load(), tt.m.Valid())
		}
	}
	if err := m.Deregister(); err != nil {
		t.Fatal(err)
	}
	if f := tab.RegisterParts(pd, m, ofGood, m.RKey(), 0); f != BadKey {
		t.Errorf("of a region that is gone: %v", f)
	}
	if _, err := m.ListParts([]Part{{MR: good, Length: 1}}, 1, Options{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("list of a region that is gone: %v", err)
	}
}
