package route

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// MaxGIDs is the number of entries that a GID table may have (gid_tbl_len), as
// with rxe.
const MaxGIDs = 1024

// GIDTable has the addresses of a device by index. A table is immutable: the device
// replaces it as a whole, while its shards are stopped. So the check of a packet
// against it needs no lock.
type GIDTable struct {
	slots []bth.GID            // zero: empty
	was   []bth.GID            // present or last GID of each slot
	used  []bth.GID            // GIDs of the slots that are not empty
	set   map[bth.GID]struct{} // the GIDs in used, if there are many
}

// fewGIDs is the number of GIDs up to which a linear search is faster than a
// map.
const fewGIDs = 4

// Slots returns the GIDs by index; an empty slot is zero. The caller must not change them.
func (t *GIDTable) Slots() []bth.GID { return t.slots }

// Has reports whether the device has a GID.
func (t *GIDTable) Has(g *bth.GID) bool {
	if t.set != nil {
		_, ok := t.set[*g]
		return ok
	}
	for i := range t.used {
		if t.used[i] == *g {
			return true
		}
	}
	return false
}

// Index finds a GID.
func (t *GIDTable) Index(g bth.GID) (int, bool) {
	if g.IsZero() {
		return 0, false
	}
	i := slices.Index(t.slots, g)
	return max(i, 0), i >= 0
}

// At returns the GID at an index. It returns false if there is none.
func (t *GIDTable) At(i int) (bth.GID, bool) {
	if i < 0 || i >= len(t.slots) {
		return bth.GID{}, false
	}
	return t.slots[i], !t.slots[i].IsZero()
}

// update returns a table that has exactly the GIDs in want, and the number of added and
// removed ones. A GID that stays keeps its index. A removed one leaves an empty slot. One
// that returns gets its former slot, if that is empty. A new one is appended, or takes an
// empty slot when the table has its full length.
func (t *GIDTable) update(want []bth.GID) (next *GIDTable, changed int) {
	next = &GIDTable{slots: slices.Clone(t.slots), was: slices.Clone(t.was)}
	for i, g := range next.slots {
		if !g.IsZero() && !slices.Contains(want, g) {
			next.slots[i] = bth.GID{}
			changed++
		}
	}
	put := func(i int, g bth.GID) {
		next.slots[i], next.was[i] = g, g
		changed++
	}
	for _, g := range want {
		if slices.Contains(next.slots, g) {
			continue
		}
		if i := slices.Index(next.was, g); i >= 0 && next.slots[i].IsZero() {
			put(i, g)
		} else if len(next.slots) < MaxGIDs {
			next.slots, next.was = append(next.slots, bth.GID{}), append(next.was, bth.GID{})
			put(len(next.slots)-1, g)
		} else if i := slices.Index(next.slots, bth.GID{}); i >= 0 {
			put(i, g)
		}
	}
	for _, g := range next.slots {
		if !g.IsZero() {
			next.used = append(next.used, g)
		}
	}
	if len(next.used) > fewGIDs {
		next.set = make(map[bth.GID]struct{}, len(next.used))
		for _, g := range next.used {
			next.set[g] = struct{}{}
		}
	}
	return next, changed
}

// GIDsOf checks addresses and turns them into GIDs. op is the call for errors.
func GIDsOf(op string, addrs []netip.Addr) (out []bth.GID, err error) {
	for _, a := range addrs {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return nil, errs.New(op, syscall.EINVAL, "%v cannot be the address of a device", a)
		}
		out = append(out, bth.GIDFrom(a))
	}
	return out, nil
}
