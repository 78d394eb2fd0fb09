package xdp

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
)

// Actions of the program.
const actRedirect = 4

// generous is a limit that no test reaches.
var generous = link.MADLimit{Idle: link.MADRate{Gap: 1, Burst: time.Hour}, Busy: link.MADRate{Gap: 1, Burst: time.Hour}, BusyFor: time.Millisecond}

// earlyBench runs the program of an open Port on frames.
type earlyBench struct {
	t    *testing.T
	to   *netlab.Side
	port *Port
	link.Filter
}

func newEarlyBench(t *testing.T, limit link.MADLimit) *earlyBench {
	t.Helper()
	_, b := netlab.Pair(t, netlab.Config{})
	e := &earlyBench{t: t, to: b, port: start(t, b, Config{})}
	var err error
	if e.Filter, err = e.port.Filter(limit); err != nil {
		t.Fatal(err)
	}
	return e
}

// packet returns a frame from an address for a queue pair. Its payload has n bytes.
func (e *earlyBench) packet(from netip.Addr, to bth.QPN, n int) []byte {
	e.t.Helper()
	c := frame.PathConfig{Src: bth.GIDFrom(from), Dst: bth.GIDFrom(e.to.IP4), SrcMAC: frame.MAC{2, 5: 7}, DstMAC: e.to.MAC}
	if from.Is6() {
		c.Dst = bth.GIDFrom(e.to.IP6)
	}
	way, err := frame.NewPath(c)
	if err != nil {
		e.t.Fatal(err)
	}
	n += bth.BTHLen + bth.ICRCLen
	f := make([]byte, way.HeaderLen(frame.LayoutEthernet)+n)
	body, _ := way.Put(f, frame.LayoutEthernet, n, 0)
	bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, to, 1)
	return f
}

// run runs the program n times on a frame and returns the last action.
func (e *earlyBench) run(f []byte, n int) int {
	e.t.Helper()
	got, err := e.port.card.filter.prog.Run(&ebpf.RunOptions{Data: f, Repeat: uint32(n)})
	if err != nil {
		e.t.Fatal(err)
	}
	return int(got)
}

