package scenario_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/raw"
	"github.com/goroce/roce/xdp"
)

// exclusiveConfigs open a device that does not share its interface.
var exclusiveConfigs = []roce.InterfaceConfig{
	{Driver: "raw", Exclusive: true}, {Driver: "raw", Queues: 2, Exclusive: true},
	{Driver: "udp", Exclusive: true}, {Driver: "udp", Queues: 2, Exclusive: true}, {Driver: "udp", Queues: 3, Exclusive: true},
	{Driver: "xdp"}, {Driver: "xdp", Queues: 2},
}

// sharedConfigs open a device that shares it.
var sharedConfigs = []roce.InterfaceConfig{{Driver: "raw"}, {Driver: "raw", Queues: 2}, {Driver: "udp"}, {Driver: "udp", Queues: 3}}

func nameOf(c roce.InterfaceConfig) string {
	name := fmt.Sprintf("%s,%d", c.Driver, max(1, c.Queues))
	if c.Exclusive {
		name += " exclusive"
	}
	return name
}

// wantTaken: the error says that the port is taken, which programs may have it, and what to do.
func wantTaken(t *testing.T, what string, d *roce.Device, err error) {
	t.Helper()
	wantHints(t, what, d, err, "4791", "ss -ulpn", "rmmod rdma_rxe")
}

// wantRival: the error names the process that has the interface or shares it, and says what to do.
func wantRival(t *testing.T, what string, d *roce.Device, err error, hints ...string) {
	t.Helper()
	wantHints(t, what, d, err, append(hints, fmt.Sprintf("process %d of user ", os.Getpid()))...)
}

func wantHints(t *testing.T, what string, d *roce.Device, err error, hints ...string) {
	t.Helper()
	if err == nil {
		d.Close()
	}
	wantErr(t, what, err, syscall.EADDRINUSE)
	for _, hint := range hints {
		if err != nil && !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v does not mention %q", what, err, hint)
		}
	}
}

// oneOwner is the error text of xdp.
const oneOwner = "one owner of the queues"

// wantTakenBy is wantTaken or, beside xdp, wantRival.
func wantTakenBy(t *testing.T, first roce.InterfaceConfig, what string, d *roce.Device, err error) {
	t.Helper()
	if first.Driver == "xdp" {
		wantRival(t, what, d, err, oneOwner)
	} else {
		wantTaken(t, what, d, err)
	}
}

// TestOneDeviceAnInterface: a second device on an interface, of whatever driver and with
// whatever number of queues, is refused while the first is open, and only then.
func TestOneDeviceAnInterface(t *testing.T) {
	if testing.Short() {
		t.Skip("opens hundreds of devices, one after the other")
	}
	x, _ := netlab.Pair(t, netlab.Config{Queues: 3})
	x.Do(t, func() {
		for _, first := range exclusiveConfigs {
			d := ok(roce.OpenInterface(x.Interface, first))(t)
			for _, second := range exclusiveConfigs {
				what := nameOf(second) + " beside " + nameOf(first)
				other, err := roce.OpenInterface(x.Interface, second)
				wantTakenBy(t, first, what, other, err)
			}
			for _, second := range sharedConfigs {
				other, err := roce.OpenInterface(x.Interface, second)
				wantTakenBy(t, first, nameOf(second)+" beside "+nameOf(first), other, err)
			}
			other, err := roce.OpenAddr(x.IP4, roce.InterfaceConfig{})
			wantTakenBy(t, first, "OpenAddr beside "+nameOf(first), other, err)
			check(t, d.Close())
		}
		d := ok(roce.OpenAddr(x.IP4, roce.InterfaceConfig{Exclusive: true}))(t)
		for _, second := range exclusiveConfigs {
			other, err := roce.OpenInterface(x.Interface, second)
			wantTaken(t, nameOf(second)+" beside OpenAddr", other, err)
		}
		for _, n := range []int{1, 2} {
			for _, exclusive := range []bool{false, true} {
				other, err := roce.OpenAddr(x.IP4, roce.InterfaceConfig{Queues: n, Exclusive: exclusive})
				wantTaken(t, "OpenAddr twice", other, err)
			}
		}
		check(t, d.Close())
	})
}

