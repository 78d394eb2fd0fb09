package scenario_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/qp"
)

func groupGID(s string) roce.GID { return bth.GIDFrom(netip.MustParseAddr(s)) }

// groupAH makes the address handle of a group.
func (u *udEnd) groupAH(g roce.GID) *roce.AH {
	u.t.Helper()
	index := slices.IndexFunc(u.dev.GIDs(), func(own roce.GID) bool { return own.Is4() == g.Is4() })
	return ok(u.dev.CreateAH(u.t.Context(), roce.AHAttr{DGID: g, SGIDIndex: index}))(u.t)
}

// cast sends text to a group.
func (u *udEnd) cast(g roce.GID, text string) {
	u.t.Helper()
	u.send(u.groupAH(g), roce.QPNMulticast, testQKey, text)
}

// TestMulticast: each attached queue pair, and no other, gets one copy if state and Q_Key permit it, on whatever port the
// packet arrives.
func TestMulticast(t *testing.T) {
	for _, s := range steerings {
		t.Run(s.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				known := roce.Neighbours{}
				c := n.multi("10.0.0.1", 3, s.steer)
				c.Addrs, c.Resolver = append(c.Addrs, netip.MustParseAddr("fd00::1")), known
				d := n.open(c)
				c = n.config("10.0.0.2")
				c.Addrs, c.Resolver = append(c.Addrs, netip.MustParseAddr("fd00::2")), known
				from := newUD(t, n.open(c))
				for _, g := range []roce.GID{groupGID("239.1.2.3"), groupGID("ff0e::7")} {
					var in []*udEnd
					for i := range 5 {
						u := newUDOn(t, d, i%3, testQKey)
						check(t, u.qp.AttachMulticast(g))
						check(t, u.qp.AttachMulticast(g)) // once is enough
						u.recv()
						u.recv()
						in = append(in, u)
					}
					out, gone, otherKey, inInit := newUDOn(t, d, 1, testQKey), newUD(t, d), newUDOn(t, d, 2, 5), newUD(t, d)
					check(t, gone.qp.AttachMulticast(g))
					check(t, gone.qp.DetachMulticast(g))
					check(t, inInit.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
					check(t, inInit.qp.Init(0, testQKey))
					for _, u := range []*udEnd{otherKey, inInit} {
						check(t, u.qp.AttachMulticast(g))
					}
					for _, u := range []*udEnd{out, gone, otherKey, inInit} {
						u.recv()
					}
					before := d.Counters()
					from.cast(g, "to all of you")
					for _, u := range in {
						u.want(from, "to all of you")
						grh := ok(frame.ParseGRH(u.received()))(t)
						if grh.Dst != g || grh.Src.Is4() != g.Is4() || from.dev.GIDs()[0] != grh.Src && from.dev.GIDs()[1] != grh.Src {
							t.Errorf("GRH %+v", grh)
						}
					}
					synctest.Wait()
					for _, u := range append(in, out, gone, otherKey, inInit) {
						u.wantNothing()
					}
					after := d.Counters()
					if got := after.QKeyViolation - before.QKeyViolation; got != 1 {
						t.Errorf("%d Q_Key violations, want 1", got)
					}
					if got := after.WrongState - before.WrongState; got != 1 {
						t.Errorf("%d packets in the wrong state, want 1", got)
					}
					from.cast(groupGID("239.9.9.9"), "to nobody")
					synctest.Wait()
					if got := d.Counters().Drops.NotForUs - before.Drops.NotForUs; got != 1 {
						t.Errorf("%d packets not for us, want the one of another group", got)
					}
				}
			})
		})
	}
}

