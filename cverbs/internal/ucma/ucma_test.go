package ucma

import (
	"bytes"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/verbs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/rdmacm"
)

const (
	tcp = 0x0106
	udp = 0x0111
	ib  = 0x013F

	rc = 2
	uc = 3
	ud = 4

	initState = 1
	rtr       = 2
	rts       = 3
)

// side is the connection manager of a process, with one channel.
type side struct {
	*Manager
	t       *testing.T
	channel abi.Handle
	pending atomic.Int64 // number of events, from notify
}

// sides makes processes on a network, one for each address.
func sides(t *testing.T, addrs ...string) (all []*side) {
	t.Helper()
	hub := mem.NewHub(mem.Config{MTU: 4200})
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		port, err := hub.Port(a, roce.DerivedMAC(addr))
		if err != nil {
			t.Fatal(err)
		}
		dev, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{addr}})
		if err != nil {
			t.Fatal(err)
		}
		s := &side{t: t, Manager: New(func() ([]Device, error) { return []Device{{dev, "roce7"}}, nil }, nil)}
		s.channel = s.newChannel(&s.pending)
		t.Cleanup(func() {
			s.host.Close()
			dev.Close()
		})
		all = append(all, s)
	}
	return all
}

func (s *side) newChannel(pending *atomic.Int64) abi.Handle {
	s.t.Helper()
	h, err := s.CreateChannel(func(n int) { pending.Add(int64(n)) })
	s.check(err)
	return h
}

func (s *side) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) id(cookie uint64, ps, typ uint32) abi.Handle {
	s.t.Helper()
	h, err := s.CreateID(s.channel, cookie, ps, typ)
	s.check(err)
	return h
}

// event takes the next event, which must have the type want and the cookie.
func (s *side) event(want rdmacm.EventType, cookie uint64) *abi.CMEvent {
	s.t.Helper()
	synctest.Wait()
	ev := new(abi.CMEvent)
	if err := s.NextEvent(s.channel, ev); err != nil {
		s.t.Fatalf("%v, want %v", err, want)
	}
	s.pending.Add(-1)
	if ev.Type != uint32(want) || ev.Cookie != cookie {
		s.t.Fatalf("event %v of %#x, status %d; want %v of %#x", rdmacm.EventType(ev.Type), ev.Cookie, ev.Status, want, cookie)
	}
	return ev
}

// none checks that there is no event.
func (s *side) none() {
	s.t.Helper()
	synctest.Wait()
	ev := new(abi.CMEvent)
	if err := s.NextEvent(s.channel, ev); err != syscall.EAGAIN || s.pending.Load() != 0 {
		s.t.Errorf("%d events, the next %v: %v", s.pending.Load(), rdmacm.EventType(ev.Type), err)
	}
}

func at(s string) *abi.CMAddr {
	a := abi.AddrOf(netip.MustParseAddrPort(s))
	return &a
}

// resolved makes an identifier that is ready to connect.
func (s *side) resolved(cookie uint64, ps, typ uint32, to string) abi.Handle {
	s.t.Helper()
	id := s.id(cookie, ps, typ)
	s.check(s.ResolveAddr(id, nil, at(to), 1000))
	s.event(rdmacm.AddrResolved, cookie)
	s.check(s.ResolveRoute(id, 1000))
	s.event(rdmacm.RouteResolved, cookie)
	return id
}

func (s *side) listening(cookie uint64, ps uint32, addr string) abi.Handle {
	s.t.Helper()
	id := s.id(cookie, ps, 0)
	s.check(s.BindAddr(id, at(addr)))
	s.check(s.Listen(id, 0))
	return id
}

func (s *side) attr(id abi.Handle, state uint32) (abi.QPAttr, uint32) {
	s.t.Helper()
	a, mask := abi.QPAttr{State: state}, uint32(0)
	s.check(s.InitQPAttr(id, &a, &mask))
	if a.State != state {
		s.t.Errorf("state %d, want %d", a.State, state)
	}
	return a, mask
}

func params(qpn uint32, private string) *abi.CMParam {
	p := &abi.CMParam{QPN: qpn, ResponderResources: 1, InitiatorDepth: 2, RetryCount: 5, RNRRetryCount: 6}
	if private != "" {
		b := []byte(private)
		p.PrivateData, p.PrivateLen = &b[0], uint8(len(b))
	}
	return p
}