// TestDevicesShareInterface: several devices share an interface by one driver, with any numbers of queues. While one
// of them is open, a device of another driver, or an exclusive one, is refused, with an error that names their
// processes. It opens afterwards.
func TestDevicesShareInterface(t *testing.T) {
	if testing.Short() {
		t.Skip("opens hundreds of devices, one after the other")
	}
	x, _ := netlab.Pair(t, netlab.Config{Queues: 3})
	x.Do(t, func() {
		for _, first := range sharedConfigs {
			d := ok(roce.OpenInterface(x.Interface, first))(t)
			refused := func() {
				t.Helper()
				for _, second := range append(exclusiveConfigs, sharedConfigs...) {
					hint := fmt.Sprintf("driver %q", first.Driver)
					switch {
					case second.Driver == first.Driver && !second.Exclusive:
						continue
					case second.Driver == first.Driver:
						hint = "for itself"
					case second.Driver == "xdp":
						hint = oneOwner
					}
					other, err := roce.OpenInterface(x.Interface, second)
					wantRival(t, nameOf(second)+" beside "+nameOf(first), other, err, hint)
				}
				other, err := roce.OpenAddr(x.IP4, roce.InterfaceConfig{})
				wantRival(t, "OpenAddr beside "+nameOf(first), other, err)
			}
			refused()
			for _, second := range sharedConfigs {
				if second.Driver == first.Driver {
					other := ok(roce.OpenInterface(x.Interface, second))(t)
					if second.Queues == 0 {
						defer other.Close()
						check(t, d.Close())
						d = other
						refused()
						continue
					}
					check(t, other.Close())
				}
			}
			check(t, d.Close())
			for _, next := range exclusiveConfigs[:3] {
				check(t, ok(roce.OpenInterface(x.Interface, next))(t).Close())
			}
		}
		d := ok(roce.OpenAddr(x.IP4, roce.InterfaceConfig{}))(t)
		for _, second := range append(exclusiveConfigs, sharedConfigs...) {
			other, err := roce.OpenInterface(x.Interface, second)
			wantRival(t, nameOf(second)+" beside OpenAddr", other, err, x.IP4.String())
		}
		other, err := roce.OpenAddr(x.IP4, roce.InterfaceConfig{Exclusive: true})
		wantRival(t, "OpenAddr for itself", other, err, x.IP4.String())
		check(t, ok(roce.OpenAddr(x.IP4, roce.InterfaceConfig{Queues: 2}))(t).Close())
		check(t, d.Close())
	})
}

// TestLoopbackBesideInterface: a device on a loopback address and one on an interface do not exclude each other, in
// either order.
func TestLoopbackBesideInterface(t *testing.T) {
	x, _ := netlab.Pair(t, netlab.Config{})
	loop := roce.InterfaceConfig{}
	x.Do(t, func() {
		for _, c := range append(exclusiveConfigs, sharedConfigs...) {
			if c.Queues > 1 && c.Driver == "xdp" {
				continue
			}
			for _, addr := range []string{"127.0.0.1", "::1"} {
				one := ok(roce.OpenAddr(netip.MustParseAddr(addr), loop))(t)
				two := ok(roce.OpenInterface(x.Interface, c))(t)
				check(t, one.Close())
				one = ok(roce.OpenAddr(netip.MustParseAddr(addr), loop))(t)
				check(t, one.Close())
				check(t, two.Close())
			}
		}
	})
}