// TestMulticastLoopback: datagrams of a device to a group come back to its own attached queue pairs, including the sender,
// unless the sender blocks this.
func TestMulticastLoopback(t *testing.T) {
	for _, mode := range []string{"background", "bare", "polled"} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			n.bare = mode == "bare"
			c := n.config("10.0.0.1")
			c.Polled = mode == "polled"
			d := n.open(c)
			a, b, outside, far := newUD(t, d), newUD(t, d), newUD(t, d), newUD(t, n.device("10.0.0.2"))
			g := groupGID("239.1.2.3")
			for _, u := range []*udEnd{a, b, far} {
				check(t, u.qp.AttachMulticast(g))
			}
			for _, u := range []*udEnd{a, b, outside, far} {
				u.recv()
			}
			a.cast(g, "round")
			for _, u := range []*udEnd{a, b, far} {
				u.want(a, "round")
				if area := u.received()[:roce.GRHLen]; onesSum(area[20:]) != 0xFFFF {
					t.Errorf("the IPv4 header % x has a wrong checksum", area[20:])
				}
			}
			outside.wantNothing()
			if sent := d.Counters().Link.TxPackets; sent != 1 {
				t.Errorf("%d packets went through the port, want 1", sent)
			}

			quiet := newUD(t, d)
			quiet.qp = ok(quiet.pd.CreateQP(roce.QPConfig{Type: qp.UD, SendCQ: quiet.cq, NoMulticastLoopback: true}))(t)
			check(t, quiet.qp.Init(0, testQKey))
			check(t, quiet.qp.Ready(0))
			check(t, quiet.qp.AttachMulticast(g))
			for _, u := range []*udEnd{a, b, quiet, far} {
				u.recv()
			}
			quiet.cast(g, "for others")
			far.want(quiet, "for others")
			for _, u := range []*udEnd{a, b, quiet} {
				u.wantNothing()
			}
			a.cast(g, "for all")
			quiet.want(a, "for all")
		})
	}
	_, err := func() (*roce.QP, error) {
		d := newNetwork(t).device("10.0.0.1")
		return d.AllocPD().CreateQP(roce.QPConfig{SendCQ: ok(d.CreateCQ(1))(t), NoMulticastLoopback: true})
	}()
	wantErr(t, "an RC queue pair without multicast loopback", err, syscall.EINVAL)
}

// TestMulticastFlood: if the loopback queue inside the device is full, its own multicast datagrams wait and are not lost.
func TestMulticastFlood(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			c := n.config("10.0.0.1")
			c.Polled = polled
			d := n.open(c)
			a, b := newUD(t, d), newUD(t, d)
			g := groupGID("239.0.0.1")
			check(t, b.qp.AttachMulticast(g))
			ah := a.groupAH(g)
			const rounds, burst = 40, 100
			wrs := make([]roce.SendWR, burst)
			for i := range wrs {
				wrs[i] = roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, Inline: []byte("x"), AH: ah, RemoteQPN: roce.QPNMulticast, RemoteQKey: testQKey}
			}
			for range rounds {
				for range burst {
					b.recv()
				}
				ok(a.qp.PostSends(wrs))(t)
				for range burst {
					ok(a.cq.Next(t.Context()))(t)
					b.want(a, "x")
				}
			}
		})
	}
}

// TestMulticastErrors: the errno values of ibv_attach_mcast and ibv_detach_mcast.
func TestMulticastErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newNetwork(t).device("10.0.0.1")
		u, rc := newUD(t, d), newPeer(t, d, 10)
		g := groupGID("239.1.2.3")
		for _, tt := range []struct {
			name string
			err  error
			want error
		}{
			{"attach a unicast address", u.qp.AttachMulticast(d.GIDs()[0]), syscall.EINVAL},
			{"attach nothing", u.qp.AttachMulticast(roce.GID{}), syscall.EINVAL},
			{"attach an RC queue pair", rc.qp.AttachMulticast(g), syscall.EINVAL},
			{"detach what is not attached", u.qp.DetachMulticast(g), syscall.EINVAL},
			{"attach", u.qp.AttachMulticast(g), nil},
			{"attach again", u.qp.AttachMulticast(g), nil},
			{"detach from another group", u.qp.DetachMulticast(groupGID("239.1.2.4")), syscall.EINVAL},
			{"detach a unicast address", u.qp.DetachMulticast(d.GIDs()[0]), syscall.EINVAL},
			{"detach an RC queue pair", rc.qp.DetachMulticast(g), syscall.EINVAL},
			{"close while attached", u.qp.Close(), syscall.EBUSY},
			{"detach", u.qp.DetachMulticast(g), nil},
			{"detach again", u.qp.DetachMulticast(g), syscall.EINVAL},
			{"close", u.qp.Close(), nil},
			{"attach a closed queue pair", u.qp.AttachMulticast(g), net.ErrClosed},
			{"detach a closed queue pair", u.qp.DetachMulticast(g), net.ErrClosed},
		} {
			wantErr(t, tt.name, tt.err, tt.want)
		}
	})
}

