package scenario_test

import (
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/qp"
)

// TestInterfaceEarlyDrop: over xdp the kernel drops exactly the packets that no queue pair can take: connections, their
// migration, datagrams, groups and the connection manager work, and the drops are counted like those of the device.
func TestInterfaceEarlyDrop(t *testing.T) {
	for _, queues := range []int{1, 2} {
		x, y := netlab.Pair(t, netlab.Config{MTU: 1500, Queues: queues})
		const second = "10.88.0.77"
		check(t, x.AddAddr(netip.MustParseAddr(second), 24))
		da := openOn(t, x, roce.InterfaceConfig{Driver: "xdp", Queues: queues})
		db := openOn(t, y, roce.InterfaceConfig{Driver: "xdp", Queues: queues})
		if m := db.Query().Link.Mode; !strings.Contains(m, ", early drop") || strings.Contains(m, "stopped") {
			t.Errorf("mode %q", m)
		}

		// A connection over IPv4, which migrates to IPv6.
		a, b := newPeer(t, da, 1<<20), newPeer(t, db, 1<<20)
		connectFrom(t, a, ofAddr(t, da, x.IP4), b, ofAddr(t, db, y.IP4), 14)
		transfer := func() {
			t.Helper()
			for _, op := range []roce.Opcode{roce.Write, roce.Read} {
				a.post(op, 0, 1<<20, b, 0)
				a.wait()
			}
			b.recv(0, 1<<20)
			a.post(roce.Send, 0, 1<<20, b, 0)
			a.wait()
			b.wait()
		}
		transfer()
		for _, e := range []struct {
			from, to *peer
			src, dst netip.Addr
		}{{a, b, x.IP6, y.IP6}, {b, a, y.IP6, x.IP6}} {
			check(t, e.from.qp.LoadAlternate(patient(t), roce.AHAttr{SGIDIndex: ofAddr(t, e.from.dev, e.src), DGID: bth.GIDFrom(e.dst)}))
			check(t, e.from.qp.Rearm())
		}
		transfer()
		if s := a.qp.MigState(); s != qp.Armed {
			t.Fatalf("migration state %v", s)
		}
		check(t, a.qp.Migrate())
		transfer()
		if p := b.qp; p.MigState() != qp.Migrated {
			t.Errorf("migration state %v", p.MigState())
		}

		// Datagrams, also to a group.
		u, v := newUD(t, da), newUD(t, db)
		v.recv()
		u.send(ok(da.CreateAH(patient(t), roce.AHAttr{SGIDIndex: ofAddr(t, da, x.IP4), DGID: bth.GIDFrom(y.IP4)}))(t), v.qp.Num(), testQKey, "a datagram")
		v.want(u, "a datagram")
		g := groupGID("239.1.2.3")
		check(t, v.qp.AttachMulticast(g))
		v.recv()
		u.cast(g, "to the group")
		v.want(u, "to the group")

		// The connection manager.
		l := ok(db.Listen(patient(t), ":7471", roce.ListenConfig{}))(t)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { ok(ok(l.Accept(patient(t)))(t).Accept(patient(t), roce.AcceptConfig{}))(t) })
			c := ok(da.Dial(patient(t), netip.AddrPortFrom(y.IP4, 7471).String(), roce.DialConfig{}))(t)
			wg.Wait()
			check(t, c.Disconnect(patient(t)))
		}
		for _, d := range []*roce.Device{da, db} {
			// The kernel counts all early drops here. There may still be retransmissions: on a busy machine the ring of an
			// interface overflows.
			if c := d.Counters(); c.Drops != (roce.DropCounters{}) || c.WrongPeer != 0 {
				t.Errorf("drops %+v, %d of wrong peers", c.Drops, c.WrongPeer)
			}
		}

		// A stranger, by a socket of the kernel.
		b2 := newPeer(t, db, 100)
		connectFrom(t, newPeer(t, da, 100), ofAddr(t, da, x.IP4), b2, ofAddr(t, db, y.IP4), 14)
		var stranger *net.UDPConn
		x.Do(t, func() {
			stranger = ok(net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(second+":0")), net.UDPAddrFromAddrPort(netip.AddrPortFrom(y.IP4, bth.UDPPort))))(t)
		})
		defer stranger.Close()
		before := db.Counters()
		const each = 50
		send := func(to bth.QPN, n int) {
			m := make([]byte, n)
			if n >= bth.BTHLen {
				bth.PutBTH(m, bth.RCSendOnly, 0, 0, bth.DefaultPKey, to, 1)
			}
			for range each {
				ok(stranger.Write(m))(t)
			}
		}
		send(b2.qp.Num(), 64)
		send(0x20, 64) // hardly any queue pair gets this random number
		send(0, 4)
		want := roce.DropCounters{Malformed: each, NoQP: each}
		for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
			c := db.Counters()
			if c.Drops == want && c.WrongPeer == each {
				if got := c.Link.RxPackets - before.Link.RxPackets; got != 0 {
					t.Errorf("%d packets reached the port", got)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("drops %+v, %d of wrong peers", c.Drops, c.WrongPeer)
			}
		}
	}
}
