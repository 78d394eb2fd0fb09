package scenario_test

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/qp"
)

// twoVersions are two devices, each with an IPv4 and an IPv6 address; nobody
// else can be resolved.
func twoVersions(t *testing.T) (a, b *roce.Device) {
	n := newNetwork(t)
	known := roce.Neighbours{}
	open := func(v4, v6 string) *roce.Device {
		c := n.config(v4)
		c.Addrs = append(c.Addrs, netip.MustParseAddr(v6))
		for _, addr := range c.Addrs {
			known[addr] = roce.DerivedMAC(c.Addrs[0])
		}
		c.Resolver = known
		return n.open(c)
	}
	return open("10.0.0.1", "fd00::1"), open("10.0.0.2", "fd00::2")
}

// onesSum is the one's complement sum of RFC 1071: all ones for an IPv4 header
// with a right checksum.
func onesSum(b []byte) uint16 {
	s := uint32(0)
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i&1))
		s = s&0xFFFF + s>>16
	}
	return uint16(s)
}

// TestCreateAHErrors: the errno values of ibv_create_ah.
func TestCreateAHErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := twoVersions(t)
		peer4, peer6 := b.GIDs()[0], b.GIDs()[1]
		far := bth.GIDFrom(netip.MustParseAddr("10.0.0.99"))
		for _, tt := range []struct {
			name string
			attr roce.AHAttr
			want error
		}{
			{"IPv4", roce.AHAttr{DGID: peer4}, nil},
			{"IPv6 by port 1", roce.AHAttr{DGID: peer6, SGIDIndex: 1, Port: 1}, nil},
			{"itself", roce.AHAttr{DGID: a.GIDs()[0]}, nil},
			{"IPv4 group", roce.AHAttr{DGID: bth.GIDFrom(netip.MustParseAddr("239.1.2.3"))}, nil},
			{"IPv6 group", roce.AHAttr{DGID: bth.GIDFrom(netip.MustParseAddr("ff0e::7")), SGIDIndex: 1}, nil},
			{"no destination", roce.AHAttr{SGIDIndex: 1}, syscall.EINVAL},
			{"port 2", roce.AHAttr{DGID: peer4, Port: 2}, syscall.EINVAL},
			{"flow label too long", roce.AHAttr{DGID: peer4, FlowLabel: 1 << 20}, syscall.EINVAL},
			{"IPv6 from IPv4", roce.AHAttr{DGID: peer6}, syscall.EINVAL},
			{"source beyond the table", roce.AHAttr{DGID: peer4, SGIDIndex: 2}, errno.ENODATA},
			{"negative source", roce.AHAttr{DGID: peer4, SGIDIndex: -1}, errno.ENODATA},
			{"unreachable", roce.AHAttr{DGID: far}, syscall.ETIMEDOUT},
			{"why it is unreachable", roce.AHAttr{DGID: far}, syscall.EHOSTUNREACH},
		} {
			ah, err := a.CreateAH(t.Context(), tt.attr)
			wantErr(t, tt.name, err, tt.want)
			if (ah == nil) != (tt.want != nil) {
				t.Errorf("%s: %v", tt.name, ah)
			}
		}
		check(t, b.Close())
		_, err := b.CreateAH(t.Context(), roce.AHAttr{DGID: a.GIDs()[0]})
		wantErr(t, "on a closed device", err, net.ErrClosed)
	})
}

// TestAHFromWC: the answer to a datagram goes to its source, from its destination address, with its traffic class, on a
// separate path; in both IP versions, on the network and inside the device.
func TestAHFromWC(t *testing.T) {
	bubble(t, func(t *testing.T) {
		da, db := twoVersions(t)
		for _, to := range []*roce.Device{db, da} {
			a, b := newUD(t, da), newUD(t, to)
			for index := range 2 {
				src, dst := da.GIDs()[index], to.GIDs()[index]
				ah := ok(da.CreateAH(t.Context(), roce.AHAttr{DGID: dst, SGIDIndex: index, TrafficClass: 0xB8, FlowLabel: 0x54321, HopLimit: 9}))(t)
				b.recv()
				a.send(ah, b.qp.Num(), testQKey, "ping")
				wc := b.want(a, "ping")
				area := b.received()[:roce.GRHLen]
				if index == 0 && (area[20] != 0x45 || onesSum(area[20:]) != 0xFFFF) {
					t.Errorf("the IPv4 header % x is not valid", area[20:])
				}
				want := roce.AHAttr{DGID: src, SGIDIndex: index, TrafficClass: 0xB8, HopLimit: 9, Port: 1}
				if index == 1 {
					want.FlowLabel = 0x54321
				}
				if got := ok(to.AHAttrFromWC(&wc, area))(t); got != want {
					t.Errorf("attributes %+v, want %+v", got, want)
				}
				back := ok(to.CreateAHFromWC(t.Context(), &wc, area))(t)
				if c := (*frame.Path)(back).Config(); c.Src != dst || c.Dst != src || c.TrafficClass != 0xB8 || c.HopLimit != 64 || c.FlowLabel != want.FlowLabel {
					t.Errorf("path %+v", c)
				}
				a.recv()
				b.send(back, wc.SrcQPN, testQKey, "pong")
				a.want(b, "pong")
			}
		}
	})
}

