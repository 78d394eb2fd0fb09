package scenario_test

import (
	"bytes"
	"context"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

// doublePath is two connected peers whose devices have two addresses each. The
// first ones are the primary path, the others the alternate one.
type doublePath struct {
	t      testing.TB
	a, b   *peer
	faults [2]*fault.Port
}

// addrs are the addresses of the devices of a doublePath.
var addrs = [2][]netip.Addr{
	{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.1")},
	{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("10.0.1.2")},
}

func newDoublePath(t testing.TB, polled bool) *doublePath {
	t.Helper()
	n := newNetwork(t)
	p := &doublePath{t: t}
	macs := roce.Neighbours{}
	for _, as := range addrs {
		for _, a := range as {
			macs[a] = roce.DerivedMAC(as[0])
		}
	}
	var peers [2]*peer
	for i, as := range addrs {
		p.faults[i] = ok(fault.Wrap(n.port(as[0].String()), fault.Config{}))(t)
		peers[i] = newPeer(t, n.open(roce.Config{Ports: []link.Port{p.faults[i]}, Addrs: as, Options: roce.Options{Resolver: macs, Polled: polled}}), 1<<16)
	}
	p.a, p.b = peers[0], peers[1]
	connect(t, p.a, p.b)
	return p
}

// last is the index of a device's second IPv4 address.
func last(d *roce.Device) int { return len(d.GIDs()) - 1 }

// loadAlternate gives both ends the alternate path.
func (p *doublePath) loadAlternate() {
	p.t.Helper()
	for _, x := range [][2]*peer{{p.a, p.b}, {p.b, p.a}} {
		here, there := x[0].dev, x[1].dev
		check(p.t, x[0].qp.LoadAlternate(context.Background(), roce.AHAttr{SGIDIndex: last(here), DGID: there.GIDs()[last(there)]}))
	}
}

// arm re-arms both ends and sends a packet, after which both are ARMED.
func (p *doublePath) arm() {
	p.t.Helper()
	check(p.t, p.a.qp.Rearm())
	check(p.t, p.b.qp.Rearm())
	p.write(1)
	p.wantMig(qp.Armed)
}

// write writes from a to b's memory and compares.
func (p *doublePath) write(seed int) {
	p.t.Helper()
	fill(p.a.buf[:10_000], seed)
	p.a.post(roce.Write, 0, 10_000, p.b, 20_000)
	p.a.wait()
	if !bytes.Equal(p.a.buf[:10_000], p.b.buf[20_000:30_000]) {
		p.t.Fatal("data differ")
	}
}

func (p *doublePath) wantMig(s qp.MigState) {
	p.t.Helper()
	if a, b := p.a.qp.MigState(), p.b.qp.MigState(); a != s || b != s {
		p.t.Fatalf("states %v and %v, want %v", a, b, s)
	}
}

// wantMigrated expects one PATH_MIG at both ends, and both on the path between
// these addresses.
func (p *doublePath) wantMigrated(a, b string) {
	p.t.Helper()
	p.wantMig(qp.Migrated)
	told := map[*roce.QP]int{}
	for _, x := range []struct {
		*peer
		src, dst string
	}{{p.a, a, b}, {p.b, b, a}} {
		e := ok(x.dev.NextEvent(within(p.t, time.Second)))(p.t)
		for e.QP == nil { // an address has gone
			e = ok(x.dev.NextEvent(within(p.t, time.Second)))(p.t)
		}
		if e.Type != roce.EventPathMig {
			p.t.Errorf("event %v, want PATH_MIG", e)
		}
		told[e.QP]++
		attr, _ := x.qp.Query()
		if attr.AV.Src() != netip.MustParseAddr(x.src) || attr.AV.Dst() != netip.MustParseAddr(x.dst) || attr.AltAV != nil {
			p.t.Errorf("path %v, want %v to %v", attr.AV, x.src, x.dst)
		}
	}
	if told[p.a.qp] != 1 || told[p.b.qp] != 1 {
		p.t.Errorf("events %v, want one for each end", told)
	}
}

// TestMigrate: an address fails during traffic, or is removed, or the program migrates: work requests complete, and both
// ends report the migration.
func TestMigrate(t *testing.T) {
	cut := func(i int, addr string) func(*doublePath) {
		return func(p *doublePath) {
			check(p.t, p.faults[i].AddRule(fault.Rule{Action: fault.Drop, Addr: fault.Is(netip.MustParseAddr(addr))}))
		}
	}
	for _, c := range []struct {
		name  string
		cause func(*doublePath)
	}{
		{"a's address dies", cut(0, "10.0.0.1")},
		{"b's address dies", cut(1, "10.0.0.2")},
		{"only requests are lost", func(p *doublePath) {
			check(p.t, p.faults[0].AddRule(fault.Rule{Action: fault.Drop, Dir: fault.Tx, Addr: fault.Is(addrs[0][0])}))
		}},
		{"only answers are lost", func(p *doublePath) {
			check(p.t, p.faults[0].AddRule(fault.Rule{Action: fault.Drop, Dir: fault.Rx, Addr: fault.Is(addrs[0][0])}))
		}},
		{"a's address is taken away", func(p *doublePath) { check(p.t, p.a.dev.SetAddrs(addrs[0][1:])) }},
		{"a migrates", func(p *doublePath) { check(p.t, p.a.qp.Migrate()) }},
		{"b migrates", func(p *doublePath) { check(p.t, p.b.qp.Migrate()); p.b.post(roce.Write, 0, 1, p.a, 0); p.b.wait() }},
		{"both migrate", func(p *doublePath) { check(p.t, p.a.qp.Migrate()); check(p.t, p.b.qp.Migrate()) }},
	} {
		for _, polled := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newDoublePath(t, polled)
					if polled {
						keepBusy(t, p.a.dev, p.b.dev)
					}
					p.loadAlternate()
					p.arm()
					p.a.post(roce.Write, 0, 10_000, p.b, 40_000)
					c.cause(p)
					for range 3 {
						p.a.post(roce.Write, 0, 10_000, p.b, 0)
					}
					for range 4 {
						p.a.wait()
					}
					p.write(2)
					p.wantMigrated("10.0.1.1", "10.0.1.2")
				})
			})
		}
	}
}