// TestEarlyDrop: with early drop on, which packets the program drops and for which reason, and
// which it passes to the device and to the kernel.
func TestEarlyDrop(t *testing.T) {
	e := newEarlyBench(t, generous)
	const connected, datagrams, v6, unknown = bth.QPN(0x123456), bth.QPN(0xABCDEF), bth.QPN(0x000012), bth.QPN(0x123457)
	peer4, peer6 := netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("fd88::1")
	other4, other6 := netip.MustParseAddr("10.88.0.66"), netip.MustParseAddr("fd88::2")
	e.Admit(connected, bth.GIDFrom(peer4))
	e.Admit(v6, bth.GIDFrom(peer6))
	e.Admit(datagrams, bth.GID{})
	var none link.FilterDrops
	edit := func(off int, v ...byte) func(f []byte) []byte {
		return func(f []byte) []byte { copy(f[off:], v); return f }
	}
	cut := func(n int) func(f []byte) []byte { return func(f []byte) []byte { return f[:n] } }
	const ip, udp4, bth4, udp6, bth6 = ethernetLen, ethernetLen + ipv4Len, ethernetLen + ipv4Len + udpLen, ethernetLen + ipv6Len, ethernetLen + ipv6Len + udpLen
	malformed, noQP, wrongPeer := link.FilterDrops{Malformed: 1}, link.FilterDrops{NoQP: 1}, link.FilterDrops{WrongPeer: 1}
	for _, c := range []struct {
		name  string
		from  netip.Addr
		to    bth.QPN
		edit  func(f []byte) []byte
		want  int
		drops link.FilterDrops
	}{
		{"IPv4, the peer", peer4, connected, nil, actRedirect, none},
		{"IPv6, the peer", peer6, v6, nil, actRedirect, none},
		{"IPv4, another source", other4, connected, nil, xdpDrop, wrongPeer},
		{"IPv6, another source", other6, v6, nil, xdpDrop, wrongPeer},
		{"IPv6, first half of the source differs", peer6, v6, edit(ip+8, 0xFC), xdpDrop, wrongPeer},
		{"IPv4 queue pair, from IPv6", peer6, connected, nil, xdpDrop, wrongPeer},
		{"IPv6 queue pair, from IPv4", peer4, v6, nil, xdpDrop, wrongPeer},
		{"IPv4, any source", other4, datagrams, nil, actRedirect, none},
		{"IPv6, any source", other6, datagrams, nil, actRedirect, none},
		{"IPv4, no queue pair", peer4, unknown, nil, xdpDrop, noQP},
		{"IPv6, no queue pair", peer6, unknown, nil, xdpDrop, noQP},
		{"QP 0", peer4, 0, nil, xdpDrop, noQP},
		{"QP 1", other4, bth.QPNGSI, nil, actRedirect, none},
		{"QP 1 over IPv6", other6, bth.QPNGSI, nil, actRedirect, none},
		{"multicast number to our address", peer4, bth.QPNMulticast, nil, xdpDrop, noQP},
		{"IPv4 group", peer4, bth.QPNMulticast, edit(ip+16, 239, 1, 2, 3), actRedirect, none},
		{"IPv6 group", peer6, bth.QPNMulticast, edit(ip+24, 0xFF, 0x0E), actRedirect, none},
		{"congestion marked", peer4, connected, edit(bth4+4, 0xC0), actRedirect, none},
		{"IPv4, version 1", peer4, connected, edit(bth4+1, 0x01), xdpDrop, malformed},
		{"IPv6, version 8", peer6, v6, edit(bth6+1, 0x08), xdpDrop, malformed},
		{"flags and pad count", peer4, connected, edit(bth4+1, 0xF0), actRedirect, none},
		{"IPv4, UDP length of a BTH without ICRC", peer4, connected, edit(udp4+4, 0, udpLen+bth.BTHLen), xdpDrop, malformed},
		{"IPv4, UDP length of a BTH and ICRC", peer4, connected, edit(udp4+4, 0, udpLen+bth.BTHLen+bth.ICRCLen), actRedirect, none},
		{"IPv6, UDP length 0", peer6, v6, edit(udp6+4, 0, 0), xdpDrop, malformed},
		{"IPv6, UDP length of a BTH less a byte", peer6, v6, edit(udp6+4, 0, udpLen+bth.BTHLen+bth.ICRCLen-1), xdpDrop, malformed},
		{"IPv4, BTH not in the first piece", peer4, unknown, cut(bth4 + bth.BTHLen - 1), actRedirect, none},
		{"IPv4, nothing behind the BTH", peer4, unknown, cut(bth4 + bth.BTHLen), xdpDrop, noQP},
		{"IPv6, BTH not in the first piece", peer6, unknown, cut(bth6 + bth.BTHLen - 1), actRedirect, none},
		{"IPv6, nothing behind the BTH", peer6, unknown, cut(bth6 + bth.BTHLen), xdpDrop, noQP},
		{"IPv4, tagged for its priority", other4, connected, func(f []byte) []byte {
			return append(append(append([]byte{}, f[:12]...), 0x81, 0, 0xA0, 0), f[12:]...)
		}, xdpDrop, wrongPeer},
		{"another port", other4, unknown, edit(udp4+2, 1), xdpPass, none},
		{"another Ethernet address", other4, unknown, edit(0, 2, 9, 9, 9, 9, 9), xdpPass, none},
		{"another destination", other4, unknown, edit(ip+19, 99), xdpPass, none},
		{"options", other4, unknown, edit(ip, 0x46), xdpPass, none},
		{"first fragment", other4, unknown, edit(ip+6, 0x20), xdpPass, none},
		{"later fragment", other4, unknown, edit(ip+7, 1), xdpPass, none},
		{"TCP", other4, unknown, edit(ip+9, 6), xdpPass, none},
	} {
		f := e.packet(c.from, c.to, 20)
		if c.edit != nil {
			f = c.edit(f)
		}
		before := e.Drops()
		if got := e.run(f, 1); got != c.want {
			t.Errorf("%s: action %d, want %d", c.name, got, c.want)
		}
		if got := minus(e.Drops(), before); got != c.drops {
			t.Errorf("%s: counted %+v, want %+v", c.name, got, c.drops)
		}
	}
}

// minus returns the difference of two counts.
func minus(a, b link.FilterDrops) link.FilterDrops {
	return link.FilterDrops{Malformed: a.Malformed - b.Malformed, NoQP: a.NoQP - b.NoQP, WrongPeer: a.WrongPeer - b.WrongPeer,
		NoReceive: a.NoReceive - b.NoReceive, MADFlood: a.MADFlood - b.MADFlood}
}

