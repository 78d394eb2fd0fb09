package scenario_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/qp"
)

// TestForeignHandles: a device takes its own address handles only, on every link.
func TestForeignHandles(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		x, y := netlab.Pair(t, netlab.Config{})
		da, db := openOn(t, x, roce.InterfaceConfig{Driver: driver}), openOn(t, y, roce.InterfaceConfig{Driver: driver})
		own := ok(da.CreateAH(patient(t), roce.AHAttr{DGID: bth.GIDFrom(y.IP4), SGIDIndex: ofAddr(t, da, x.IP4)}))(t)
		foreign := ok(db.CreateAH(patient(t), roce.AHAttr{DGID: bth.GIDFrom(x.IP4), SGIDIndex: ofAddr(t, db, y.IP4)}))(t)
		made := ok(frame.NewPath((*frame.Path)(own).Config()))(t) // with a Hop of the device, so it counts as its own
		plain := (*frame.Path)(own).Config()
		plain.Hop = nil
		handmade := ok(frame.NewPath(plain))(t)
		u := newUD(t, da)
		for _, test := range []struct {
			name string
			ah   *roce.AH
			want error
		}{{"own", own, nil}, {"copied", qp.NewAH(made), nil}, {"another device's", foreign, syscall.EINVAL}, {"nobody's", qp.NewAH(handmade), syscall.EINVAL}} {
			wantErr(t, test.name+" in PostSend", u.qp.PostSend(&roce.SendWR{Opcode: roce.Send, AH: test.ah, RemoteQPN: 99, RemoteQKey: testQKey}), test.want)
			p := newPeer(t, da, 100)
			attr := roce.Attr{State: qp.RTR, AV: test.ah, PathMTU: bth.MTU1024, DestQPN: 99, MinRNRTimer: 12, MaxDestRdAtomic: 1}
			mask := qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer
			wantErr(t, test.name+" in Modify", p.qp.Modify(&attr, mask), test.want)
			attr.AV, attr.AltAV, attr.AltPort = own, test.ah, 1
			p = newPeer(t, da, 100)
			wantErr(t, test.name+" as the alternate path", p.qp.Modify(&attr, mask|qp.AttrAltPath), test.want)
		}
	})
}

// TestInterfaceMTU: a new connection takes the present MTU of the interface. The device reports connections with a larger
// MTU.
func TestInterfaceMTU(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		x, y := netlab.Pair(t, netlab.Config{MTU: 4300})
		da, db := openOn(t, x, roce.InterfaceConfig{Driver: driver}), openOn(t, y, roce.InterfaceConfig{Driver: driver})
		large, to := newPeer(t, da, 4096), newPeer(t, db, 4096)
		connectFrom(t, large, ofAddr(t, da, x.IP4), to, ofAddr(t, db, y.IP4), 14)
		setMTU := func(mtu int) {
			for _, s := range []*netlab.Side{x, y} {
				check(t, s.Netlink().LinkSetMTU(s.Link(), mtu))
			}
			for _, d := range []*roce.Device{da, db} {
				for d.Query().Link.MTU != mtu {
					awaitEvent(t, d, roce.EventPortChange)
				}
			}
		}
		transfer := func(want bth.MTU) {
			t.Helper()
			if got := da.Query().PathMTU; got != want {
				t.Errorf("new connections get a path MTU of %v, want %v", got, want)
			}
			a, b := newPeer(t, da, 4096), newPeer(t, db, 4096)
			connectFrom(t, a, ofAddr(t, da, x.IP4), b, ofAddr(t, db, y.IP4), 18)
			a.post(roce.Write, 0, 4096, b, 0)
			a.wait()
		}
		transfer(bth.MTU4096)
		setMTU(1500)
		for told := false; !told; {
			e := ok(da.NextEvent(patient(t)))(t)
			told = e.Type == roce.EventPathMTU && e.QP == large.qp
		}
		transfer(bth.MTU1024)
		large.post(roce.Write, 0, 4096, to, 0)
		large.waitFor(cq.RetryExcErr)
		setMTU(4300)
		transfer(bth.MTU4096)
	})
}

// TestInterfaceQuery: the present name of the interface, and the address from which it sends packets.
func TestInterfaceQuery(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		x, y := netlab.Pair(t, netlab.Config{})
		d := openOn(t, x, roce.InterfaceConfig{Driver: driver})
		ah := ok(d.CreateAH(patient(t), roce.AHAttr{DGID: bth.GIDFrom(y.IP4), SGIDIndex: ofAddr(t, d, x.IP4)}))(t)
		mac := frame.MAC{2, 0x66, 0, 0, 0, 1}
		setMAC(t, x, mac)
		rename(t, x, "other")
		want := d.Query().Link
		want.Interface = "other"
		if driver != "udp" {
			want.MAC = mac
		}
		for {
			awaitEvent(t, d, roce.EventPortChange)
			if got := d.Query().Link; got.Interface == want.Interface && got.MAC == want.MAC {
				break
			}
		}
		if src, _ := (*frame.Path)(ah).Hop().Addrs(); src != want.MAC {
			t.Errorf("packets are sent from %v, want %v", src, want.MAC)
		}
	})
}

