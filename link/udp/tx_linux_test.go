package udp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/mmsg"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// loopbackPair opens two Ports on the loopback, and makes a path between them.
func loopbackPair(t testing.TB, first byte, c Config) (from, to *Port, path *frame.Path) {
	t.Helper()
	open := func(last byte) *Port {
		c.Addr = linktest.Loopback(last)
		p, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p.(*Port)
	}
	from, to = open(first), open(first+1)
	return from, to, onPath(t, first, first+1, nil)
}

func onPath(t testing.TB, from, to byte, change func(*frame.PathConfig)) *frame.Path {
	t.Helper()
	c := frame.PathConfig{Src: bth.GIDFrom(linktest.Loopback(from)), Dst: bth.GIDFrom(linktest.Loopback(to)), SrcPort: srcPort}
	if change != nil {
		change(&c)
	}
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBatching: which packets share a message.
func TestBatching(t *testing.T) {
	p, _, one := loopbackPair(t, 31, Config{})
	again := onPath(t, 31, 32, nil) // of another queue pair
	other := onPath(t, 31, 33, nil)
	urgent := onPath(t, 31, 32, func(c *frame.PathConfig) { c.TrafficClass = 0x20 })
	type packet struct {
		path *frame.Path
		size int
	}
	repeat := func(n int, p packet) []packet { return slices.Repeat([]packet{p}, n) }
	for _, test := range []struct {
		name    string
		gso     bool
		packets []packet
		want    string // packets × size of each message
	}{
		{"run", true, repeat(5, packet{one, 100}), "5×100"},
		{"shorter last", true, append(repeat(5, packet{one, 100}), packet{one, 20}, packet{one, 20}), "6×100 1×20"},
		{"a request and its acknowledgement", true, []packet{{one, 100}, {one, 20}, {one, 100}, {one, 20}}, "2×100 2×100"},
		{"longer", true, []packet{{one, 20}, {one, 100}, {one, 100}}, "1×20 2×100"},
		{"two queue pairs", true, []packet{{one, 100}, {again, 100}, {one, 100}}, "3×100"},
		{"two peers", true, []packet{{one, 100}, {other, 100}, {one, 100}}, "1×100 1×100 1×100"},
		{"two classes", true, []packet{{one, 100}, {urgent, 100}}, "1×100 1×100"},
		{"most packets", true, repeat(134, packet{one, 16}), "128×16 6×16"},
		{"most bytes", true, repeat(20, packet{one, 4116}), "15×4116 5×4116"},
		{"without GSO", false, repeat(3, packet{one, 100}), "1×100 1×100 1×100"},
	} {
		p.tx.gso, p.tx.stale = test.gso, true
		for i, x := range test.packets {
			body, _, ok := p.Begin(x.path, x.size)
			if !ok || len(body) != x.size || len(p.Lent()) != x.size {
				t.Fatalf("%s: Begin of packet %d: %d bytes, %v", test.name, i, len(body), ok)
			}
			body[0] = byte(i)
			p.Commit()
		}
		got, n := "", 0
		for i := range p.tx.queue[:p.tx.queued] {
			m := &p.tx.queue[i]
			got += fmt.Sprintf(" %d×%d", m.count, m.size)
			for k := range m.count {
				at, end := m.packet(k)
				if p.tx.arena[at] != byte(n) || end-at != test.packets[n].size {
					t.Errorf("%s: packet %d of message %d is not number %d", test.name, k, i, n)
				}
				n++
			}
		}
		if got[1:] != test.want {
			t.Errorf("%s: messages%s, want %s", test.name, got, test.want)
		}
		if err := p.Flush(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
	}
}

// TestParts: packets for different parts of the peer share no message, and each has the right
// ICRC for the Identification that the kernel gives it.
func TestParts(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		var from, to *Port
		var path *frame.Path
		if v6 {
			from, to = open6(t)
			path = onPath(t, 44, 45, func(c *frame.PathConfig) {
				c.Src, c.Dst = bth.GIDFrom(netip.IPv6Loopback()), bth.GIDFrom(netip.IPv6Loopback())
			})
		} else {
			from, to, path = loopbackPair(t, 44, Config{})
		}
		if !from.tx.gso {
			t.Skip("the kernel has no GSO")
		}
		const a, again, b, mad = 64 + 5, 5, 64 + 6, bth.QPNGSI
		numbers := []bth.QPN{a, again, b, b, b, a, mad, mad, a, a, b}
		ids := []uint16{0, 1, 0, 1, 2, 0, 0, 0, 0, 1, 0} // from 0 in each message
		send := func(i int, to bth.QPN) {
			const n = 64
			body, crc, ok := from.Begin(path, bth.BTHLen+n+bth.ICRCLen)
			if !ok {
				t.Fatal("no room")
			}
			bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, to, bth.PSN(i))
			bth.PutICRC(body[bth.BTHLen+n:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:bth.BTHLen+n]))
			from.Commit()
		}
		for i, to := range numbers {
			send(i, to)
		}
		var counts []int
		for i := range from.tx.queue[:from.tx.queued] {
			counts = append(counts, from.tx.queue[i].count)
		}
		if want := []int{2, 3, 1, 1, 1, 2, 1}; !slices.Equal(counts, want) {
			t.Errorf("v6 %v: messages of %v packets, want %v", v6, counts, want)
		}
		if allocs := testing.AllocsPerRun(10, func() { send(0, a); send(1, b); from.Flush() }); allocs > 0 {
			t.Errorf("v6 %v: %v allocations", v6, allocs)
		}
		from.Flush()
		fr := make([]link.Frame, link.Batch)
		seen := map[bth.PSN]bool{}
		for got := 0; got < len(numbers)+2*11; {
			if err := to.Wait(linktest.Patience); err != nil {
				t.Fatal(err)
			}
			k, err := to.Recv(fr)
			if k == 0 || err != nil {
				t.Fatalf("%d arrived, %v", got, err)
			}
			for _, f := range fr[:k] {
				var p frame.Packet
				if err := f.Parse(&p, frame.LayoutUDP); err != nil {
					t.Fatal(err)
				}
				seen[p.PSN()] = true
				id, ok := p.RecoverIPv4ID()
				if v6 {
					id, ok = 0, p.CheckICRC()
				}
				want := ids[p.PSN()]
				if p.PSN() == 1 && id == 0 || v6 {
					want = 0 // a packet that AllocsPerRun has sent
				}
				if !ok || id != want {
					t.Errorf("v6 %v: packet %v for %v: Identification %d, %v", v6, p.PSN(), p.DestQPN(), id, ok)
				}
				got++
			}
		}
		if len(seen) != len(numbers) {
			t.Errorf("v6 %v: %d of %d packets arrived", v6, len(seen), len(numbers))
		}
		// The last message of a full queue takes no more packets: a packet may need a message of its own.
		for i := range len(from.tx.queue) {
			send(i, bth.QPN(2+i%2))
		}
		if from.tx.queued != len(from.tx.queue) {
			t.Errorf("%d messages wait, want %d", from.tx.queued, len(from.tx.queue))
		}
		send(0, 2) // after one for 3
		if n := from.tx.queued; n != 1 {
			t.Errorf("%d messages wait after those that filled the queue, want 1", n)
		}
		from.Flush()
	}
}