// TestMulticastLimits: a group takes MaxMulticastQPs queue pairs, and a device
// MaxMulticastGroups groups.
func TestMulticastLimits(t *testing.T) {
	d := newNetwork(t).device("10.0.0.1")
	pd, queue, g := d.AllocPD(), ok(d.CreateCQ(1))(t), groupGID("239.1.2.3")
	ud := func() *roce.QP { return ok(pd.CreateQP(roce.QPConfig{Type: qp.UD, SendCQ: queue}))(t) }
	var last *roce.QP
	for range roce.MaxMulticastQPs {
		last = ud()
		check(t, last.AttachMulticast(g))
	}
	more := ud()
	wantErr(t, "one queue pair too many", more.AttachMulticast(g), syscall.ENOMEM)
	check(t, last.AttachMulticast(g)) // it is in already
	check(t, last.DetachMulticast(g))
	check(t, more.AttachMulticast(g))

	many := func(i int) roce.GID { return groupGID(fmt.Sprintf("ff0e::%x", i+1)) }
	for i := range roce.MaxMulticastGroups - 1 {
		check(t, more.AttachMulticast(many(i)))
	}
	wantErr(t, "one group too many", more.AttachMulticast(groupGID("239.1.2.4")), syscall.ENOMEM)
	check(t, more.AttachMulticast(many(0)))
	check(t, last.AttachMulticast(many(0)))
	check(t, more.DetachMulticast(many(1)))
	check(t, more.AttachMulticast(groupGID("239.1.2.4")))
}

// membership notes joins and leaves.
type membership struct {
	t    *testing.T
	mu   sync.Mutex
	in   []netip.Addr
	fail error
}

func (m *membership) Join(g netip.Addr) (func() error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	if slices.Contains(m.in, g) {
		m.t.Errorf("%v is joined twice", g)
	}
	m.in = append(m.in, g)
	return func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		i := slices.Index(m.in, g)
		if i < 0 {
			m.t.Errorf("%v is left twice", g)
			return nil
		}
		m.in = slices.Delete(m.in, i, i+1)
		return nil
	}, nil
}

func (m *membership) want(what string, groups ...string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var want []netip.Addr
	for _, g := range groups {
		want = append(want, netip.MustParseAddr(g))
	}
	if !slices.Equal(m.in, want) {
		m.t.Errorf("%s: in %v, want %v", what, m.in, want)
	}
}

// TestMembership: the host is in a group exactly while a queue pair is attached.
func TestMembership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		m := &membership{t: t}
		c := n.config("10.0.0.1")
		c.Membership = m
		d := n.open(c)
		a, b := newUD(t, d), newUD(t, d)
		g4, g6 := groupGID("239.1.2.3"), groupGID("ff0e::7")
		check(t, a.qp.AttachMulticast(g4))
		m.want("after the first", "239.1.2.3")
		check(t, a.qp.AttachMulticast(g4))
		check(t, b.qp.AttachMulticast(g4))
		check(t, b.qp.AttachMulticast(g6))
		m.want("after another", "239.1.2.3", "ff0e::7")
		check(t, a.qp.DetachMulticast(g4))
		m.want("with one left", "239.1.2.3", "ff0e::7")
		check(t, b.qp.DetachMulticast(g4))
		m.want("with none left", "ff0e::7")

		m.fail = syscall.ENOBUFS
		err := a.qp.AttachMulticast(g4)
		wantErr(t, "when the kernel allows no more", err, syscall.ENOMEM)
		wantErr(t, "when the kernel allows no more", err, syscall.ENOBUFS)
		m.fail = errors.New("no such luck")
		wantErr(t, "when the kernel fails", a.qp.AttachMulticast(g4), m.fail)
		wantErr(t, "what failed to attach", a.qp.DetachMulticast(g4), syscall.EINVAL)
		check(t, a.qp.Close())

		check(t, d.Close())
		m.want("after closing the device")
		wantErr(t, "attach on a closed device", b.qp.AttachMulticast(g6), net.ErrClosed)
		wantErr(t, "detach on a closed device", b.qp.DetachMulticast(g6), net.ErrClosed)
		check(t, b.qp.Close()) // attached no more
	})
}

