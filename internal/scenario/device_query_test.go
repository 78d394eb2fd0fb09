package scenario_test

import (
	"context"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/link/mem"
)

// TestQueryDevice: the attributes list the features of the device, and no others.
func TestQueryDevice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newNetwork(t).device("10.0.0.1")
		a := d.Query()
		if a.FWVer == "" || a.GUID != 0x0000_0AFF_FE00_0001 || a.VendorID != 0xFFFFFF || a.PhysPorts != 1 || a.Shards != 1 || !a.Up {
			t.Errorf("attributes %+v", a)
		}
		if a.AtomicCap != roce.AtomicGlob || a.AtomicCap.String() != "ATOMIC_GLOB" {
			t.Errorf("atomic cap %v", a.AtomicCap)
		}
		for _, c := range []roce.DeviceCaps{roce.CapBadPKeyCntr, roce.CapBadQKeyCntr, roce.CapCurrQPStateMod, roce.CapPortActiveEvent,
			roce.CapSysImageGUID, roce.CapRCRNRNakGen, roce.CapUDAVPortEnforce,
			roce.CapFlushGlobal, roce.CapFlushPersist, roce.CapAtomicWrite} {
			if a.Caps&c == 0 {
				t.Errorf("caps %v lack %v", a.Caps, c)
			}
		}
		for _, c := range []roce.DeviceCaps{roce.CapResizeMaxWR, roce.CapShutdownPort, roce.CapInitType, roce.CapRawMulti, roce.CapFlowSteering} {
			if a.Caps&c != 0 {
				t.Errorf("caps %v have %v", a.Caps, c)
			}
		}
		// The limits are those that creating enforces.
		check(t, ok(d.CreateCQ(a.MaxCQE))(t).Close())
		_, err := d.CreateCQ(a.MaxCQE + 1)
		wantErr(t, "one completion more", err, syscall.EINVAL)
		pd, q := d.AllocPD(), ok(d.CreateCQ(1))(t)
		_, err = pd.CreateQP(roce.QPConfig{SendCQ: q, Caps: roce.Caps{MaxSendWR: a.MaxQPWR, MaxSendSGE: a.MaxSGE, MaxInlineData: a.MaxInline}})
		check(t, err)
		_, err = pd.AllocIndirect(a.MaxParts)
		check(t, err)
		_, err = pd.AllocIndirect(a.MaxParts + 1)
		wantErr(t, "one part more", err, syscall.EINVAL)
		for _, caps := range []roce.Caps{{MaxSendWR: a.MaxQPWR + 1}, {MaxRecvWR: a.MaxQPWR + 1}, {MaxSendSGE: a.MaxSGE + 1},
			{MaxRecvSGE: a.MaxSGE + 1}, {MaxInlineData: a.MaxInline + 1}} {
			_, err = pd.CreateQP(roce.QPConfig{SendCQ: q, Caps: caps})
			wantErr(t, "a larger queue pair", err, syscall.EINVAL)
		}
	})
}

// TestQueryMasked: masked atomics take the operand sizes in the attributes, and no others.
func TestQueryMasked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := roce.QPConfig{MaskedAtomics: true, MaxAtomicArg: 32}
		a, _ := atomicPair(t, c, c)
		attr := a.dev.Query()
		if attr.Masked.MaxFieldLog != 3 || 1<<attr.Masked.MaxInlineLog != 4*32 || !attr.Masked.BigEndianReply || attr.MaxInlineParts != attr.MaxParts || attr.MaxStrideDims != 1 {
			t.Errorf("attributes %+v", attr)
		}
		for n := range 64 {
			wr := roce.SendWR{Opcode: roce.MaskedFetchAdd, SG: []roce.SGE{a.mr.SGE(0, n)}}
			if n > 8 {
				wr.Args = new(roce.MaskedArgs)
			}
			if err := a.qp.PostSend(&wr); (err == nil) != (n > 0 && n&(n-1) == 0 && attr.Masked.ArgSizes&uint64(n) != 0) {
				t.Errorf("%d bytes: %v, sizes %#x", n, err, attr.Masked.ArgSizes)
			}
		}
	})
}

