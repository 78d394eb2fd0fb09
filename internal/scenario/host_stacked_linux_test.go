package scenario_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/raw"
)

// two are devices on two sides of a lab, and the addresses they have for each other.
type two struct {
	near, far *roce.Device
	from, to  netip.Addr
}

func openTwo(t *testing.T, driver string, x, y *netlab.Side) two {
	t.Helper()
	return two{openOn(t, x, roce.InterfaceConfig{Driver: driver}), openOn(t, y, roce.InterfaceConfig{Driver: driver}), x.IP4, y.IP4}
}

// pair makes two connected peers.
func (d two) pair(t *testing.T) (a, b *peer) {
	t.Helper()
	const size = 16 << 10
	a, b = newPeer(t, d.near, size), newPeer(t, d.far, size)
	connectFrom(t, a, ofAddr(t, d.near, d.from), b, ofAddr(t, d.far, d.to), 18)
	return a, b
}

// dial makes a connection by the connection manager, from the one to the other, and ends it.
func (d two) dial(t *testing.T) {
	t.Helper()
	l := ok(d.far.Listen(patient(t), ":7471", roce.ListenConfig{}))(t)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		request, err := l.Accept(context.Background())
		if err == nil {
			_, err = request.Accept(context.Background(), roce.AcceptConfig{})
		}
		accepted <- err
	}()
	conn := ok(d.near.Dial(within(t, hostPatience), netip.AddrPortFrom(d.to, 7471).String(), roce.DialConfig{}))(t)
	check(t, <-accepted)
	check(t, conn.Close())
}

// verify moves data by each operation and compares them.
func verify(a, b *peer, seed int) error {
	ctx, cancel := context.WithTimeout(context.Background(), hostPatience)
	defer cancel()
	for n, op := range []roce.Opcode{roce.Write, roce.Send, roce.Read} {
		fill(a.buf, seed+n)
		fill(b.buf, seed+n+100)
		if op == roce.Send {
			if err := b.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{b.mr.SGE(0, len(b.buf))}}); err != nil {
				return err
			}
		}
		b.dev.Counters() // takes the locks: the race detector does not see that the peer begins later
		if err := a.qp.PostSend(a.wr(op, 0, len(a.buf), b, 0)); err != nil {
			return err
		}
		ends := []*peer{a}
		if op == roce.Send {
			ends = []*peer{a, b}
		}
		for _, p := range ends {
			wc, err := p.cq.Next(ctx)
			if err != nil {
				return fmt.Errorf("%v: %w", op, err)
			}
			if wc.Status != cq.Success {
				return fmt.Errorf("%v: %v", op, wc.Status)
			}
		}
		b.dev.Counters() // takes the locks: the race detector does not see that the peer is done
		if !bytes.Equal(a.buf, b.buf) {
			return fmt.Errorf("%v: the data differ", op)
		}
	}
	return nil
}

// busyPairs move data between two devices, in both directions, until they are stopped.
type busyPairs struct {
	moved  [2]chan struct{} // of each direction
	failed chan error
	stop   chan struct{}
	wg     sync.WaitGroup
}

func (d two) busy(t *testing.T) *busyPairs {
	t.Helper()
	w := &busyPairs{failed: make(chan error, 2), stop: make(chan struct{})}
	for i, d := range []two{d, {d.far, d.near, d.to, d.from}} {
		w.moved[i] = make(chan struct{})
		a, b := d.pair(t)
		w.wg.Go(func() {
			for n := 0; ; n++ {
				if err := verify(a, b, n); err != nil {
					w.failed <- fmt.Errorf("busy from %v to %v, round %d: %w", d.from, d.to, n, err)
					return
				}
				select {
				case <-w.stop:
					return
				case w.moved[i] <- struct{}{}:
				default:
				}
			}
		})
	}
	return w
}

// more waits until each direction has made progress.
func (w *busyPairs) more(t *testing.T) {
	t.Helper()
	ctx := within(t, hostPatience)
	for i := range 2 * len(w.moved) {
		select {
		case <-w.moved[i%len(w.moved)]:
		case err := <-w.failed:
			t.Fatal(err)
		case <-ctx.Done():
			t.Fatal("the transfer makes no progress")
		}
	}
}

func (w *busyPairs) end(t *testing.T) {
	t.Helper()
	close(w.stop)
	w.wg.Wait()
	select {
	case err := <-w.failed:
		t.Fatal(err)
	default:
	}
}

