package scenario_test

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/raw"
)

// TestNoAnswerWithoutRoute: over UDP sockets a packet of a stranger without a route makes the host look for nobody, whatever
// the device would answer. A host with a route gets the answer.
func TestNoAnswerWithoutRoute(t *testing.T) {
	x, y := netlab.Pair(t, netlab.Config{})
	routed := netip.MustParseAddr("192.0.2.1")
	check(t, x.AddRoute(netip.PrefixFrom(routed, 24), y.IP4))
	strangers := []netip.Addr{netip.MustParseAddr("203.0.113.1")}
	for n, kind := range []int{unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT, unix.RTN_UNREACHABLE} {
		a := netip.AddrFrom4([4]byte{198, 51, 100, byte(1 + n)})
		check(t, x.Netlink().RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}, Type: kind}))
		strangers = append(strangers, a)
	}
	d := openOn(t, x, roce.InterfaceConfig{Driver: "udp", Exclusive: true})
	h := &halfStack{to: x, from: y}
	y.Do(t, func() { h.port = ok(raw.Open(raw.Config{Interface: y.Interface}))(t) })
	defer h.port.Close()

	answered := make(chan error)
	answer := func(f func() error) {
		go func() {
			for {
				err := f()
				select {
				case answered <- err:
				case <-t.Context().Done():
					return
				}
			}
		}()
	}
	accepts, rejects := ok(d.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t), ok(d.Listen(t.Context(), ":7472", roce.ListenConfig{}))(t)
	inquiries := ok(d.ListenUD(t.Context(), ":7473", roce.ListenConfig{}))(t)
	answer(func() error {
		r, err := accepts.Accept(t.Context())
		if err == nil {
			ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer stop()
			r.Accept(ctx, roce.AcceptConfig{})
		}
		return err
	})
	answer(func() error {
		r, err := rejects.Accept(t.Context())
		if err == nil {
			err = r.Reject(nil)
		}
		return err
	})
	answer(func() error {
		r, err := inquiries.Accept(t.Context())
		if err == nil {
			err = r.Reject(nil)
		}
		return err
	})
	pd := d.AllocPD()
	srq := ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 1}))(t)
	target := ok(pd.CreateDCT(roce.DCTConfig{CQ: ok(d.CreateCQ(4))(t), SRQ: srq, Key: 1, MTU: bth.MTU1024, GIDIndex: ofAddr(t, d, x.IP4)}))(t)

	sidr := func(from netip.Addr, port uint16) *cm.SIDRREQ {
		h.requests++
		r := &cm.SIDRREQ{RequestID: cm.CommID(h.requests), PKey: bth.DefaultPKey, ServiceID: cm.Service(cm.PortSpaceUDP, port)}
		ip := cm.IPHeader{SrcPort: 1, Src: from, Dst: x.IP4}
		check(t, ip.Put(r.Private[:]))
		return r
	}
	for _, c := range []struct {
		name     string
		byServer bool // the program answers
		send     func(from netip.Addr)
	}{
		{"request that is rejected", true, func(from netip.Addr) { h.mad(t, from, h.req(t, from, 7472)) }},
		{"request for an unknown service", false, func(from netip.Addr) { h.mad(t, from, h.req(t, from, 9)) }},
		{"request with too large an MTU", false, func(from netip.Addr) {
			r := h.req(t, from, 7471)
			r.MTU = bth.MTU4096
			h.mad(t, from, r)
		}},
		{"inquiry that is rejected", true, func(from netip.Addr) { h.mad(t, from, sidr(from, 7473)) }},
		{"inquiry for an unknown service", false, func(from netip.Addr) { h.mad(t, from, sidr(from, 9)) }},
		{"DREQ of no connection", false, func(from netip.Addr) { h.mad(t, from, &cm.DREQ{LocalID: 5, RemoteID: 6}) }},
		{"LAP of no connection", false, func(from netip.Addr) { h.mad(t, from, &cm.LAP{LocalID: 5, RemoteID: 6}) }},
		{"CONNECT with a wrong key", false, func(from netip.Addr) { h.connect(t, from, target.Num(), 2) }},
		{"CONNECT with the right key", false, func(from netip.Addr) { h.connect(t, from, target.Num(), 1) }},
		{"request that is accepted", true, func(from netip.Addr) { h.mad(t, from, h.req(t, from, 7471)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, from := range append(strangers, routed) {
				c.send(from)
				if c.byServer {
					check(t, <-answered)
				}
			}
			h.await(t, routed) // the device answers in order
			for _, e := range ok(x.Netlink().NeighList(x.Link().Attrs().Index, netlink.FAMILY_V4))(t) {
				if a, _ := netip.AddrFromSlice(e.IP); a.Unmap() != y.IP4 {
					t.Errorf("the host looks for %v", a)
					check(t, x.Netlink().NeighDel(&e))
				}
			}
		})
	}
}

// halfStack sends packets with forged addresses from one side to the other, and receives answers.
type halfStack struct {
	port     link.Port
	from, to *netlab.Side
	requests int
}