// TestMulticastHostile: a wrong packet to a group is dropped.
func TestMulticastHostile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		u := newUD(t, n.device("10.0.0.1"))
		g := groupGID("239.1.2.3")
		check(t, u.qp.AttachMulticast(g))
		u.recv()
		a := newAttacker(n, u.dev)
		unicast := a.path("10.0.0.66")
		c := unicast.Config()
		c.Dst, c.DstMAC = g, frame.MAC{}
		multicast := ok(frame.NewPath(c))(t)
		const size = bth.BTHLen + bth.DETHLen + 4 + bth.ICRCLen
		put := func(op bth.Opcode, pkey bth.PKey, to bth.QPN) func([]byte) {
			return func(b []byte) {
				bth.PutBTH(b, op, 0, 0, pkey, to, 0)
				bth.PutDETH(b[bth.BTHLen:], testQKey, 0x66)
			}
		}
		good := put(bth.UDSendOnly, bth.DefaultPKey, roce.QPNMulticast)
		a.send(multicast, size, put(bth.UDSendOnly, bth.DefaultPKey, u.qp.Num())) // the group's address, a queue pair's number
		a.send(multicast, size, put(bth.UDSendOnly, bth.DefaultPKey, bth.QPNGSI))
		a.send(unicast, size, good) // the group's number, our address
		a.send(multicast, size, put(bth.UDSendOnly, 0x1234, roce.QPNMulticast))
		a.send(multicast, size, put(bth.RCSendOnly, bth.DefaultPKey, roce.QPNMulticast))
		a.send(multicast, size, good)
		synctest.Wait()
		wc := ok(u.cq.Next(t.Context()))(t)
		if wc.SrcQPN != 0x66 || wc.ByteLen != roce.GRHLen+4 {
			t.Errorf("completion %+v", wc)
		}
		u.wantNothing()
		got := u.dev.Counters()
		if d := got.Drops; d.NoQP != 3 || d.PKey != 1 || d.NotForUs != 0 || got.WrongTransport != 1 {
			t.Errorf("drops %+v, %d of another transport", d, got.WrongTransport)
		}
	})
}

// TestMulticastChurn attaches and detaches while datagrams come in.
func TestMulticastChurn(t *testing.T) {
	n := newNetwork(t)
	c := n.multi("10.0.0.1", 2, destQPN)
	c.Membership = &membership{t: t}
	d := n.open(c)
	from := newUD(t, n.device("10.0.0.2"))
	g := groupGID("239.1.2.3")
	ah := from.groupAH(g)
	stop := make(chan struct{})
	var senders, members sync.WaitGroup
	senders.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				from.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("x"), AH: ah, RemoteQPN: roce.QPNMulticast, RemoteQKey: testQKey})
			}
		}
	})
	for i := range 4 {
		u := newUDOn(t, d, i%2, testQKey)
		members.Go(func() {
			for range 200 {
				if err := u.qp.AttachMulticast(g); err != nil {
					t.Error(err)
				}
				if err := u.qp.DetachMulticast(g); err != nil {
					t.Error(err)
				}
			}
			if err := u.qp.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	members.Wait()
	close(stop)
	senders.Wait()
}

// TestMulticastAllocations: in steady state a datagram to a group allocates
// nothing, however many get it, also inside the device and between its shards.
func TestMulticastAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	n := newNetwork(t)
	c := n.multi("10.0.0.1", 2, func([]byte) int { return 0 })
	c.Polled = true
	d := n.open(c)
	c = n.config("10.0.0.2")
	c.Polled = true
	far := n.open(c)
	g := groupGID("239.1.2.3")
	ends := []*udEnd{newUDOn(t, d, 0, testQKey), newUDOn(t, d, 1, testQKey), newUDOn(t, d, 1, testQKey), newUD(t, far)}
	for _, u := range ends {
		check(t, u.qp.AttachMulticast(g))
	}
	from := ends[0]
	recv := make([]roce.RecvWR, len(ends))
	for i, u := range ends {
		recv[i].SG = []roce.SGE{u.mr.SGE(udHalf, udHalf)}
	}
	wr := roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{from.mr.SGE(0, 100)}, AH: from.groupAH(g), RemoteQPN: roce.QPNMulticast, RemoteQKey: testQKey}
	var wcs [4]roce.WC
	round := func() {
		for i, u := range ends {
			check(t, u.qp.PostRecv(&recv[i]))
		}
		check(t, from.qp.PostSend(&wr))
		for _, u := range ends {
			for u.cq.Poll(wcs[:]) == 0 {
			}
		}
	}
	allocs := 1.0
	for try := 0; try < 10 && allocs > 0; try++ {
		allocs = testing.AllocsPerRun(50, round)
	}
	if allocs > 0 {
		t.Errorf("%v allocations a datagram", allocs)
	}
}