// TestInterfaceSource: the device sends from the address that the kernel would choose.
func TestInterfaceSource(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		x, y := netlab.Pair(t, netlab.Config{})
		own, peer := netip.MustParseAddr("192.168.5.1"), netip.MustParseAddr("192.168.5.9")
		check(t, x.AddAddr(own, 24))
		check(t, y.AddAddr(peer, 24))
		d := openOn(t, x, roce.InterfaceConfig{Driver: driver})
		for dst, want := range map[netip.Addr]netip.Addr{peer: own, y.IP4: x.IP4, y.IP6: x.IP6, y.LinkLocal: x.LinkLocal} {
			if r, err := inside.Agent(d).Route(patient(t), netip.Addr{}, dst, 0); err != nil || r.Local != want {
				t.Errorf("to %v from %v, %v, want %v", dst, r, err, want)
			}
		}
	})
}

// TestInterfaceLoopback: only socket drivers open the loopback interface; the error of others names the right driver.
func TestInterfaceLoopback(t *testing.T) {
	x, _ := netlab.Pair(t, netlab.Config{})
	eachDriver(t, func(t *testing.T, driver string) {
		x.Do(t, func() {
			d, err := roce.OpenInterface("lo", roce.InterfaceConfig{Driver: driver})
			if driver != "udp" {
				if err == nil || !strings.Contains(err.Error(), `driver "udp"`) {
					t.Errorf("the loopback by %s: %v", driver, err)
				}
				return
			}
			check(t, err)
			defer d.Close()
			l := ok(d.Listen(patient(t), ":7471", roce.ListenConfig{}))(t)
			go func() {
				if r, err := l.Accept(patient(t)); err == nil {
					r.Accept(patient(t), roce.AcceptConfig{})
				}
			}()
			ok(d.Dial(patient(t), "127.0.0.1:7471", roce.DialConfig{}))(t)
		})
	})
}

// TestInterfaceVLAN: a peer that tags its frames does not reach a device on the untagged
// interface.
func TestInterfaceVLAN(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		a, b := netlab.Pair(t, netlab.Config{})
		if driver == "udp" {
			a.Do(t, func() {
				_, err := roce.OpenInterface(a.Interface, roce.InterfaceConfig{Driver: driver, Options: roce.Options{VLAN: 100}})
				wantErr(t, "sockets in a VLAN", err, syscall.EINVAL)
			})
			return
		}
		server, tagged := openOn(t, b, roce.InterfaceConfig{Driver: driver}), openOn(t, a, roce.InterfaceConfig{Driver: driver, Options: roce.Options{VLAN: 100}})
		ok(server.Listen(patient(t), ":7471", roce.ListenConfig{}))(t)
		_, err := tagged.Dial(within(t, 300*time.Millisecond), b.IP4.String()+":7471", roce.DialConfig{})
		wantErr(t, "Dial from a VLAN", err, context.DeadlineExceeded)
		if c := server.Counters(); c.RcvdPkts != 0 {
			t.Errorf("%d packets were taken", c.RcvdPkts)
		}
	})
}

// ownResolver counts the calls that the device of an interface makes to the program's resolver.
type ownResolver struct {
	roce.Neighbours
	resolved, closed int
}

func (r *ownResolver) Resolve(ctx context.Context, src, dst netip.Addr) (roce.Neighbour, error) {
	r.resolved++
	return r.Neighbours.Resolve(ctx, src, dst)
}

func (r *ownResolver) Close() error { r.closed++; return nil }

// TestInterfaceOptions: the device of an interface asks the program's resolver instead of the
// host, closes it once, and takes its keys from the program's source.
func TestInterfaceOptions(t *testing.T) {
	x, y := netlab.Pair(t, netlab.Config{})
	eachDriver(t, func(t *testing.T, driver string) {
		own := &ownResolver{Neighbours: roce.Neighbours{y.IP4: {2, 5: 9}}}
		drawn := 0
		d := openOn(t, x, roce.InterfaceConfig{Driver: driver, Options: roce.Options{Resolver: own, GUID: 7, Rand: func() uint64 { drawn++; return uint64(drawn) << 40 }}})
		a := roce.AHAttr{DGID: bth.GIDFrom(y.IP4), SGIDIndex: ofAddr(t, d, x.IP4)}
		ok(d.CreateAH(patient(t), a))(t)
		a.DGID = bth.GIDFrom(netip.MustParseAddr("192.0.2.99"))
		if _, err := d.CreateAH(patient(t), a); !errors.Is(err, syscall.EHOSTUNREACH) {
			t.Errorf("a peer that only the host knows: %v", err)
		}
		check(t, d.Close())
		if own.resolved != 2 || own.closed != 1 || drawn == 0 || d.Query().GUID != 7 {
			t.Errorf("resolved %d, closed %d, drawn %d, GUID %d", own.resolved, own.closed, drawn, d.Query().GUID)
		}
	})
}