// TestQueryPort: state, MTU and counters of the port are the present ones.
func TestQueryPort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		port := c.Ports[0].(*mem.Port)
		d := n.open(c)
		a := ok(d.QueryPort(1))(t)
		if a.State != roce.PortActive || a.PhysState != roce.PhysLinkUp || a.LinkLayer != roce.LinkLayerEthernet || !a.GRHRequired {
			t.Errorf("port %+v", a)
		}
		if a.MaxMTU != bth.MTU4096 || a.ActiveMTU != bth.MTU4096 || a.GIDTableLen != 1024 || a.PKeyTableLen != 1 || a.MaxMsgSize != 1<<31 {
			t.Errorf("port %+v", a)
		}
		if a.ActiveWidth != roce.Width1X || a.ActiveSpeed != roce.SpeedSDR || a.Caps != roce.PortCMSupport {
			t.Errorf("port %+v", a)
		}
		port.SetLink(false)
		if a := ok(d.QueryPort(1))(t); a.State != roce.PortDown || a.PhysState != roce.PhysDisabled || d.Query().Up {
			t.Errorf("without a link: port %+v", a)
		}
		port.SetLink(true)
		if a := ok(d.QueryPort(1))(t); a.State != roce.PortActive {
			t.Errorf("with a link again: port %+v", a)
		}
		for _, p := range []int{0, 2, -1} {
			_, err := d.QueryPort(p)
			wantErr(t, "QueryPort", err, syscall.EINVAL)
		}
	})
}

// TestQueryGID: QueryGID returns each entry of the table, also an empty one.
func TestQueryGID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newNetwork(t).device("10.0.0.1")
		addr := netip.MustParseAddr
		check(t, d.SetAddrs([]netip.Addr{addr("fd00::1"), addr("10.0.0.2"), addr("10.0.0.1")}))
		check(t, d.SetAddrs([]netip.Addr{addr("10.0.0.2"), addr("10.0.0.1")}))
		for i, want := range []string{"::ffff:10.0.0.1", "::", "::ffff:10.0.0.2", "::"} {
			if g, err := d.QueryGID(1, i); err != nil || g.String() != want {
				t.Errorf("GID %d is %v, %v, want %s", i, g, err, want)
			}
		}
		for _, bad := range [][2]int{{1, -1}, {1, 1024}, {0, 0}, {2, 0}} {
			_, err := d.QueryGID(bad[0], bad[1])
			wantErr(t, "QueryGID", err, syscall.EINVAL)
			_, err = d.QueryGIDEx(bad[0], bad[1])
			wantErr(t, "QueryGIDEx", err, syscall.EINVAL)
		}
		_, err := d.QueryGIDEx(1, 1)
		wantErr(t, "QueryGIDEx of an empty slot", err, errno.ENODATA)
		table := d.QueryGIDTable()
		if len(table) != 2 || table[0].Index != 0 || table[1].Index != 2 {
			t.Fatalf("table %+v", table)
		}
		for _, e := range table {
			if got, err := d.QueryGIDEx(1, e.Index); err != nil || got != e || e.Type != roce.GIDTypeRoCEv2 || e.Port != 1 {
				t.Errorf("entry %+v, %v, in the table %+v", got, err, e)
			}
		}
	})
}

// TestQueryPKey: the P_Key table has one entry, the default.
func TestQueryPKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newNetwork(t).device("10.0.0.1")
		if k, err := d.QueryPKey(1, 0); err != nil || k != bth.DefaultPKey {
			t.Errorf("P_Key %v, %v", k, err)
		}
		if i, err := d.PKeyIndex(1, bth.DefaultPKey); err != nil || i != 0 {
			t.Errorf("index %d, %v", i, err)
		}
		_, err := d.QueryPKey(1, 1)
		wantErr(t, "QueryPKey of index 1", err, syscall.ENOENT)
		_, err = d.QueryPKey(2, 0)
		wantErr(t, "QueryPKey of port 2", err, syscall.EINVAL)
		_, err = d.PKeyIndex(1, 0x8001)
		wantErr(t, "PKeyIndex of another", err, syscall.ENOENT)
		_, err = d.PKeyIndex(0, bth.DefaultPKey)
		wantErr(t, "PKeyIndex of port 0", err, syscall.EINVAL)
	})
}

