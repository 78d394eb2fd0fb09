package scenario_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/netlab"
)

// hostChange is a change of the client's host, or of its network.
type hostChange struct {
	name    string
	routed  bool // there is a router between client and server
	v6      bool
	removes bool // the client's interface is removed: its device fails, with an event
	told    bool // the client's kernel learns the new next hop at once
	silent  bool // the peer's device does not announce its new address
	do      func(t *testing.T, h *changingHost)
}

// changingHost is a network and the devices on it.
type changingHost struct {
	client, server *netlab.Side
	gateway        *netlab.Side // of the client, or nil
	device, peer   *roce.Device // of the client and of the server
	driver         string       // of the client's device
}

// hostChanges are the rows of the matrix. Interfaces over others, bonds and netem have tests
// of their own.
var hostChanges = []hostChange{
	{name: "renamed", do: func(t *testing.T, h *changingHost) { rename(t, h.client, "other") }},
	{name: "renamed, then down and up", do: func(t *testing.T, h *changingHost) {
		rename(t, h.client, "other")
		h.client.SetUp(t, false)
		awaitEvent(t, h.device, roce.EventPortErr)
		h.client.SetUp(t, true)
		awaitEvent(t, h.device, roce.EventPortActive)
	}},
	{name: "renamed, and another interface has its name", do: func(t *testing.T, h *changingHost) {
		rename(t, h.client, "other")
		addDummy(t, h.client, h.client.Interface)
	}},
	{name: "down and up", do: func(t *testing.T, h *changingHost) {
		h.client.SetUp(t, false)
		awaitEvent(t, h.device, roce.EventPortErr)
		h.client.SetUp(t, true)
		awaitEvent(t, h.device, roce.EventPortActive)
	}},
	{name: "own Ethernet address", told: true, do: func(t *testing.T, h *changingHost) {
		setMAC(t, h.client, frame.MAC{2, 0x77, 0, 0, 0, 1})
	}},
	{name: "peer's Ethernet address, which the kernel knows", told: true, do: func(t *testing.T, h *changingHost) {
		mac := frame.MAC{2, 0x77, 0, 0, 0, 2}
		setMAC(t, h.server, mac)
		setNeighbour(t, h.client, h.server.IP4, mac)
	}},
	{name: "own Ethernet address, IPv6", v6: true, do: func(t *testing.T, h *changingHost) {
		setMAC(t, h.client, frame.MAC{2, 0x77, 0, 0, 0, 5})
	}},
	{name: "peer's Ethernet address, which the kernel knows, IPv6", v6: true, told: true, do: func(t *testing.T, h *changingHost) {
		mac := frame.MAC{2, 0x77, 0, 0, 0, 6}
		setMAC(t, h.server, mac)
		setNeighbour(t, h.client, h.server.IP6, mac)
	}},
	{name: "gateway's Ethernet address, IPv6", routed: true, v6: true, told: true, do: func(t *testing.T, h *changingHost) {
		mac := frame.MAC{2, 0x77, 0, 0, 0, 7}
		setMAC(t, h.gateway, mac)
		setNeighbour(t, h.client, h.gateway.IP6, mac)
	}},
	{name: "no route for a while", do: func(t *testing.T, h *changingHost) {
		r := &netlink.Route{Dst: &net.IPNet{IP: h.server.IP4.AsSlice(), Mask: net.CIDRMask(32, 32)}, Type: unix.RTN_BLACKHOLE}
		check(t, h.client.Netlink().RouteAdd(r))
		time.Sleep(50 * time.Millisecond) // for packets to fail
		check(t, h.client.Netlink().RouteDel(r))
	}},
	{name: "peer's Ethernet address, which nobody says", silent: true, do: func(t *testing.T, h *changingHost) {
		for name, v := range map[string]string{"ucast_solicit": "1", "retrans_time_ms": "20", "mcast_solicit": "20"} {
			h.client.Sysctl(t, "net/ipv4/neigh/"+h.client.Interface+"/"+name, v)
		}
		setMAC(t, h.server, frame.MAC{2, 0x77, 0, 0, 0, 3})
		if h.driver == "udp" {
			return // the client's kernel finds the new address by itself
		}
		own := h.client.MAC // the peer's kernel sends no ARP request, from which ours would learn
		check(t, h.server.Netlink().NeighSet(&netlink.Neigh{LinkIndex: h.server.Link().Attrs().Index, IP: h.client.IP4.AsSlice(), HardwareAddr: own[:], State: netlink.NUD_PERMANENT}))
	}},
	{name: "MTU lowered and raised", do: func(t *testing.T, h *changingHost) {
		for _, mtu := range []int{1500, 4200} {
			for _, s := range []*netlab.Side{h.client, h.server} {
				check(t, s.Netlink().LinkSetMTU(s.Link(), mtu))
			}
		}
		// Parameters negotiated in between may not fit: wait until both devices have seen the change.
		for _, d := range []*roce.Device{h.device, h.peer} {
			for ok(d.QueryPort(1))(t).ActiveMTU != bth.MTU4096 {
				time.Sleep(time.Millisecond)
			}
		}
	}},
	{name: "address removed and added", do: func(t *testing.T, h *changingHost) {
		check(t, h.client.Netlink().AddrDel(h.client.Link(), prefix24(h.client.IP4)))
		awaitEvent(t, h.device, roce.EventGIDChange)
		check(t, h.client.AddAddr(h.client.IP4, 24))
		awaitEvent(t, h.device, roce.EventGIDChange)
	}},
	{name: "thousands of neighbours", do: func(t *testing.T, h *changingHost) { crowd(t, h.client, 4000) }},
	{name: "gateway's Ethernet address", routed: true, told: true, do: func(t *testing.T, h *changingHost) {
		mac := frame.MAC{2, 0x77, 0, 0, 0, 4}
		setMAC(t, h.gateway, mac)
		setNeighbour(t, h.client, h.gateway.IP4, mac)
	}},
	{name: "another gateway", routed: true, told: true, do: func(t *testing.T, h *changingHost) {
		// A second address on the router's side, and the first is lost.
		second := netip.MustParseAddr("10.88.0.3")
		h.gateway.Sysctl(t, "net/ipv4/conf/"+h.gateway.Interface+"/arp_ignore", "1") // no ARP answers for the second address
		addMacvlan(t, h.gateway, "second", second)
		check(t, h.client.AddRoute(netip.PrefixFrom(h.server.IP4, 24), second))
		check(t, h.gateway.Netlink().AddrDel(h.gateway.Link(), prefix24(h.gateway.IP4)))
		h.gateway.Sysctl(t, "net/ipv4/conf/"+h.gateway.Interface+"/forwarding", "0")
	}},
	{name: "removed", removes: true, do: func(t *testing.T, h *changingHost) {
		check(t, h.client.Netlink().LinkDel(h.client.Link()))
	}},
	{name: "removed, and made again with its name", removes: true, do: func(t *testing.T, h *changingHost) {
		check(t, h.client.Netlink().LinkDel(h.client.Link()))
		addDummy(t, h.client, h.client.Interface)
	}},
}