// TestMigrateBack: the old path is made the alternate one and used again.
func TestMigrateBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newDoublePath(t, false)
		p.loadAlternate()
		p.arm()
		check(t, p.a.qp.Migrate())
		p.write(2)
		p.wantMigrated("10.0.1.1", "10.0.1.2")
		for _, x := range [][2]*peer{{p.a, p.b}, {p.b, p.a}} {
			check(t, x[0].qp.LoadAlternate(context.Background(), roce.AHAttr{DGID: x[1].dev.GIDs()[0]}))
		}
		p.arm()
		check(t, p.b.qp.Migrate())
		p.b.post(roce.Read, 0, 100, p.a, 0)
		p.b.wait()
		p.wantMigrated("10.0.0.1", "10.0.0.2")
		if c := p.a.dev.Counters(); c.PathMigrations != 2 || c.RetryExceededErr != 0 {
			t.Errorf("counters %+v", c)
		}
	})
}

// TestMigrateErrors checks the errors of refused calls. A peer that is not armed does not follow: a connection
// without an alternate path at one end fails.
func TestMigrateErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newDoublePath(t, false)
		ctx := context.Background()
		wantErr(t, "REARM without an alternate path", p.a.qp.Rearm(), syscall.EINVAL)
		wantErr(t, "GID index", p.a.qp.LoadAlternate(ctx, roce.AHAttr{SGIDIndex: 9, DGID: p.b.dev.GIDs()[0]}), errno.ENODATA)
		wantErr(t, "IP versions", p.a.qp.LoadAlternate(ctx, roce.AHAttr{DGID: p.b.dev.GIDs()[1]}), syscall.EINVAL)
		wantErr(t, "no neighbour", p.a.qp.LoadAlternate(ctx, roce.AHAttr{DGID: bth.GIDFrom(netip.MustParseAddr("10.0.1.9"))}), syscall.EHOSTUNREACH)
		p.loadAlternate()
		check(t, p.a.qp.Rearm())
		wantErr(t, "before the peer is ready", p.a.qp.Migrate(), syscall.EINVAL)
		p.write(1)
		wantErr(t, "the peer is not ready still", p.a.qp.Migrate(), syscall.EINVAL)
		check(t, p.faults[0].SetRates(fault.Rates{Loss: 1}, fault.Rates{Loss: 1}))
		p.a.post(roce.Write, 0, 1, p.b, 0)
		p.a.waitFor(cq.RetryExcErr)
		unconnected := newPeer(t, p.a.dev, 1)
		wantErr(t, "not connected", unconnected.qp.LoadAlternate(ctx, roce.AHAttr{DGID: p.b.dev.GIDs()[0]}), syscall.EINVAL)
		check(t, p.b.qp.Close())
		wantErr(t, "closed", p.b.qp.Rearm(), roce.ErrClosed)
	})
}