// through changes the host while one connection is busy and another is idle. Both continue, and new ones can be made.
func (d two) through(t *testing.T, do func(w *busyPairs)) {
	t.Helper()
	a, b := d.pair(t)
	check(t, verify(a, b, 0))
	d.dial(t)
	w := d.busy(t)
	w.more(t)
	do(w)
	w.more(t)
	w.end(t)
	check(t, verify(a, b, 1))
	check(t, verify(b, a, 2))
	d.dial(t)
	for _, d := range []*roce.Device{d.near, d.far} {
		if p := ok(d.QueryPort(1))(t); p.State != roce.PortActive {
			t.Errorf("the port is %v", p.State)
		}
	}
}

// stackings are interfaces on top of others. hosts makes two hosts x and y; under is the interface below that of x.
var stackings = []struct {
	name  string
	hosts func(t *testing.T) (under, x, y *netlab.Side)
}{
	{"VLAN", func(t *testing.T) (under, x, y *netlab.Side) {
		a, b := netlab.Pair(t, netlab.Config{})
		return a, a.Over(t, &netlink.Vlan{VlanId: 7}), b.Over(t, &netlink.Vlan{VlanId: 7})
	}},
	{"ipvlan", func(t *testing.T) (under, x, y *netlab.Side) {
		a, b := netlab.Pair(t, netlab.Config{})
		return a, a.Over(t, &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}), b
	}},
	{"ipvlan in a container", func(t *testing.T) (under, x, y *netlab.Side) {
		a, b := netlab.Pair(t, netlab.Config{})
		return a, a.Container(t, &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}, 3), b
	}},
	{"macvlan in a container", func(t *testing.T) (under, x, y *netlab.Side) {
		a, b := netlab.Pair(t, netlab.Config{})
		return a, a.Container(t, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE}, 3), b
	}},
	{"macvlan between containers", func(t *testing.T) (under, x, y *netlab.Side) {
		a, _ := netlab.Pair(t, netlab.Config{})
		return a, a.Container(t, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE}, 3), a.Container(t, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE}, 4)
	}},
	{"ipvlan between containers", func(t *testing.T) (under, x, y *netlab.Side) {
		a, _ := netlab.Pair(t, netlab.Config{})
		return a, a.Container(t, &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}, 3), a.Container(t, &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}, 4)
	}},
}

// TestStacked: a device on an interface over another one survives changes of the lower one.
func TestStacked(t *testing.T) {
	for _, s := range stackings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			eachDriver(t, func(t *testing.T, driver string) {
				under, x, y := s.hosts(t)
				d := openTwo(t, driver, x, y)
				wantGeneric(t, driver, d.near)
				v6 := d
				v6.from, v6.to = x.IP6, y.IP6
				a, b := v6.pair(t)
				check(t, verify(a, b, 7))
				d.through(t, func(w *busyPairs) {
					under.SetUp(t, false)
					told := x.LosesCarrier() // an ipvlan interface does from Linux 6.3 on
					if told {
						awaitEvent(t, d.near, roce.EventPortErr)
					}
					under.SetUp(t, true)
					if told {
						awaitEvent(t, d.near, roce.EventPortActive)
					}
					w.more(t)
					setMAC(t, under, frame.MAC{2, 0x77, 0, 0, 0, 1})
				})
			})
		})
	}
}

// wantGeneric checks that AF_XDP runs in the only mode in which an interface over another one has its frames.
func wantGeneric(t *testing.T, driver string, d *roce.Device) {
	t.Helper()
	if mode := d.Query().Link.Mode; driver == "xdp" && !strings.HasPrefix(mode, "generic") {
		t.Errorf("mode %q, want generic", mode)
	}
}

// TestStackedTags: a device with a VLAN of its own and one on the kernel's interface for that VLAN hear each other.
func TestStackedTags(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		x, b := netlab.Pair(t, netlab.Config{})
		y := b.Over(t, &netlink.Vlan{VlanId: 7})
		own := x.MAC
		check(t, y.Netlink().NeighSet(&netlink.Neigh{LinkIndex: y.Link().Attrs().Index, IP: x.IP4.AsSlice(), HardwareAddr: own[:], State: netlink.NUD_PERMANENT}))
		// No sender makes super-packets for a receiver that loses them: XDP in generic mode, as on a VLAN interface, and
		// raw before Linux 6.2.
		tagged := roce.InterfaceConfig{Driver: "raw", Raw: raw.Config{NoGSO: driver == "xdp"}, Options: roce.Options{VLAN: 7, Resolver: roce.Neighbours{y.IP4: y.MAC}}}
		if driver == "udp" {
			check(t, y.Netlink().LinkSetGSOMaxSegs(y.Link(), 1))
		}
		d := two{openOn(t, x, tagged), openOn(t, y, roce.InterfaceConfig{Driver: driver}), x.IP4, y.IP4}
		d.through(t, func(*busyPairs) {})
	})
}