func rename(t *testing.T, s *netlab.Side, name string) {
	t.Helper()
	check(t, s.Netlink().LinkSetName(s.Link(), name))
}

func setMAC(t *testing.T, s *netlab.Side, mac frame.MAC) {
	t.Helper()
	check(t, s.Netlink().LinkSetHardwareAddr(s.Link(), mac[:]))
}

func setNeighbour(t *testing.T, s *netlab.Side, ip netip.Addr, mac frame.MAC) {
	t.Helper()
	check(t, s.Netlink().NeighSet(&netlink.Neigh{LinkIndex: s.Link().Attrs().Index, IP: ip.AsSlice(), HardwareAddr: mac[:], State: netlink.NUD_REACHABLE}))
}

func addDummy(t *testing.T, s *netlab.Side, name string) {
	t.Helper()
	d := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := s.Netlink().LinkAdd(d); errors.Is(err, syscall.EOPNOTSUPP) {
		b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		check(t, s.Netlink().LinkAdd(b))
	} else {
		check(t, err)
	}
}

func addMacvlan(t *testing.T, s *netlab.Side, name string, addr netip.Addr) {
	t.Helper()
	m := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: s.Link().Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}
	check(t, s.Netlink().LinkAdd(m))
	check(t, s.Netlink().LinkSetUp(m))
	check(t, s.Netlink().AddrAdd(m, prefix24(addr)))
}

func prefix24(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}}
}

// crowd fills the neighbour table.
func crowd(t *testing.T, s *netlab.Side, n int) {
	t.Helper()
	for i := range n {
		ip := netip.AddrFrom4([4]byte{10, 88, byte(1 + i>>8), byte(i)})
		n := &netlink.Neigh{LinkIndex: s.Link().Attrs().Index, IP: ip.AsSlice(), HardwareAddr: []byte{2, 9, 9, 9, byte(i >> 8), byte(i)}, State: netlink.NUD_PERMANENT}
		check(t, s.Netlink().NeighSet(n))
	}
}

// hostPatience is much longer than a host and its peers need to notice a change.
const hostPatience = time.Minute

// TestHostChanges: a device follows changes of the host's network, or it ends with an error. The test makes each change
// with each driver while one queue pair is idle, another is busy, and a connection is being made.
func TestHostChanges(t *testing.T) {
	for _, c := range hostChanges {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			eachDriver(t, func(t *testing.T, driver string) { testHostChange(t, driver, &c) })
		})
	}
}

