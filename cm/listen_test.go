package cm

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
)

func TestListenerMatch(t *testing.T) {
	a := netip.MustParseAddr
	type dst string
	for _, tt := range []struct {
		name  string
		p     ListenParam
		takes map[dst]bool
	}{
		{"any", ListenParam{}, map[dst]bool{"10.0.0.1": true, "fd00::1": true, "": false}},
		{"::", ListenParam{Addr: a("::")}, map[dst]bool{"10.0.0.1": true, "fd00::1": true, "": false}},
		{":: v6 only", ListenParam{Addr: a("::"), V6Only: true}, map[dst]bool{"10.0.0.1": false, "fd00::1": true}},
		{"0.0.0.0", ListenParam{Addr: a("0.0.0.0")}, map[dst]bool{"10.0.0.1": true, "fd00::1": false}},
		{"IPv4", ListenParam{Addr: a("10.0.0.1")}, map[dst]bool{"10.0.0.1": true, "10.0.0.9": false, "fd00::1": false}},
		{"mapped", ListenParam{Addr: a("::ffff:10.0.0.1")}, map[dst]bool{"10.0.0.1": true, "10.0.0.9": false}},
		{"IPv6", ListenParam{Addr: a("fe80::1%eth0")}, map[dst]bool{"fe80::1": true, "fe80::2": false}},
		{"no header", ListenParam{NoIPHeader: true}, map[dst]bool{"10.0.0.1": true, "": true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for to, want := range tt.takes {
				d := newDialogue(t)
				tt.p.ServiceID = service
				l, err := d.m.Listen(tt.p)
				d.must(err)
				req, src, dst := peerREQ(), peerAddr, ownAddr
				if to == "" {
					req.Private = [92]byte{1, 2, 3}
				} else {
					if dst = a(string(to)); dst.Is6() {
						src = a("fd00::2")
					}
					req.Private = ipPrivate(src, dst, 1, "")
				}
				req.Primary.LocalGID = bth.GIDFrom(src)
				d.recvAt(bth.GIDFrom(src), bth.GIDFrom(dst), req)
				if !want {
					o, _ := d.m.NextMAD()
					got, err := DecodeMAD(o.MAD[:])
					d.must(err)
					if rej, ok := got.(*REJ); !ok || rej.Reason != RejectConsumer || o.To.Addr() != src {
						t.Errorf("to %q: sent %v to %v", to, got, o.To)
					}
					d.silent()
					continue
				}
				e := d.event(ConnectRequest)
				n := REQUserLen
				if tt.p.NoIPHeader {
					n = REQPrivateLen
				}
				if e.Listener != l || len(e.Private) != n || e.Conn.LocalAddr().IsValid() == tt.p.NoIPHeader ||
					e.Conn.RemoteAddr().IsValid() == tt.p.NoIPHeader {
					t.Errorf("to %q: event %v, %d bytes, %v", to, e, len(e.Private), e.Conn.LocalAddr())
				}
			}
		})
	}
	t.Run("loopback", func(t *testing.T) {
		d := newDialogue(t)
		_, err := d.m.Listen(ListenParam{ServiceID: service})
		d.must(err)
		req := peerREQ()
		req.Private = ipPrivate(a("127.0.0.1"), a("127.0.0.2"), 1, "")
		req.Primary.LocalGID = gid("127.0.0.1")
		d.recvAt(gid("127.0.0.1"), gid("127.0.0.2"), req)
		d.event(ConnectRequest)
	})
	t.Run("UC", func(t *testing.T) {
		d := newDialogue(t)
		_, err := d.m.Listen(ListenParam{ServiceID: Service(PortSpaceIB, 5)})
		d.must(err)
		req := peerREQ()
		req.ServiceID, req.Transport = Service(PortSpaceIB, 5), UC
		d.recv(req)
		if e := d.event(ConnectRequest); e.Conn.Offer().Transport != UC {
			t.Error(e)
		}
	})
	t.Run("not of rdma_cm", func(t *testing.T) {
		d := newDialogue(t)
		_, err := d.m.Listen(ListenParam{ServiceID: 0x1000000000000001})
		d.must(err)
		req := peerREQ()
		req.ServiceID = 0x1000000000000001
		d.recv(req)
		if e := d.event(ConnectRequest); len(e.Private) != REQPrivateLen {
			t.Errorf("%d bytes of private data", len(e.Private))
		}
	})
}