// TestAddressBesideInterface: a device on an address of one interface, and a raw or xdp device on another interface,
// do not exclude each other, in either order. The other interface still takes only one exclusive device.
func TestAddressBesideInterface(t *testing.T) {
	_, gateway, _ := netlab.Routed(t, netlab.Config{})
	back := behind(t, gateway)
	gateway.Do(t, func() {
		for _, addr := range []netip.Addr{gateway.IP4, gateway.IP6} {
			for _, driver := range []string{"raw", "xdp"} {
				c := roce.InterfaceConfig{Driver: driver, Exclusive: true}
				what := fmt.Sprintf("%s beside %v", driver, addr)
				alone := roce.InterfaceConfig{Exclusive: true}
				one := ok(roce.OpenAddr(addr, alone))(t)
				two := ok(roce.OpenInterface(back, c))(t)
				other, err := roce.OpenInterface(back, c)
				wantTakenBy(t, c, "twice "+what, other, err)
				check(t, one.Close())
				other, err = roce.OpenInterface(back, c)
				wantTakenBy(t, c, "again "+what, other, err)
				one = ok(roce.OpenAddr(addr, alone))(t)
				other, err = roce.OpenAddr(addr, alone)
				wantTaken(t, "OpenAddr twice", other, err)
				other, err = roce.OpenInterface(gateway.Interface, c)
				wantTaken(t, "on the interface of the address: "+what, other, err)
				check(t, two.Close())
				check(t, one.Close())
				two = ok(roce.OpenInterface(back, c))(t)
				for _, n := range []int{1, 2} {
					one = ok(roce.OpenAddr(addr, roce.InterfaceConfig{Queues: n}))(t)
					if notes := one.Query().Link.Notes; len(notes) != 1 || !strings.Contains(notes[0], gateway.Interface) {
						t.Errorf("%v in %d queues beside %s: notes %q, want one that it uses %s", addr, n, driver, notes, gateway.Interface)
					}
					check(t, one.Close())
				}
				check(t, two.Close())
			}
		}
	})
}

// behind returns the name of the interface by which a gateway reaches the server.
func behind(t *testing.T, gateway *netlab.Side) (name string) {
	t.Helper()
	gateway.Do(t, func() {
		all, err := net.Interfaces()
		check(t, err)
		for _, i := range all {
			if i.Flags&net.FlagLoopback == 0 && i.Name != gateway.Interface {
				name = i.Name
			}
		}
	})
	return name
}

// TestOpenRace: if several open an interface at the same time, one gets it, with all its queues, and the others get an
// error.
func TestOpenRace(t *testing.T) {
	x, _ := netlab.Pair(t, netlab.Config{Queues: 3})
	for round := range 6 {
		var wg sync.WaitGroup
		results := make([]error, 6)
		devices := make([]*roce.Device, len(results))
		for i := range results {
			wg.Go(func() {
				c := exclusiveConfigs[(i+round)%len(exclusiveConfigs)]
				x.Do(t, func() { devices[i], results[i] = roce.OpenInterface(x.Interface, c) })
			})
		}
		wg.Wait()
		opened := 0
		for i, err := range results {
			if err == nil {
				opened++
				check(t, devices[i].Close())
			} else {
				wantErr(t, "Open", err, syscall.EADDRINUSE)
			}
		}
		if opened != 1 {
			t.Errorf("round %d: %d of %d devices opened, want 1: %v", round, opened, len(results), results)
		}
	}
}

// TestPortTaken: another program, as rxe in the kernel, has the UDP port on all
// interfaces. That is an error, unless the configuration permits it.
func TestPortTaken(t *testing.T) {
	x, _ := netlab.Pair(t, netlab.Config{})
	x.Do(t, func() {
		for _, network := range []string{"udp4", "udp6"} {
			other, err := net.ListenPacket(network, ":4791")
			check(t, err)
			for _, driver := range roce.InterfaceDrivers() {
				for _, exclusive := range []bool{false, true} {
					d, err := roce.OpenInterface(x.Interface, roce.InterfaceConfig{Driver: driver, Exclusive: exclusive})
					wantTaken(t, driver, d, err)
				}
			}
			for _, c := range []roce.InterfaceConfig{{Driver: "raw", Raw: raw.Config{SharePort: true}}, {Driver: "xdp", XDP: xdp.Config{SharePort: true}}} {
				d := ok(roce.OpenInterface(x.Interface, c))(t)
				if notes := d.Query().Link.Notes; len(notes) == 0 || !strings.Contains(strings.Join(notes, "\n"), "4791") {
					t.Errorf("%s: notes %q, want one on UDP port 4791", c.Driver, notes)
				}
				check(t, d.Close())
			}
			check(t, other.Close())
		}
	})
}