// TestMigrateRefused: ends whose alternate paths do not match raise PATH_MIG_ERR, and accept no packets from a wrong
// address.
func TestMigrateRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newDoublePath(t, false)
		p.loadAlternate()
		check(t, p.b.qp.LoadAlternate(context.Background(), roce.AHAttr{SGIDIndex: last(p.b.dev), DGID: p.a.dev.GIDs()[0]})) // a's first address
		p.arm()
		check(t, p.a.qp.Migrate())
		p.a.post(roce.Write, 0, 1, p.b, 0)
		p.a.waitFor(cq.RetryExcErr)
		e := ok(p.b.dev.NextEvent(within(t, time.Second)))(t)
		if e.Type != roce.EventPathMigErr || e.QP != p.b.qp || e.String() == "" {
			t.Errorf("event %v, want PATH_MIG_ERR", e)
		}
		if c := p.b.dev.Counters(); p.b.qp.MigState() != qp.Armed || c.PathMigRefused == 0 || c.WrongPeer != c.PathMigRefused {
			t.Errorf("state %v, counters %+v", p.b.qp.MigState(), c)
		}
	})
}

// TestMigrateLoopback: a connection of the device with itself migrates, and after a migration to another device packets go
// through the port.
func TestMigrateLoopback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newDoublePath(t, false)
		a, b := newPeer(t, p.a.dev, 1<<16), newPeer(t, p.a.dev, 1<<16)
		p.a, p.b = a, b
		connect(t, a, b)
		p.loadAlternate()
		p.arm()
		check(t, a.qp.Migrate())
		p.write(2)
		p.wantMigrated("10.0.1.1", "10.0.1.1")

		elsewhere := ok(a.dev.CreateAH(context.Background(), roce.AHAttr{DGID: bth.GIDFrom(addrs[1][2])}))(t)
		check(t, a.qp.Modify(&roce.Attr{AltAV: elsewhere, AltPort: 1, AltTimeout: 14}, qp.AttrAltPath))
		check(t, b.qp.LoadAlternate(context.Background(), roce.AHAttr{DGID: a.dev.GIDs()[0]}))
		p.arm()
		before, _ := p.faults[0].Counters()
		check(t, a.qp.Migrate())
		a.post(roce.Write, 0, 1, b, 0)
		a.waitFor(cq.RetryExcErr) // that device has no such queue pair
		probes := a.dev.Counters().Probes
		if after, _ := p.faults[0].Counters(); after.Packets-before.Packets != 8+probes {
			t.Errorf("%d packets through the port, want one, 7 retries and %d probes", after.Packets-before.Packets, probes)
		}
	})
}