// TestConnection: both ends connect queue pairs that the manager does not know.
func TestConnection(t *testing.T) {
	for name, typ := range map[string]uint32{"RC": rc, "UC": uc} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				both := sides(t, "10.0.0.1", "10.0.0.2")
				server, client := both[0], both[1]
				ps := uint32(tcp)
				if typ == uc {
					ps = ib
				}
				listener := server.listening(0x1, ps, "10.0.0.1:7471")
				id := client.resolved(0x2, ps, typ, "10.0.0.1:7471")
				client.check(client.Connect(id, params(77, "hello")))
				request := server.event(rdmacm.ConnectRequest, 0x1)
				if request.Child == 0 || request.QPN != 77 || request.InitiatorDepth != 1 || request.ResponderResources != 2 ||
					request.RNRRetryCount != 6 || !bytes.HasPrefix(request.PrivateData[:], []byte("hello\x00")) || request.PrivateLen != 56 {
					t.Errorf("request %+v", request)
				}
				child := request.Child
				server.check(server.SetCookie(child, 0x3))
				if a, _ := server.attr(child, rtr); a.DestQPN != 77 || a.AH.DGID != netip.MustParseAddr("::ffff:10.0.0.2").As16() || a.AH.IsGlobal != 1 {
					t.Errorf("to RTR with %+v", a)
				}
				server.check(server.Accept(child, params(78, "welcome")))
				reply := client.event(rdmacm.ConnectResponse, 0x2)
				if reply.QPN != 78 || reply.PrivateLen != 196 || !bytes.HasPrefix(reply.PrivateData[:], []byte("welcome\x00")) {
					t.Errorf("answer %+v", reply)
				}
				mine, mask := client.attr(id, rtr)
				theirs, _ := server.attr(child, rts)
				if mine.DestQPN != 78 || mine.RQPSN != theirs.SQPSN || mask&uint32(roce.AttrDestQPN) == 0 || mask&^translateMask != 0 {
					t.Errorf("to RTR with %+v, mask %#x; the peer to RTS with %+v", mine, mask, theirs)
				}
				if mine, _ := client.attr(id, rts); typ == rc && mine.RetryCnt != 5 {
					t.Errorf("to RTS with %+v", mine)
				}
				client.check(client.Establish(id))
				server.event(rdmacm.Established, 0x3)
				var info abi.CMInfo
				client.check(client.QueryID(id, &info))
				if string(bytes.TrimRight(info.Device[:], "\x00")) != "roce7" || info.Dst != *at("10.0.0.1:7471") || info.Src.Port == 0 || info.QPType != typ {
					t.Errorf("bound to %+v", info)
				}
				client.check(client.Disconnect(id))
				server.event(rdmacm.Disconnected, 0x3)
				server.check(server.Disconnect(child))
				client.event(rdmacm.Disconnected, 0x2)
				for s, h := range map[*side][]abi.Handle{server: {listener, child}, client: {id}} {
					for _, h := range h {
						s.check(s.DestroyID(h))
					}
					s.none()
				}
			})
		})
	}
}

// translateMask are the attributes that the verbs have.
const translateMask = 1<<21 - 1

// TestDatagrams: a client requests the address of a UD queue pair and gets it.
func TestDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := sides(t, "10.0.0.1", "10.0.0.2")
		server, client := both[0], both[1]
		server.listening(0x1, udp, "10.0.0.1:7174")
		id := client.resolved(0x2, udp, ud, "10.0.0.1:7174")
		client.check(client.Connect(id, params(0, "ask")))
		request := server.event(rdmacm.ConnectRequest, 0x1)
		if request.IsUD != 1 || !bytes.HasPrefix(request.PrivateData[:], []byte("ask\x00")) {
			t.Errorf("request %+v", request)
		}
		server.check(server.Accept(request.Child, params(88, "given")))
		server.none()
		reply := client.event(rdmacm.Established, 0x2)
		if reply.IsUD != 1 || reply.QPN != 88 || reply.QKey != uint32(rdmacm.UDPQKey) || reply.AH.DGID != netip.MustParseAddr("::ffff:10.0.0.1").As16() {
			t.Errorf("answer %+v", reply)
		}
		if a, mask := client.attr(id, initState); a.QKey != uint32(rdmacm.UDPQKey) || mask&uint32(roce.AttrQKey) == 0 {
			t.Errorf("to INIT with %+v, mask %#x", a, mask)
		}
	})
}

// TestGroups: the events of a group come with its cookie.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sides(t, "10.0.0.1")[0]
		id := s.id(0x1, udp, ud)
		s.check(s.BindAddr(id, at("10.0.0.1:0")))
		s.check(s.Join(id, at("239.1.2.3:0"), false, 0x55))
		ev := s.event(rdmacm.MulticastJoin, 0x1)
		if ev.Group != 0x55 || ev.IsUD != 1 || ev.QPN != 0xFFFFFF || ev.AH.DGID != netip.MustParseAddr("::ffff:239.1.2.3").As16() {
			t.Errorf("joined: %+v", ev)
		}
		s.check(s.Leave(id, at("239.1.2.3:0")))
		if err := s.Leave(id, at("239.1.2.3:0")); verbs.Errno(err) != syscall.EADDRNOTAVAIL {
			t.Errorf("left twice: %v", err)
		}
		s.none()
	})
}

