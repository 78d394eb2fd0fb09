package scenario_test

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/netlab"
)

// openOn opens a device on the interface of one side of a lab.
func openOn(t *testing.T, s *netlab.Side, c roce.InterfaceConfig) (d *roce.Device) {
	t.Helper()
	s.Do(t, func() { d = ok(roce.OpenInterface(s.Interface, c))(t) })
	t.Cleanup(func() { d.Close() })
	return d
}

// nextOf waits for an event of type typ. It skips events of type over, and fails on others.
func nextOf(t *testing.T, d *roce.Device, typ, over roce.EventType) {
	t.Helper()
	for {
		e, err := d.NextEvent(patient(t))
		if err != nil || e.Type != typ && e.Type != over || e.Type == typ && typ != roce.EventDeviceFatal && e.Port != 1 {
			t.Fatalf("event %v, %v, want %v", e, err, typ)
		}
		if e.Type == typ {
			return
		}
	}
}

// connectFrom connects two peers over given indexes of the GID tables. With
// timeout 14 they give up after half a second, with 18 after eight.
func connectFrom(t *testing.T, a *peer, index int, b *peer, bIndex int, timeout uint8) {
	t.Helper()
	for _, x := range []struct {
		from, to *peer
		index    int
		dst      bth.GID
	}{{a, b, index, b.dev.GIDs()[bIndex]}, {b, a, bIndex, a.dev.GIDs()[index]}} {
		check(t, x.from.qp.Connect(patient(t), roce.Peer{AHAttr: roce.AHAttr{DGID: x.dst, SGIDIndex: x.index}, QPN: x.to.qp.Num(), PSN: x.to.psn,
			MTU: x.from.dev.Query().PathMTU, Timeout: timeout, RetryCnt: 7, RNRRetry: 7, RdAtomic: 1}, x.from.psn))
	}
}

func ofAddr(t *testing.T, d *roce.Device, a netip.Addr) int {
	t.Helper()
	i := slices.Index(d.GIDs(), bth.GIDFrom(a))
	if i < 0 {
		t.Fatalf("%v is not in the GID table %v", a, d.GIDs())
	}
	return i
}

// eachDriver runs a test for every driver of interfaces.
func eachDriver(t *testing.T, f func(t *testing.T, driver string)) {
	for _, driver := range roce.InterfaceDrivers() {
		t.Run(driver, func(t *testing.T) { f(t, driver) })
	}
}

// TestInterfaceLink: the device of an interface reports changes of the link without any traffic, and a transfer survives
// them.
func TestInterfaceLink(t *testing.T) { eachDriver(t, testInterfaceLink) }

func testInterfaceLink(t *testing.T, driver string) {
	for _, polled := range []bool{false, true} {
		x, y := netlab.Pair(t, netlab.Config{})
		da, db := openOn(t, x, roce.InterfaceConfig{Driver: driver, Options: roce.Options{Polled: polled}}), openOn(t, y, roce.InterfaceConfig{Driver: driver})
		if polled {
			keepBusy(t, da)
		}
		a, b := newPeer(t, da, 100), newPeer(t, db, 100)
		connectFrom(t, a, ofAddr(t, da, x.IP4), b, ofAddr(t, db, y.IP4), 18)
		if p := ok(da.QueryPort(1))(t); p.State != roce.PortActive || p.ActiveSpeed != roce.SpeedFDR10 || p.ActiveWidth != roce.Width1X {
			t.Errorf("port %+v", p)
		}
		if e := da.QueryGIDTable(); len(e) != 3 || e[0].IfIndex != x.Link().Attrs().Index {
			t.Errorf("GID table %+v, want three entries of interface %d", e, x.Link().Attrs().Index)
		}

		x.SetUp(t, false) // its IPv6 addresses go with it
		nextOf(t, da, roce.EventPortErr, roce.EventGIDChange)
		nextOf(t, db, roce.EventPortErr, roce.EventGIDChange) // the other end has no carrier
		if p := ok(db.QueryPort(1))(t); p.State != roce.PortDown {
			t.Errorf("port without a carrier: %+v", p)
		}
		a.post(roce.Write, 0, 100, b, 0)
		x.SetUp(t, true)
		nextOf(t, da, roce.EventPortActive, roce.EventGIDChange)
		nextOf(t, db, roce.EventPortActive, roce.EventGIDChange)
		a.wait()
		if index := ofAddr(t, da, x.IP4); index != 1 {
			t.Errorf("the IPv4 address has index %d now", index)
		}
	}
}