// newChangingHost makes the network of a change. from and at are the addresses that the client
// and the server have for each other.
func newChangingHost(t *testing.T, driver string, c *hostChange) (h *changingHost, from, at netip.Addr) {
	h = &changingHost{driver: driver}
	if c.routed {
		h.client, h.gateway, h.server = netlab.Routed(t, netlab.Config{MTU: 4200})
	} else {
		h.client, h.server = netlab.Pair(t, netlab.Config{MTU: 4200})
	}
	h.device = openOn(t, h.client, roce.InterfaceConfig{Driver: driver})
	if c.silent {
		driver = "udp" // knows no Ethernet address
	}
	h.peer = openOn(t, h.server, roce.InterfaceConfig{Driver: driver})
	if c.v6 {
		return h, h.client.IP6, h.server.IP6
	}
	return h, h.client.IP4, h.server.IP4
}

func testHostChange(t *testing.T, driver string, c *hostChange) {
	h, from, at := newChangingHost(t, driver, c)
	server := h.peer
	pair := func() (a, b *peer) {
		a, b = newPeer(t, h.device, 4096), newPeer(t, server, 4096)
		connectFrom(t, a, ofAddr(t, h.device, from), b, ofAddr(t, server, at), 18)
		return a, b
	}
	idle, idlePeer := pair()
	idle.post(roce.Write, 0, 4096, idlePeer, 0)
	idle.wait()
	busy, busyPeer := pair()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	wg.Go(func() { keepWriting(t, busy, busyPeer, stop, c.removes) })

	// The request arrives before the change; the answer is sent after it.
	l := ok(server.Listen(patient(t), ":7471", roce.ListenConfig{}))(t)
	to := netip.AddrPortFrom(at, 7471).String()
	dialled := make(chan error, 1)
	dial := func() {
		conn, err := h.device.Dial(within(t, hostPatience), to, roce.DialConfig{})
		if err == nil {
			conn.Close()
		}
		dialled <- err
	}
	go dial()
	request := ok(l.Accept(patient(t)))(t)

	c.do(t, h)

	if c.removes {
		wantErr(t, "connection in the making", <-dialled, roce.ErrNoDevice)
		awaitEvent(t, h.device, roce.EventDeviceFatal)
		return
	}
	accept := func(r *roce.ConnRequest) {
		conn, err := r.Accept(within(t, hostPatience), roce.AcceptConfig{})
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
	wg.Go(func() { accept(request) })
	if err := <-dialled; err != nil {
		t.Errorf("the connection in the making: %v", err)
	}
	go dial()
	if r, err := l.Accept(within(t, hostPatience)); err != nil {
		t.Errorf("a new request does not arrive: %v", err)
	} else {
		accept(r)
	}
	if err := <-dialled; err != nil {
		t.Errorf("a new connection: %v", err)
	}
	idle.post(roce.Write, 0, 4096, idlePeer, 0)
	idle.wait()
	if p := ok(h.device.QueryPort(1))(t); p.State != roce.PortActive {
		t.Errorf("the port is %v", p.State)
	}
}

// TestHandlesFollow: an address handle follows its peer to another Ethernet address, although no answer tells the device
// that datagrams are lost.
func TestHandlesFollow(t *testing.T) {
	for _, c := range hostChanges {
		if !c.told {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			eachDriver(t, func(t *testing.T, driver string) {
				h, from, at := newChangingHost(t, driver, &c)
				a, b := newUD(t, h.device), newUD(t, h.peer)
				ah := ok(h.device.CreateAH(patient(t), roce.AHAttr{DGID: bth.GIDFrom(at), SGIDIndex: ofAddr(t, h.device, from)}))(t)
				b.recv()
				a.send(ah, b.qp.Num(), testQKey, "before")
				b.want(a, "before")
				c.do(t, h)
				b.recv()
				for deadline := time.Now().Add(hostPatience); ; {
					a.send(ah, b.qp.Num(), testQKey, "afterwards")
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					_, err := b.cq.Next(ctx)
					cancel()
					if err == nil {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("no datagram arrives")
					}
				}
			})
		})
	}
}

// awaitEvent waits for an event of a type.
func awaitEvent(t *testing.T, d *roce.Device, typ roce.EventType) {
	t.Helper()
	for e := (roce.Event{}); e.Type != typ; {
		e = ok(d.NextEvent(within(t, hostPatience)))(t)
	}
}

// keepWriting writes one message after the other until stop is closed, and one more.
// If ends is true, the queue pair may be flushed meanwhile.
func keepWriting(t *testing.T, p, to *peer, stop chan struct{}, ends bool) {
	ctx := within(t, 2*hostPatience)
	for last := false; !last; {
		select {
		case <-stop:
			last = true
		default:
		}
		if err := p.qp.PostSend(p.wr(roce.Write, 0, 4096, to, 0)); err != nil {
			t.Errorf("busy queue pair: %v", err)
			return
		}
		wc, err := p.cq.Next(ctx)
		if err != nil || wc.Status != cq.Success {
			if !ends || err != nil || wc.Status != cq.WRFlushErr {
				t.Errorf("busy queue pair: %v, %v", wc.Status, err)
			}
			return
		}
	}
}