// TestSetAddrs: a device answers at its present addresses. A connection from a removed address fails, but works again if
// the address returns in time.
func TestSetAddrs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		addr := netip.MustParseAddr
		c.Addrs = append(c.Addrs, addr("10.0.0.9"))
		macs := roce.Neighbours{addr("10.0.0.1"): roce.DerivedMAC(addr("10.0.0.1")), addr("10.0.0.9"): roce.DerivedMAC(addr("10.0.0.1")),
			addr("10.0.0.5"): roce.DerivedMAC(addr("10.0.0.1")), addr("10.0.0.2"): roce.DerivedMAC(addr("10.0.0.2"))}
		c.Resolver = macs
		other := n.config("10.0.0.2")
		other.Resolver = macs
		da, db := n.open(c), n.open(other)

		// a is connected from the first address, c from the second.
		a, b := newPeer(t, da, 100), newPeer(t, db, 100)
		connect(t, a, b)
		x, y := newPeer(t, da, 100), newPeer(t, db, 100)
		to := func(d bth.GID, index int, of *peer) roce.Peer {
			return roce.Peer{AHAttr: roce.AHAttr{DGID: d, SGIDIndex: index}, QPN: of.qp.Num(), PSN: of.psn, MTU: bth.MTU4096, Timeout: 14, RetryCnt: 7}
		}
		check(t, x.qp.Connect(context.Background(), to(db.GIDs()[0], 1, y), x.psn))
		check(t, y.qp.Connect(context.Background(), to(da.GIDs()[1], 0, x), y.psn))
		write := func(from, to *peer, want cq.Status) {
			t.Helper()
			from.post(roce.Write, 0, 100, to, 0)
			from.waitFor(want)
		}
		write(a, b, cq.Success)
		write(y, x, cq.Success)

		// The address is removed for a moment: retries succeed.
		check(t, da.SetAddrs([]netip.Addr{addr("10.0.0.1"), addr("10.0.0.5")}))
		if got := da.GIDs(); len(got) != 3 || !got[1].IsZero() || got[2] != bth.GIDFrom(addr("10.0.0.5")) {
			t.Errorf("GIDs %v", got)
		}
		y.post(roce.Write, 0, 100, x, 0)
		time.Sleep(200 * time.Millisecond)
		check(t, da.SetAddrs([]netip.Addr{addr("10.0.0.9"), addr("10.0.0.1"), addr("10.0.0.5")}))
		if got := da.GIDs(); len(got) != 3 || got[1] != bth.GIDFrom(addr("10.0.0.9")) {
			t.Errorf("GIDs %v: the address has another index than before", got)
		}
		y.wait()

		// The address is removed for good: WRITEs fail at either end.
		check(t, da.SetAddrs([]netip.Addr{addr("10.0.0.1"), addr("10.0.0.5")}))
		write(x, y, cq.RetryExcErr)
		write(y, x, cq.RetryExcErr)
		write(a, b, cq.Success) // the other connection is not affected
		_, err := da.CreateAH(context.Background(), roce.AHAttr{DGID: db.GIDs()[0], SGIDIndex: 1})
		wantErr(t, "CreateAH from an empty slot", err, errno.ENODATA)
		_, err = da.Listen(context.Background(), "10.0.0.9:7471", roce.ListenConfig{})
		wantErr(t, "Listen on an address that is gone", err, syscall.EADDRNOTAVAIL)

		// Peers can connect to the new address.
		l := ok(da.Listen(context.Background(), "10.0.0.5:7471", roce.ListenConfig{}))(t)
		go func() {
			if r, err := l.Accept(context.Background()); err == nil {
				r.Accept(context.Background(), roce.AcceptConfig{})
			}
		}()
		conn := ok(db.Dial(within(t, time.Minute), "10.0.0.5:7471", roce.DialConfig{}))(t)
		check(t, conn.Close())

		for _, bad := range []netip.Addr{{}, addr("0.0.0.0"), addr("224.0.0.1")} {
			wantErr(t, "SetAddrs", da.SetAddrs([]netip.Addr{bad}), syscall.EINVAL)
		}
		check(t, da.Close())
		wantErr(t, "SetAddrs of a closed device", da.SetAddrs(nil), roce.ErrClosed)
	})
}

// TestUnspecifiedAddress: an empty slot of the GID table is not an address that
// packets can be sent to.
func TestUnspecifiedAddress(t *testing.T) {
	withoutEarlyDrop(t)
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		c.Addrs = append(c.Addrs, netip.MustParseAddr("fd00::1"))
		d := n.open(c)
		evil := newAttacker(n, d)
		check(t, d.SetAddrs(c.Addrs[:1]))
		to := evil.path("10.0.0.66").Config()
		to.Src, to.Dst = bth.GIDFrom(netip.MustParseAddr("fd00::66")), bth.GIDFrom(c.Addrs[1])
		path := ok(frame.NewPath(to))(t)
		for _, dst := range []bth.GID{to.Dst, {}} {
			body, _, _ := evil.port.Begin(path, bth.BTHLen+bth.ICRCLen)
			bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, 0x11, 1)
			copy(evil.port.Lent()[14+24:], dst[:])
			evil.port.Commit()
		}
		check(t, evil.port.Flush())
		time.Sleep(time.Millisecond)
		if got, want := d.Counters().Drops, (roce.DropCounters{NotForUs: 2}); got != want {
			t.Errorf("drops %+v, want %+v", got, want)
		}
	})
}