func TestAHFromWCErrors(t *testing.T) {
	d := newNetwork(t).device("10.0.0.1")
	header := func(src, dst string) []byte {
		p := frame.Packet{Src: bth.GIDFrom(netip.MustParseAddr(src)), Dst: bth.GIDFrom(netip.MustParseAddr(dst))}
		var area [roce.GRHLen]byte
		p.PutGRH(&area)
		return area[:]
	}
	grh := roce.WC{Flags: cq.GRH}
	for _, tt := range []struct {
		name string
		wc   roce.WC
		area []byte
		want error
	}{
		{"right", grh, header("10.0.0.2", "10.0.0.1"), nil},
		{"no GRH", roce.WC{}, header("10.0.0.2", "10.0.0.1"), syscall.EINVAL},
		{"area cut off", grh, header("10.0.0.2", "10.0.0.1")[:39], syscall.EINVAL},
		{"area overwritten", grh, make([]byte, 40), syscall.EPROTONOSUPPORT},
		{"sent to an IPv4 group", grh, header("10.0.0.2", "239.1.2.3"), syscall.EINVAL},
		{"sent to an IPv6 group", grh, header("fd00::2", "ff0e::7"), syscall.EINVAL},
		{"sent to somebody else", grh, header("10.0.0.2", "10.0.0.3"), errno.ENODATA},
	} {
		_, err := d.AHAttrFromWC(&tt.wc, tt.area)
		wantErr(t, tt.name, err, tt.want)
		_, err = d.CreateAHFromWC(context.Background(), &tt.wc, tt.area)
		if tt.want != nil {
			wantErr(t, tt.name, err, tt.want)
		}
	}
}

// TestAHLifetime: an address handle lasts as long as a work request needs it, even if the program has no reference.
func TestAHLifetime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := newUD(t, n.device("10.0.0.1")), newUD(t, n.device("10.0.0.2"))
		check(t, a.qp.Modify(&roce.Attr{State: qp.SQD}, qp.AttrState))
		b.recv()
		a.send(a.ah(b), b.qp.Num(), testQKey, "later")
		for range 3 {
			runtime.GC()
			a.ah(b) // something else in its place
		}
		synctest.Wait()
		b.wantNothing()
		check(t, a.qp.Modify(&roce.Attr{State: qp.RTS}, qp.AttrState))
		b.want(a, "later")
	})
}

// TestForeignAH: an address handle only works on the device that made it.
func TestForeignAH(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := newUD(t, n.device("10.0.0.1")), newUD(t, n.device("10.0.0.2"))
		foreign := b.ah(a)
		wr := roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{a.mr.SGE(0, 4)}, AH: foreign, RemoteQPN: b.qp.Num()}
		wantErr(t, "another device's address handle", a.qp.PostSend(&wr), syscall.EINVAL)
		good := wr
		good.AH = a.ah(b)
		posted, err := a.qp.PostSends([]roce.SendWR{good, wr, good})
		if wantErr(t, "another device's address handle", err, syscall.EINVAL); posted != 1 {
			t.Errorf("%d were posted, want 1", posted)
		}
	})
}

// TestPrivilegedQKey: a Q_Key with the top bit set in a work request stands for
// the queue pair's own, whatever the rest of it is (IBTA 10.2.5); a queue pair
// takes exactly its own key.
func TestPrivilegedQKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const privileged = 0x80001234
		n := newNetwork(t)
		a := newUDOn(t, n.device("10.0.0.1"), 0, privileged)
		b, plain := newUDOn(t, n.device("10.0.0.2"), 0, privileged), newUD(t, n.device("10.0.0.3"))
		b.recv()
		a.send(a.ah(b), b.qp.Num(), 0xFFFFFFFF, "own key")
		b.want(a, "own key")
		b.recv()
		plain.send(plain.ah(b), b.qp.Num(), privileged, "not entitled") // sends testQKey
		synctest.Wait()
		b.wantNothing()
		if c := b.dev.Counters(); c.QKeyViolation != 1 {
			t.Errorf("%d Q_Key violations, want 1", c.QKeyViolation)
		}
		plain.recv()
		a.send(a.ah(plain), plain.qp.Num(), testQKey, "its key")
		plain.want(a, "its key")
	})
}