func TestListenTwice(t *testing.T) {
	a := netip.MustParseAddr
	for _, tt := range []struct {
		one, two ListenParam
		clash    bool
	}{
		{ListenParam{}, ListenParam{}, true},
		{ListenParam{}, ListenParam{Addr: a("10.0.0.1")}, true},
		{ListenParam{Addr: a("10.0.0.1")}, ListenParam{}, true},
		{ListenParam{Addr: a("10.0.0.1")}, ListenParam{Addr: a("10.0.0.1")}, true},
		{ListenParam{Addr: a("10.0.0.1")}, ListenParam{Addr: a("10.0.0.9")}, false},
		{ListenParam{Addr: a("0.0.0.0")}, ListenParam{Addr: a("fd00::1")}, false},
		{ListenParam{Addr: a("0.0.0.0")}, ListenParam{V6Only: true}, false},
		{ListenParam{Addr: a("0.0.0.0")}, ListenParam{Addr: a("10.0.0.1")}, true},
		{ListenParam{Addr: a("::"), V6Only: true}, ListenParam{Addr: a("10.0.0.1")}, false},
		{ListenParam{NoIPHeader: true}, ListenParam{NoIPHeader: true}, true},
		{ListenParam{NoIPHeader: true}, ListenParam{}, false},
	} {
		d := newDialogue(t)
		tt.one.ServiceID, tt.two.ServiceID = service, service
		l, err := d.m.Listen(tt.one)
		d.must(err)
		_, err = d.m.Listen(tt.two)
		if tt.clash {
			wantErrno(t, err, ErrInUse)
			wantErrno(t, err, syscall.EADDRINUSE)
			l.Close(0)
			l.Close(0)
			_, err = d.m.Listen(tt.two)
		}
		if err != nil {
			t.Errorf("%+v and %+v: %v", tt.one, tt.two, err)
		}
		tt.two.ServiceID++
		if _, err = d.m.Listen(tt.two); err != nil {
			t.Errorf("another port: %v", err)
		}
	}
	d := newDialogue(t)
	_, err := d.m.Listen(ListenParam{})
	wantErrno(t, err, syscall.EINVAL)
	_, err = d.m.Listen(ListenParam{ServiceID: 1, Backlog: -1})
	wantErrno(t, err, syscall.EINVAL)
}

// nth returns a REQ of the n-th of many peers on one node.
func nth(n int) *REQ {
	req := peerREQ()
	req.LocalID += CommID(n)
	req.QPN += bth.QPN(n)
	return req
}

// TestBacklog: requests beyond the backlog are dropped, not refused, and
// accepted later when there is room.
func TestBacklog(t *testing.T) {
	d := newDialogue(t)
	l, err := d.m.Listen(ListenParam{ServiceID: service, Backlog: 2})
	d.must(err)
	for n := range 5 {
		d.recv(nth(n))
	}
	if l.Pending() != 2 || d.m.Len() != 2 || d.m.Counters().RequestsFull != 3 {
		t.Errorf("pending %d, len %d, dropped %d", l.Pending(), d.m.Len(), d.m.Counters().RequestsFull)
	}
	first, second := d.event(ConnectRequest).Conn, d.event(ConnectRequest).Conn
	d.silent()
	d.recv(nth(2))
	d.silent()
	d.must(first.Accept(d.now, acceptParam()))
	d.m.NextMAD()
	d.recv(nth(2))
	d.event(ConnectRequest)
	d.must(second.Reject(d.now, RejectConsumer, nil))
	d.m.NextMAD()
	d.recv(nth(3))
	d.event(ConnectRequest)
	d.checkTables()
}

func TestHalfOpenLimit(t *testing.T) {
	d := newDialogue(t, func(c *Config) { c.MaxHalfOpen = 3 })
	d.m.Listen(ListenParam{ServiceID: service})
	for n := range 5 {
		d.recv(nth(n))
		if e, ok := d.m.NextEvent(); ok {
			d.must(e.Conn.Accept(d.now, acceptParam()))
		}
	}
	if d.m.Len() != 3 {
		t.Errorf("%d connections", d.m.Len())
	}
	for {
		if _, ok := d.m.NextMAD(); !ok {
			break
		}
	}
	for _, c := range d.m.byLocal { // one is confirmed
		d.recv(&RTU{LocalID: c.RemoteID(), RemoteID: c.LocalID()})
		break
	}
	d.event(Established)
	d.recv(nth(7))
	d.event(ConnectRequest)
	d.checkTables()
}

