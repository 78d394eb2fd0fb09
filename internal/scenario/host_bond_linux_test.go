package scenario_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
)

// TestBond: connections over an active-backup bond stay when the active interface or its cable fails, with one
// Ethernet address for the bond, and with that of the active interface.
func TestBond(t *testing.T) {
	for name, mac := range map[string]netlink.BondFailOverMac{"one Ethernet address": netlink.BOND_FAIL_OVER_MAC_NONE, "the active one's Ethernet address": netlink.BOND_FAIL_OVER_MAC_ACTIVE} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			eachDriver(t, func(t *testing.T, driver string) { testBond(t, driver, mac) })
		})
	}
}

func testBond(t *testing.T, driver string, mac netlink.BondFailOverMac) {
	net := netlab.NewSwitch(t, netlab.Config{})
	slaves, ports := net.Host(t, 1, 2)
	others, _ := net.Host(t, 2, 1)
	x, y := netlab.Bond(t, slaves, mac), others[0]
	d := openTwo(t, driver, x, y)
	wantGeneric(t, driver, d.near)
	d.through(t, func(w *busyPairs) {
		slaves[0].SetUp(t, false)
		w.more(t)
		slaves[0].SetUp(t, true)
		w.more(t)
		ports[1].SetUp(t, false) // the cable of the active interface
		w.more(t)
		ports[0].SetUp(t, false) // the other cable
		awaitEvent(t, d.near, roce.EventPortErr)
		ports[1].SetUp(t, true)
		awaitEvent(t, d.near, roce.EventPortActive)
	})
}