// TestDropped: destroying an identifier drops its events and rejects its requests.
func TestDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := sides(t, "10.0.0.1", "10.0.0.2")
		server, client := both[0], both[1]
		listener := server.listening(0x1, tcp, "10.0.0.1:7471")
		id := client.resolved(0x2, tcp, rc, "10.0.0.1:7471")
		client.check(client.Connect(id, params(77, "")))
		synctest.Wait()
		if n := server.pending.Load(); n != 1 {
			t.Errorf("%d events of a request", n)
		}
		server.check(server.DestroyID(listener))
		server.none()
		if ev := client.event(rdmacm.Rejected, 0x2); ev.Status != 28 {
			t.Errorf("status %d", ev.Status)
		}
		var elsewhere atomic.Int64
		other := client.newChannel(&elsewhere)
		client.check(client.ResolveAddr(client.id(0x3, tcp, rc), nil, at("10.0.0.1:1"), 1000))
		moved := client.id(0x4, tcp, rc)
		client.check(client.ResolveAddr(moved, nil, at("10.0.0.1:1"), 1000))
		synctest.Wait()
		client.check(client.MigrateID(moved, other))
		if elsewhere.Load() != 1 {
			t.Errorf("%d events in the other channel", elsewhere.Load())
		}
		client.event(rdmacm.AddrResolved, 0x3)
		client.none()
		client.check(client.DestroyChannel(other))
	})
}

// TestBadHandles: all calls refuse a handle that does not exist, is of another kind, or was freed.
func TestBadHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sides(t, "10.0.0.1")[0]
		freed := s.id(0, tcp, 0)
		s.check(s.DestroyID(freed))
		gone := s.newChannel(new(atomic.Int64))
		s.check(s.DestroyChannel(gone))
		live := s.id(0, tcp, 0)
		ids := map[string]func(abi.Handle) error{
			"set cookie":    func(h abi.Handle) error { return s.SetCookie(h, 0) },
			"migrate":       func(h abi.Handle) error { return s.MigrateID(h, s.channel) },
			"destroy":       s.DestroyID,
			"query":         func(h abi.Handle) error { return s.QueryID(h, new(abi.CMInfo)) },
			"option":        func(h abi.Handle) error { return s.SetOption(h, abi.CMTOS, 0) },
			"bind":          func(h abi.Handle) error { return s.BindAddr(h, at("10.0.0.1:0")) },
			"resolve addr":  func(h abi.Handle) error { return s.ResolveAddr(h, nil, at("10.0.0.1:1"), 1) },
			"resolve route": func(h abi.Handle) error { return s.ResolveRoute(h, 1) },
			"listen":        func(h abi.Handle) error { return s.Listen(h, 0) },
			"connect":       func(h abi.Handle) error { return s.Connect(h, params(1, "")) },
			"accept":        func(h abi.Handle) error { return s.Accept(h, params(1, "")) },
			"reject":        func(h abi.Handle) error { return s.Reject(h, 28, nil, 0) },
			"establish":     s.Establish,
			"notify":        func(h abi.Handle) error { return s.Notify(h, uint32(roce.EventCommEst)) },
			"disconnect":    s.Disconnect,
			"init qp attr":  func(h abi.Handle) error { return s.InitQPAttr(h, &abi.QPAttr{State: rtr}, new(uint32)) },
			"join":          func(h abi.Handle) error { return s.Join(h, at("239.1.2.3:0"), false, 0) },
			"leave":         func(h abi.Handle) error { return s.Leave(h, at("239.1.2.3:0")) },
		}
		for name, call := range ids {
			for _, h := range []abi.Handle{0, freed, s.channel, 0xFFFFFFFF} {
				if err := call(h); verbs.Errno(err) != syscall.EINVAL {
					t.Errorf("%s of %#x: %v", name, h, err)
				}
			}
		}
		for _, h := range []abi.Handle{0, gone, live} {
			_, err := s.CreateID(h, 0, tcp, 0)
			for name, err := range map[string]error{"create": err, "migrate to": s.MigrateID(live, h), "next event": s.NextEvent(h, new(abi.CMEvent)),
				"destroy channel": s.DestroyChannel(h)} {
				if verbs.Errno(err) != syscall.EINVAL {
					t.Errorf("%s %#x: %v", name, h, err)
				}
			}
		}
		for _, c := range []struct{ ps, typ uint32 }{{0, 0}, {0x10106, 0}, {tcp, uc}, {udp, rc}, {tcp, 0x102}} {
			if _, err := s.CreateID(s.channel, 0, c.ps, c.typ); verbs.Errno(err) != syscall.EINVAL {
				t.Errorf("port space %#x, type %d: %v", c.ps, c.typ, err)
			}
		}
		if err := s.Reject(live, 3, nil, 0); err != syscall.EINVAL {
			t.Errorf("reason 3: %v", err)
		}
		if err := s.SetOption(live, 99, 0); err != syscall.ENOSYS {
			t.Errorf("option 99: %v", err)
		}
	})
}