// TestREQFlood: the state that a peer can cause in the Manager is bounded, even if the
// owner takes neither MADs nor events. Afterwards the Manager works as before.
func TestREQFlood(t *testing.T) {
	d := newDialogue(t, func(c *Config) { c.MaxConns, c.MaxReplies = 100, 10 })
	d.m.Listen(ListenParam{ServiceID: service})
	for n := range 5000 {
		d.recv(nth(n))                                                                                               // new
		d.recv(nth(n))                                                                                               // duplicate
		d.recv(&REJ{RemoteID: 0, LocalID: nth(n).LocalID, Reason: RejectTimeout, Info: [72]byte{7: byte(peerGUID)}}) // and gone
		other := nth(n)
		other.ServiceID++
		d.recv(other)
		d.recv(&DREQ{LocalID: CommID(n), RemoteID: 77})
		if n := d.m.Len() + d.m.events.Len() + d.m.out.Len(); n > 110 {
			t.Fatalf("%d things remembered", n)
		}
	}
	if d.m.Counters().RepliesDropped == 0 || d.m.Counters().RequestsFull == 0 {
		t.Errorf("%+v", d.m.Counters())
	}
	// The peer has withdrawn all requests, so the owner gets no event.
	for {
		if _, ok := d.m.NextMAD(); !ok {
			break
		}
	}
	d.silent()
	d.forgotten()
	d.recv(nth(1))
	d.event(ConnectRequest)
}

func TestListenerClose(t *testing.T) {
	d := newDialogue(t)
	l, _ := d.m.Listen(ListenParam{ServiceID: service})
	d.recv(nth(0))
	taken := d.event(ConnectRequest).Conn
	d.recv(nth(1))
	l.Close(d.now)
	d.send(&REJ{Header: Header{TID: peerTID}, RemoteID: peerID + 1, Of: OfREQ, Reason: RejectConsumer})
	d.silent()
	d.state(taken, StateMRAReqSent)
	d.must(taken.Accept(d.now, acceptParam()))
	d.send(ownREP())
	d.recv(nth(2))
	d.send(&REJ{Header: Header{TID: peerTID}, RemoteID: peerID + 2, Of: OfREQ, Reason: RejectInvalidServiceID})
	d.finish(taken)
	if len(d.m.listeners) != 0 {
		t.Error("listener remains")
	}
}

// TestListenerCloseOneOfTwo: closing one listener of a service does not affect the other one.
func TestListenerCloseOneOfTwo(t *testing.T) {
	d := newDialogue(t)
	l, err := d.m.Listen(ListenParam{ServiceID: service, Addr: netip.MustParseAddr("10.0.0.9")})
	d.must(err)
	other, err := d.m.Listen(ListenParam{ServiceID: service, Addr: ownAddr})
	d.must(err)
	l.Close(d.now)
	d.recv(peerREQ())
	if e := d.event(ConnectRequest); e.Listener != other {
		t.Error(e)
	}
	d.must(second(d.m.Listen(ListenParam{ServiceID: service, Addr: netip.MustParseAddr("10.0.0.9")})))
}

func second[T any](_ T, err error) error { return err }

func TestTimerHeap(t *testing.T) {
	d := newDialogue(t, func(c *Config) { c.MaxConns = 1 << 20 })
	var conns []*Conn
	for i := range 2000 {
		d.now = d.now.Add(time.Duration(i*7919%1000) * time.Microsecond)
		c, err := d.m.Connect(d.now, connectParam())
		d.must(err)
		conns = append(conns, c)
	}
	d.checkTables()
	for i, c := range conns {
		if i%3 == 0 {
			c.Destroy(d.now)
		}
	}
	d.checkTables()
	last := d.now
	for n := 0; n < 5000; n++ {
		next := d.m.NextTimeout()
		if next.Before(last) {
			t.Fatalf("timer %v after %v", next, last)
		}
		last = next
		d.m.HandleTimeout(next)
	}
	d.checkTables()
}