// TestAlike: packets with the same path and size as the previous one, and others, in any order, all have a right
// ICRC.
func TestAlike(t *testing.T) {
	from, to, path := loopbackPair(t, 47, Config{})
	paths := []*frame.Path{path, onPath(t, 47, 48, func(c *frame.PathConfig) { c.TrafficClass = 4 }), onPath(t, 47, 48, func(c *frame.PathConfig) { c.HopLimit = 9 }),
		onPath(t, 47, 49, nil), onPath(t, 50, 48, nil)} // the last two do not reach the other Port
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 64, 64, 64, 1000}
	for range 20 {
		expected, lost := 0, 0
		for range 20 {
			k := rng.IntN(len(paths))
			payload := make([]byte, sizes[rng.IntN(len(sizes))])
			for range 1 + rng.IntN(4) {
				linktest.Send(t, from, paths[k], bth.PSN(expected), payload)
				switch k {
				case 3:
				case 4:
					lost++
				default:
					expected++
				}
			}
		}
		before := from.Stats().TxErrors
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		linktest.InOrder(t, to, expected) // checks each ICRC
		if n := int(from.Stats().TxErrors); n-int(before) > lost || n == 0 && lost > 0 {
			t.Errorf("%d errors, %d packets have another's source address", n, lost)
		}
	}
}