func (h *halfStack) mad(t *testing.T, from netip.Addr, m cm.Message) {
	t.Helper()
	h.send(t, from, bth.BTHLen+bth.DETHLen+cm.MADLen, func(b []byte) {
		bth.PutBTH(b, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
		bth.PutDETH(b[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
		m.Put((*[cm.MADLen]byte)(b[bth.BTHLen+bth.DETHLen:]))
	})
}

// req returns a new request for a port.
func (h *halfStack) req(t *testing.T, from netip.Addr, port uint16) *cm.REQ {
	t.Helper()
	h.requests++
	r := &cm.REQ{LocalID: cm.CommID(h.requests), LocalGUID: cm.GUID(h.requests), QPN: bth.QPN(h.requests + 1), PKey: bth.DefaultPKey,
		MTU: bth.MTU1024, ServiceID: cm.Service(cm.PortSpaceTCP, port), LocalResponseTimeout: 20, MaxCMRetries: 15,
		Primary: cm.Path{LocalGID: bth.GIDFrom(from), RemoteGID: bth.GIDFrom(h.to.IP4), HopLimit: 64, AckTimeout: 17}}
	ip := cm.IPHeader{SrcPort: 1, Src: from, Dst: h.to.IP4}
	check(t, ip.Put(r.Private[:]))
	return r
}

// connect sends a CONNECT to a target.
func (h *halfStack) connect(t *testing.T, from netip.Addr, to bth.QPN, key uint64) {
	t.Helper()
	h.send(t, from, bth.BTHLen+bth.DCETHLen+bth.DCCETHLen, func(b []byte) {
		bth.PutBTH(b, bth.DCConnect, 0, 0, bth.DefaultPKey, to, 1)
		n := bth.BTHLen + bth.PutDCETH(b[bth.BTHLen:], bth.DCETHFields{QPN: 7})
		bth.PutDCCETH(b[n:], &bth.DCCETHFields{Key: key, Connection: 1, Depth: 1, MTU: uint8(bth.MTU1024)})
	})
}

// send sends n bytes from the BTH on, and the ICRC.
func (h *halfStack) send(t *testing.T, from netip.Addr, n int, f func(b []byte)) {
	t.Helper()
	path := ok(frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(from), Dst: bth.GIDFrom(h.to.IP4), SrcMAC: h.from.MAC, DstMAC: h.to.MAC,
		SrcPort: 0xC000, HopLimit: 64}))(t)
	b, crc, room := h.port.Begin(path, n+bth.ICRCLen)
	if !room {
		t.Fatal("no room")
	}
	clear(b)
	f(b)
	bth.PutICRC(b[n:], crc.UpdateBTH(b[:bth.BTHLen]).Update(b[bth.BTHLen:n]))
	h.port.Commit()
	check(t, h.port.Flush())
}

// await waits for a packet to an address, and takes all that have come.
func (h *halfStack) await(t *testing.T, to netip.Addr) {
	t.Helper()
	var fr [16]link.Frame
	for met, deadline := false, time.Now().Add(10*time.Second); ; {
		n := ok(h.port.Recv(fr[:]))(t)
		for _, f := range fr[:n] {
			var p frame.Packet
			if f.Env != nil {
				check(t, p.ParseBody(f.Data, f.Env, f.Segment))
			} else {
				check(t, p.Parse(f.Data, h.port.Info().Layout))
			}
			met = met || p.Dst.Addr() == to
		}
		switch {
		case n > 0:
		case met:
			return
		case time.Now().After(deadline):
			t.Fatalf("no answer to %v", to)
		default:
			check(t, h.port.Wait(time.Second))
		}
	}
}

// TestAnswerByWorseRoute: a request that the device cannot accept, because the best route to its sender leads through another
// interface, is rejected: the interface has a route to the sender, too.
func TestAnswerByWorseRoute(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		client, gateway, server := netlab.Routed(t, netlab.Config{})
		from := netip.MustParseAddr("198.51.100.1")
		for metric, by := range map[int]netip.Addr{100: server.IP4, 200: client.IP4} {
			to := &net.IPNet{IP: from.AsSlice(), Mask: net.CIDRMask(32, 32)}
			check(t, gateway.Netlink().RouteAdd(&netlink.Route{Dst: to, Gw: by.AsSlice(), Priority: metric}))
		}
		d := openOn(t, gateway, roce.InterfaceConfig{Driver: driver, Exclusive: true})
		l := ok(d.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		h := &halfStack{to: gateway, from: client}
		client.Do(t, func() { h.port = ok(raw.Open(raw.Config{Interface: client.Interface}))(t) })
		defer h.port.Close()
		h.mad(t, from, h.req(t, from, 7471))
		_, err := ok(l.Accept(patient(t)))(t).Accept(t.Context(), roce.AcceptConfig{})
		wantErr(t, "Accept", err, syscall.ENETUNREACH)
		h.await(t, from)
	})
}
