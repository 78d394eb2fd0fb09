package roce

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// maxGIDs is how many entries the GID table may have (gid_tbl_len), as with rxe.
const maxGIDs = 1024

// gidTable is the device's addresses by index. It is never changed but replaced
// as a whole, while the device stands still: a packet is checked against it
// without a lock of its own.
type gidTable struct {
	slots []bth.GID            // zero: empty
	was   []bth.GID            // what each slot holds, or held last
	used  []bth.GID            // the slots that are not empty
	set   map[bth.GID]struct{} // of used, if they are many
}

// fewGIDs are looked through faster than a map is asked.
const fewGIDs = 4

// gids is the present table of a device.
type gids struct{ table atomic.Pointer[gidTable] }

func (g *gids) set(t *gidTable) { g.table.Store(t) }
func (g *gids) get() *gidTable  { return g.table.Load() }

// has reports whether a GID is one of the device's.
func (t *gidTable) has(g *bth.GID) bool {
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

// index finds a GID.
func (t *gidTable) index(g bth.GID) (int, bool) {
	if g.IsZero() {
		return 0, false
	}
	i := slices.Index(t.slots, g)
	return max(i, 0), i >= 0
}

// at returns the GID at an index; false when there is none.
func (t *gidTable) at(i int) (bth.GID, bool) {
	if i < 0 || i >= len(t.slots) {
		return bth.GID{}, false
	}
	return t.slots[i], !t.slots[i].IsZero()
}

// update makes the table that holds exactly the GIDs wanted: those that stay
// keep their index, those that go leave an empty slot, those that come back get
// the slot they had, new ones are appended, or put into an empty slot when the
// table is as long as it may be. It returns how many came and went.
func (t *gidTable) update(want []bth.GID) (next *gidTable, changed int) {
	next = &gidTable{slots: slices.Clone(t.slots), was: slices.Clone(t.was)}
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
		} else if len(next.slots) < maxGIDs {
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

// gidsOf checks addresses and turns them into GIDs.
func gidsOf(op string, addrs []netip.Addr) (out []bth.GID, err error) {
	for _, a := range addrs {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return nil, fail(op, syscall.EINVAL, "%v cannot be the address of a device", a)
		}
		out = append(out, bth.GIDFrom(a))
	}
	return out, nil
}

// GIDs returns the GID table: index 0 is the first address given to [Open].
// The slot of an address that was removed is zero.
func (d *Device) GIDs() []bth.GID { return slices.Clone(d.gids.get().slots) }

// SetAddrs tells the device which addresses its interface has now; a device of
// [OpenInterface] sees to that itself. In the GID table those that stay keep
// their index, those that are gone leave an empty slot, to which they return
// should they come back, and new ones are appended.
//
// Packets to an address that is gone are dropped, as by a host that has lost
// it: what queue pairs connected from it have under way ends with
// RETRY_EXC_ERR, and their connections end when the peer or the program gives
// up. Address handles that were made go on to work, but no answer comes. Every address that comes or goes raises [EventGIDChange].
func (d *Device) SetAddrs(addrs []netip.Addr) error {
	want, err := gidsOf("set addresses", addrs)
	if err != nil {
		return err
	}
	changed, err := d.setGIDs(want)
	if changed > 0 {
		d.watchers.tell(nil)
	}
	if p, ok := link.As[link.Addressed](d.shards[0].port); ok && err == nil {
		err = p.SetAddrs(addrs)
	}
	return err
}

func (d *Device) setGIDs(want []bth.GID) (changed int, err error) {
	d.lockAll()
	defer d.unlockAll()
	if d.closed {
		return 0, ErrClosed
	}
	next, changed := d.gids.get().update(want)
	if changed > 0 {
		d.gids.set(next)
		d.hops.sort(d.isLocal)
		for _, q := range d.demux.all() {
			if q.engine.Path() != nil {
				q.route() // what led to the device itself may lead elsewhere now
			}
		}
	}
	for range changed {
		d.raise(Event{Type: EventGIDChange, Port: 1})
	}
	return changed, nil
}