// TestEarlyDropLife: before early drop starts, every packet passes. Afterwards packets to a queue
// pair pass between Admit and Forget. The counters remain readable after Close.
func TestEarlyDropLife(t *testing.T) {
	_, b := netlab.Pair(t, netlab.Config{})
	e := &earlyBench{t: t, to: b, port: start(t, b, Config{})}
	peer, stranger := netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("10.88.0.66")
	const n = bth.QPN(0x77)
	want := func(what string, from netip.Addr, want int) {
		t.Helper()
		if got := e.run(e.packet(from, n, 0), 1); got != want {
			t.Errorf("%s: action %d, want %d", what, got, want)
		}
	}
	mode := func(part string, want bool) {
		t.Helper()
		if m := e.port.Info().Mode; strings.HasSuffix(m, part) != want {
			t.Errorf("mode %q", m)
		}
	}
	want("before the start", stranger, actRedirect)
	mode("native, copy", true)
	var err error
	if e.Filter, err = e.port.Filter(generous); err != nil {
		t.Fatal(err)
	}
	mode(", early drop", true)
	if _, err := e.port.Filter(generous); err == nil {
		t.Error("early drop was started twice")
	}
	want("unknown", peer, xdpDrop)
	e.Admit(n, bth.GID{})
	want("admitted from everywhere", stranger, actRedirect)
	e.Admit(n, bth.GIDFrom(peer))
	want("the peer", peer, actRedirect)
	want("a stranger", stranger, xdpDrop)
	e.Pause(n)
	want("paused", peer, xdpDrop)
	e.Admit(n, bth.GIDFrom(stranger))
	want("the peer's former address", peer, xdpDrop)
	want("the peer's new address", stranger, actRedirect)
	e.Forget(n)
	want("forgotten", stranger, xdpDrop)
	e.Forget(n)
	drops := link.FilterDrops{NoQP: 2, WrongPeer: 2, NoReceive: 1}
	if got := e.Drops(); got != drops {
		t.Errorf("drops %+v, want %+v", got, drops)
	}
	if err := e.port.Close(); err != nil {
		t.Fatal(err)
	}
	e.Admit(n, bth.GID{})
	e.Forget(n)
	if got := e.Drops(); got != drops {
		t.Errorf("drops after Close %+v, want %+v", got, drops)
	}
	if _, err := e.port.Filter(generous); err == nil {
		t.Error("early drop was started on a closed port")
	}
}

// TestEarlyDropPieces: early drop works on frames in several pieces, by their headers.
func TestEarlyDropPieces(t *testing.T) {
	_, b := netlab.Pair(t, netlab.Config{MTU: 9000})
	e := &earlyBench{t: t, to: b, port: start(t, b, Config{})}
	var err error
	if e.Filter, err = e.port.Filter(generous); err != nil {
		t.Fatal(err)
	}
	peer := netip.MustParseAddr("10.88.0.1")
	e.Admit(0x77, bth.GIDFrom(peer))
	if got := e.run(e.packet(peer, 0x77, 8000), 1); got != actRedirect {
		t.Errorf("to a queue pair: action %d", got)
	}
	if got := e.run(e.packet(peer, 0x78, 8000), 1); got != xdpDrop {
		t.Errorf("to none: action %d", got)
	}
}

// TestEarlyDropFull: with more queue pairs than the map has room for, early drop stops: from then
// on every packet passes, and the mode says so.
func TestEarlyDropFull(t *testing.T) {
	e := newEarlyBench(t, generous)
	stranger := netip.MustParseAddr("10.88.0.66")
	n := bth.QPN(0x100)
	admit := func(most bth.QPN) {
		for ; n < most && strings.HasSuffix(e.port.Info().Mode, ", early drop"); n += 64 {
			for i := range bth.QPN(64) {
				e.Admit(n+i, bth.GID{})
			}
		}
	}
	admit(maxAdmitted / 2)
	if got := e.run(e.packet(stranger, bth.QPNMulticast-1, 0), 1); got != xdpDrop {
		t.Errorf("half full: action %d", got)
	}
	admit(2 * maxAdmitted)
	if m := e.port.Info().Mode; !strings.HasSuffix(m, ", early drop stopped") {
		t.Fatalf("%d queue pairs: mode %q", n, m)
	}
	for _, to := range []bth.QPN{bth.QPNMulticast - 1, n + 100, 0x100} {
		if got := e.run(e.packet(stranger, to, 0), 1); got != actRedirect {
			t.Errorf("full, to %v: action %d", to, got)
		}
	}
	e.Forget(0x100)
	e.Admit(0x100, bth.GIDFrom(netip.MustParseAddr("10.88.0.1")))
	if got := e.run(e.packet(stranger, 0x100, 0), 1); got != actRedirect {
		t.Errorf("after one was forgotten: action %d", got)
	}
}