// TestUndivided: if the peer does not share its address, packets for all its queue pairs may share a message.
// Management datagrams still have separate messages.
func TestUndivided(t *testing.T) {
	from, _, path := loopbackPair(t, 46, Config{})
	if !from.tx.gso {
		t.Skip("the kernel has no GSO")
	}
	c := path.Config()
	c.Undivided = true
	undivided, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path *frame.Path
		want []int // packets of each message
	}{{path, []int{1, 1, 1, 1, 1, 1}}, {undivided, []int{3, 1, 1, 1}}} {
		for i, to := range []bth.QPN{2, 3, 4, bth.QPNGSI, bth.QPNGSI, 5} {
			const n = 64
			body, crc, ok := from.Begin(test.path, bth.BTHLen+n+bth.ICRCLen)
			if !ok {
				t.Fatal("no room")
			}
			bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, to, bth.PSN(i))
			bth.PutICRC(body[bth.BTHLen+n:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:bth.BTHLen+n]))
			from.Commit()
		}
		var counts []int
		for i := range from.tx.queue[:from.tx.queued] {
			counts = append(counts, from.tx.queue[i].count)
		}
		if !slices.Equal(counts, test.want) {
			t.Errorf("undivided %v: messages of %v packets, want %v", test.path.Config().Undivided, counts, test.want)
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

// open6 opens a Port of the IPv6 loopback, which sends to itself.
func open6(t *testing.T) (from, to *Port) {
	t.Helper()
	p, err := Open(Config{Addr: netip.IPv6Loopback()})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { p.Close() })
	return p.(*Port), p.(*Port)
}

// TestAbandoned: a packet that is not committed is not in the super-packet.
func TestAbandoned(t *testing.T) {
	from, to, path := loopbackPair(t, 34, Config{})
	for i := range 6 {
		if !linktest.Put(from, path, bth.PSN(i), make([]byte, 64)) {
			t.Fatal("no room")
		}
		if i%2 == 0 {
			from.Commit()
		}
	}
	if err := from.Flush(); err != nil {
		t.Fatal(err)
	}
	if psns, _ := linktest.Collect(t, to, 3); !slices.Equal(psns, []bth.PSN{0, 2, 4}) {
		t.Errorf("PSNs %v", psns)
	}
	if s := from.Stats(); s.TxBatches != 1 || s.TxPackets != 3 {
		t.Errorf("%+v", s)
	}
}