// TestInterfaceAddrs: the GID table follows the interface's addresses.
func TestInterfaceAddrs(t *testing.T) { eachDriver(t, testInterfaceAddrs) }

func testInterfaceAddrs(t *testing.T, driver string) {
	x, y := netlab.Pair(t, netlab.Config{})
	da, db := openOn(t, x, roce.InterfaceConfig{Driver: driver}), openOn(t, y, roce.InterfaceConfig{Driver: driver})
	before := da.GIDs()
	added := []netip.Addr{netip.MustParseAddr("10.88.0.77"), netip.MustParseAddr("fd88::77")}
	for _, addr := range added {
		check(t, x.AddAddr(addr, map[bool]int{true: 24, false: 64}[addr.Is4()]))
		nextOf(t, da, roce.EventGIDChange, roce.EventGIDChange)
	}
	want := append(slices.Clone(before), bth.GIDFrom(added[0]), bth.GIDFrom(added[1]))
	if got := da.GIDs(); !slices.Equal(got, want) {
		t.Errorf("GIDs %v, want %v", got, want)
	}

	// The new address works; after its removal connections from it fail.
	a, b := newPeer(t, da, 100), newPeer(t, db, 100)
	connectFrom(t, a, ofAddr(t, da, added[0]), b, ofAddr(t, db, y.IP4), 14)
	other, peerOther := newPeer(t, da, 100), newPeer(t, db, 100)
	connectFrom(t, other, ofAddr(t, da, x.IP6), peerOther, ofAddr(t, db, y.IP6), 14)
	a.post(roce.Write, 0, 100, b, 0)
	a.wait()
	l, err := netlink.ParseAddr("10.88.0.77/24")
	check(t, err)
	check(t, x.Netlink().AddrDel(x.Link(), l))
	nextOf(t, da, roce.EventGIDChange, roce.EventGIDChange)
	want[len(before)] = bth.GID{}
	if got := da.GIDs(); !slices.Equal(got, want) {
		t.Errorf("GIDs %v, want %v", got, want)
	}
	a.post(roce.Write, 0, 100, b, 0)
	a.waitFor(cq.RetryExcErr)
	other.post(roce.Write, 0, 100, peerOther, 0)
	other.wait()
	_, err = da.CreateAH(patient(t), roce.AHAttr{DGID: db.GIDs()[1], SGIDIndex: len(before)})
	wantErr(t, "CreateAH from an address that is gone", err, syscall.ENODATA)
	check(t, x.AddAddr(added[0], 24))
	nextOf(t, da, roce.EventGIDChange, roce.EventGIDChange)
	if i := ofAddr(t, da, added[0]); i != len(before) {
		t.Errorf("the address came back with index %d, it had %d", i, len(before))
	}
}

// TestInterfaceRemoved: the interface is deleted under the device.
func TestInterfaceRemoved(t *testing.T) { eachDriver(t, testInterfaceRemoved) }

func testInterfaceRemoved(t *testing.T, driver string) {
	for _, polled := range []bool{false, true} {
		x, y := netlab.Pair(t, netlab.Config{})
		da, db := openOn(t, x, roce.InterfaceConfig{Driver: driver, Options: roce.Options{Polled: polled}}), openOn(t, y, roce.InterfaceConfig{Driver: driver})
		if polled {
			keepBusy(t, da)
		}
		a, b := newPeer(t, da, 100), newPeer(t, db, 100)
		connectFrom(t, a, ofAddr(t, da, x.IP4), b, ofAddr(t, db, y.IP4), 14)
		a.recv(0, 100)
		check(t, x.Netlink().LinkDel(x.Link()))
		for {
			e, err := da.NextEvent(patient(t))
			check(t, err)
			if e.Type == roce.EventDeviceFatal {
				break
			}
			if e.Type != roce.EventPortErr && e.Type != roce.EventGIDChange {
				t.Errorf("event %v", e)
			}
		}
		a.waitFor(cq.WRFlushErr)
		_, err := a.pd.CreateQP(roce.QPConfig{SendCQ: a.cq})
		wantErr(t, "CreateQP", err, roce.ErrNoDevice)
		check(t, da.Close())
	}
}