// TestEarlyDropMADs: at most a burst of management datagrams passes. When half of the burst is
// used up, each group of sources has its own share of the rest.
func TestEarlyDropMADs(t *testing.T) {
	const gap = time.Minute // nothing is due again while the test runs
	e := newEarlyBench(t, link.MADLimit{
		Idle: link.MADRate{Gap: gap, Burst: 8 * madShares * gap},
		Busy: link.MADRate{Gap: gap, Burst: 2 * madShares * gap}, BusyFor: time.Hour,
	})
	passed := func(from netip.Addr, n int) int {
		t.Helper()
		before := e.Drops().MADFlood
		e.run(e.packet(from, bth.QPNGSI, cmMAD), n)
		return n - int(e.Drops().MADFlood-before)
	}
	flood := func(what string, sources func(i int) netip.Addr, shares int) {
		t.Helper()
		// Half of a burst, and a 64th of the other half. As time goes by, one more datagram may
		// pass.
		first, half := passed(sources(0), 100*madShares), shares/2*madShares
		if first < half || first > half+shares/2+1 {
			t.Errorf("%s: of one source %d pass, want %d and %d", what, first, half, shares/2)
		}
		all, one := first, 0
		for i := 1; i < 2000; i++ {
			k := passed(sources(i), 2)
			all += k
			one = max(one, k)
		}
		if one != min(2, shares/2) {
			t.Errorf("%s: of each other source %d datagrams pass", what, one)
		}
		if most := shares * madShares; all < most-shares/2*8 || all > most+1 {
			t.Errorf("%s: %d datagrams pass, want %d", what, all, most)
		}
	}
	flood("IPv4, idle", func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }, 8)
	e.Admit(0x77, bth.GIDFrom(netip.MustParseAddr("10.88.0.1")))
	e.Admit(0x78, bth.GID{})
	one := func(from string, to bth.QPN) {
		t.Helper()
		if got := e.run(e.packet(netip.MustParseAddr(from), to, 0), 1); got != actRedirect {
			t.Errorf("%v to %v: action %d", from, to, got)
		}
	}
	one("10.88.0.66", 0x78) // a datagram from an unknown source does not count as data of a connection
	if k := passed(netip.MustParseAddr("10.2.0.1"), 1000); k > 1 {
		t.Errorf("%d datagrams of an idle burst that was used up pass", k)
	}
	one("10.88.0.1", 0x77)
	flood("IPv6, busy", func(i int) netip.Addr {
		a := [16]byte{0: 0xFD, 15: byte(i)} // all in one group: the last eight bytes have no influence
		binary.BigEndian.PutUint16(a[6:], uint16(i))
		return netip.AddrFrom16(a)
	}, 2)
}

// cmMAD is the length of a management datagram after the BTH.
const cmMAD = bth.DETHLen + 256

// TestEarlyDropMADRates: as time goes by, more datagrams pass. The rate is higher when connections
// no longer transfer data.
func TestEarlyDropMADRates(t *testing.T) {
	e := newEarlyBench(t, link.MADLimit{
		Idle: link.MADRate{Gap: time.Nanosecond, Burst: time.Second},
		Busy: link.MADRate{Gap: time.Hour, Burst: 2 * madShares * time.Hour}, BusyFor: time.Millisecond,
	})
	peer := netip.MustParseAddr("10.88.0.1")
	e.Admit(0x77, bth.GIDFrom(peer))
	mads := func(n int) int { // how many pass
		before := e.Drops().MADFlood
		e.run(e.packet(peer, bth.QPNGSI, cmMAD), n)
		return n - int(e.Drops().MADFlood-before)
	}
	if k := mads(1000); k != 1000 {
		t.Errorf("idle: %d of 1000 pass", k)
	}
	busy := 0
	for deadline := time.Now().Add(10 * time.Second); ; {
		e.run(e.packet(peer, 0x77, 0), 1)
		if busy = mads(1000); busy < 1000 || time.Now().After(deadline) { // on a busy machine so much time may pass that the rate is the idle one
			break
		}
	}
	if busy > 66 {
		t.Errorf("busy: %d of 1000 pass, want 65", busy)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		k := mads(1000)
		if k == 1000 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("idle again: %d of 1000 pass", k)
		}
	}
}