// TestFallback: if the kernel refuses super-packets, each packet leaves separately, with Identification 0, and a
// wrong ICRC stays wrong.
func TestFallback(t *testing.T) {
	from, to, path := loopbackPair(t, 36, Config{})
	if !from.tx.gso {
		t.Skip("the kernel has no GSO")
	}
	const n, damaged = 40, 7
	send := func() {
		t.Helper()
		for i := range n {
			if !linktest.Put(from, path, bth.PSN(i), make([]byte, 256)) {
				t.Fatal("no room")
			}
			if i == damaged {
				from.Lent()[20] ^= 0x10
			}
			from.Commit()
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(id func(int) uint16) {
		t.Helper()
		fr := make([]link.Frame, link.Batch)
		for got := 0; got < n; {
			if err := to.Wait(linktest.Patience); err != nil {
				t.Fatal(err)
			}
			k, err := to.Recv(fr)
			if k == 0 || err != nil {
				t.Fatalf("%d of %d arrived, %v", got, n, err)
			}
			for _, f := range fr[:k] {
				var p frame.Packet
				if err := f.Parse(&p, frame.LayoutUDP); err != nil {
					t.Fatal(err)
				}
				solved, ok := p.RecoverIPv4ID()
				if p.PSN() != bth.PSN(got) || ok != (got != damaged) || ok && solved != id(got) {
					t.Fatalf("packet %d: PSN %v, Identification %d, %v", got, p.PSN(), solved, ok)
				}
				got++
			}
		}
	}
	send()
	receive(func(i int) uint16 { return uint16(i) })

	// Linux refuses to segment packets of a socket without UDP checksums.
	if err := unix.SetsockoptInt(from.FD, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		send()
		receive(func(int) uint16 { return 0 })
	}
	if mode := from.Info().Mode; mode != "sendmmsg/recvmmsg, GSO except to 1 peers, GRO" {
		t.Errorf("mode %q", mode)
	}
	// Later the Port tries super-packets again.
	if err := unix.SetsockoptInt(from.FD, unix.SOL_SOCKET, unix.SO_NO_CHECK, 0); err != nil {
		t.Fatal(err)
	}
	send()
	receive(func(int) uint16 { return 0 })
	from.tx.clock = func() time.Time { return time.Now().Add(time.Minute) }
	send()
	receive(func(i int) uint16 { return uint16(i) })
	if mode := from.Info().Mode; mode != "sendmmsg/recvmmsg, GSO, GRO" {
		t.Errorf("mode %q after a while", mode)
	}
	if s := from.Stats(); s.TxPackets != 7*n || s.TxErrors+s.TxDrops != 0 {
		t.Errorf("%+v", s)
	}
}

// TestFewerSegments: if the kernel refuses super-packets with too many packets (Linux before 6.9: more than 64),
// the Port sends smaller ones, and no packet is lost.
func TestFewerSegments(t *testing.T) {
	from, to, path := loopbackPair(t, 47, Config{})
	if !from.tx.gso {
		t.Skip("the kernel has no GSO")
	}
	const n = 200
	from.tx.most = n // more than any kernel takes
	for turn, wantCalls := range []uint64{n + 1, 1} {
		before := from.Stats()
		for i := range n {
			if !linktest.Put(from, path, bth.PSN(i), make([]byte, 64)) {
				t.Fatal("no room")
			}
			from.Commit()
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		linktest.InOrder(t, to, n)
		s := from.Stats()
		if !from.tx.gso || from.tx.most != fewSegments || s.TxPackets-before.TxPackets != n || s.TxErrors+s.TxDrops != 0 {
			t.Fatalf("turn %d: GSO %v, %d packets of one, %+v", turn, from.tx.gso, from.tx.most, s)
		}
		if calls := s.TxBatches - before.TxBatches; calls > wantCalls {
			t.Errorf("turn %d: %d system calls for %d packets", turn, calls, n)
		}
	}
}

// TestOneDestinationRefused: if the kernel refuses packets to one peer, the Port still uses GSO, and packets
// to other peers are not affected.
func TestOneDestinationRefused(t *testing.T) {
	from, to, path := loopbackPair(t, 38, Config{})
	broadcast := onPath(t, 38, 39, func(c *frame.PathConfig) { c.Dst = bth.GID{10: 0xFF, 11: 0xFF, 12: 255, 13: 255, 14: 255, 15: 255} })
	for i := range 5 {
		linktest.Send(t, from, broadcast, bth.PSN(i), make([]byte, 64))
	}
	linktest.Send(t, from, path, 9, nil)
	if err := from.Flush(); err == nil {
		t.Error("a broadcast was sent")
	}
	linktest.Collect(t, to, 1)
	if s := from.Stats(); s.TxErrors != 5 || s.TxPackets != 1 || from.tx.supers.Any() {
		t.Errorf("GSO %v, %+v", !from.tx.supers.Any(), s)
	}
}

// TestForeignPaths: packets on a path for which the Port cannot make a right ICRC are not sent.
func TestForeignPaths(t *testing.T) {
	p, _, _ := loopbackPair(t, 41, Config{})
	for what, path := range map[string]*frame.Path{
		"source port":    onPath(t, 41, 42, func(c *frame.PathConfig) { c.SrcPort = 0xC001 }),
		"source address": onPath(t, 42, 41, nil),
		"IP version":     onPath(t, 41, 42, func(c *frame.PathConfig) { c.Src, c.Dst = bth.GID{15: 1}, bth.GID{15: 2} }),
	} {
		before := p.Stats().TxErrors
		linktest.Send(t, p, path, 1, nil)
		if err := p.Flush(); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.TxErrors != before+1 || s.TxPackets != 0 {
			t.Errorf("%s: %+v", what, s)
		}
	}
}

// TestRxDrops: packets that arrive while the receive buffer is full are counted.
func TestRxDrops(t *testing.T) {
	from, to, path := loopbackPair(t, 43, Config{RxBuffer: 64 << 10, NoGSO: true})
	const n = 500
	for i := range n {
		if !linktest.Put(from, path, bth.PSN(i), make([]byte, 1024)) {
			t.Fatal("no room")
		}
		from.Commit()
	}
	if err := from.Flush(); err != nil {
		t.Fatal(err)
	}
	got, fr := 0, make([]link.Frame, link.Batch)
	for {
		k, err := to.Recv(fr)
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			break
		}
		got += k
	}
	if s := to.Stats(); s.RxDrops == 0 || s.RxDrops+uint64(got) != n || to.Stats().RxDrops != s.RxDrops {
		t.Errorf("%d of %d arrived, %+v", got, n, s)
	}
}

// TestStarved: Wait waits while the socket is full. Packets to a neighbour that is not resolved yet stay in the
// socket.
func TestStarved(t *testing.T) {
	for i, c := range []Config{{TxBuffer: 4 << 10}, {TxBuffer: 4 << 10, NoGSO: true}} {
		a, b := netlab.Pair(t, netlab.Config{})
		from, to := start(t, a, c), start(t, b, Config{})
		late := netip.AddrFrom4([4]byte{10, 88, 0, 77})
		p := path(t, a, b, false, func(c *frame.PathConfig) { c.Dst = bth.GIDFrom(late) })
		n := 0
		for ; n < 1000 && linktest.Put(from, p, bth.PSN(n), make([]byte, 1024)); n++ {
			from.Commit()
		}
		if s := from.Stats(); n == 1000 || s.TxRetries == 0 || from.Awaits() != driver.Starved {
			t.Fatalf("%d packets fit, %+v", n, s)
		}
		if err := from.Flush(); err != nil {
			t.Errorf("Flush without room: %v", err)
		}
		waited := make(chan error)
		go func() { waited <- from.Wait(-1) }() // may return once because there is no room
		from.Wake()
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		if err := b.AddAddr(late, 24); err != nil {
			t.Fatal(err)
		}
		neighbour := &netlink.Neigh{LinkIndex: a.Link().Attrs().Index, State: netlink.NUD_PERMANENT, IP: late.AsSlice(), HardwareAddr: b.MAC[:]}
		if err := a.Netlink().NeighSet(neighbour); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(linktest.Patience); from.Stats().TxPackets < uint64(n) && time.Now().Before(deadline); {
			if err := from.Wait(time.Second); err != nil {
				t.Fatal(err)
			}
			if err := from.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		psns, _ := linktest.Collect(t, to, n)
		if !slices.IsSorted(psns) {
			t.Errorf("%d: PSNs %v", i, psns)
		}
		if s := from.Stats(); s.TxDrops+s.TxErrors != 0 || from.Awaits() == driver.Starved {
			t.Errorf("%+v", s)
		}
	}
}

// refuse returns a function that makes the kernel refuse messages of a Port.
func refuse(p *Port) func(func(int) unix.Errno) {
	return func(f func(int) unix.Errno) {
		if p.tx.sendmmsg = mmsg.Send; f != nil {
			p.tx.sendmmsg = linktest.Refuse(mmsg.Send, f)
		}
	}
}

func TestKernelRefuses(t *testing.T) {
	linktest.TestRefused(t, func(t *testing.T) linktest.Refused {
		from, to, _ := loopbackPair(t, 51, Config{})
		if !from.tx.gso {
			t.Skip("the kernel has no GSO")
		}
		return linktest.Refused{From: linktest.At(from, linktest.Loopback(51), netip.Addr{}), To: linktest.At(to, linktest.Loopback(52), netip.Addr{}),
			Refuse: refuse(from), Freeze: func(clock func() time.Time) { from.tx.clock = clock }}
	})
}
