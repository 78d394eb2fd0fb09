package cm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/mono"
)

// stage is two Managers and a network with one fault for one kind of
// message. Both owners answer at once, unless the test makes them wait.
type stage struct {
	*pairUp
	t        testing.TB
	fault    func(o Out, nth int) (copies int) // 1: delivered; nth counts from 1 for each kind
	seen     map[Attribute]int
	kept     []Out // every datagram that was sent, to be repeated later
	hesitate map[EventKind]time.Duration
	thoughts []thought
	told     map[*Manager][]Event
}

type thought struct {
	at mono.Time
	do func()
}

func newStage(t testing.TB) *stage {
	s := &stage{pairUp: newPair(t), t: t, seen: map[Attribute]int{}, hesitate: map[EventKind]time.Duration{}, told: map[*Manager][]Event{}}
	if _, err := s.b.Listen(ListenParam{ServiceID: udp}); err != nil {
		t.Fatal(err)
	}
	return s
}

func attrOf(o Out) Attribute { return Attribute(be16(o.MAD[16:])) }

// run delivers messages and handles events and timers for a time.
func (s *stage) run(d time.Duration) {
	s.t.Helper()
	end := s.now.Add(d)
	for {
		s.now = min(s.now, end)
		for s.turn() {
		}
		next := min(s.a.NextTimeout(), s.b.NextTimeout())
		i := -1
		for j, th := range s.thoughts {
			if th.at <= next {
				next, i = th.at, j
			}
		}
		if next > end {
			s.now = end
			return
		}
		s.now = max(s.now, next)
		if i >= 0 {
			do := s.thoughts[i].do
			s.thoughts = append(s.thoughts[:i], s.thoughts[i+1:]...)
			do()
			continue
		}
		s.a.HandleTimeout(s.now)
		s.b.HandleTimeout(s.now)
	}
}

func (s *stage) turn() (busy bool) {
	for _, m := range []*Manager{s.a, s.b} {
		to := s.a
		if m == s.a {
			to = s.b
		}
		for o, ok := m.NextMAD(); ok; o, ok = m.NextMAD() {
			busy = true
			a := attrOf(o)
			s.seen[a]++
			s.kept = append(s.kept, o)
			copies := 1
			if s.fault != nil {
				copies = s.fault(o, s.seen[a])
			}
			for range copies {
				to.HandleMAD(s.now, o.From, o.To, o.MAD[:])
			}
		}
		for e, ok := m.NextEvent(); ok; e, ok = m.NextEvent() {
			busy = true
			s.told[m] = append(s.told[m], e)
			if d := s.hesitate[e.Kind]; d > 0 {
				s.thoughts = append(s.thoughts, thought{s.now.Add(d), func() { s.answer(e) }})
			} else {
				s.answer(e)
			}
		}
		if err := m.check(); err != nil {
			s.t.Fatal(err)
		}
	}
	return busy
}

// answer answers an event as a cooperative owner does. It ignores errors, because the answer may be
// too late.
func (s *stage) answer(e Event) {
	switch e.Kind {
	case ConnectRequest:
		p := acceptParam()
		s.qpn++
		p.QPN = s.qpn
		e.Conn.Accept(s.now, p)
	case ConnectResponse:
		e.Conn.ReadyToUse(s.now, nil)
	case DisconnectRequest:
		e.Conn.Disconnect(s.now, nil)
	case AlternateRequest:
		e.Conn.AnswerAlternate(s.now, AlternateAnswer{})
	case ServiceRequest:
		e.Inquiry.Accept(1, 0, nil)
	}
}

// last returns the last event of a kind on a side, and the number of such events.
func (s *stage) last(m *Manager, k EventKind) (e Event, n int) {
	for _, x := range s.told[m] {
		if x.Kind == k {
			e, n = x, n+1
		}
	}
	return e, n
}

// over checks that neither Manager keeps anything.
func (s *stage) over() {
	s.t.Helper()
	for i, m := range []*Manager{s.a, s.b} {
		if n := m.Len() + len(m.byRemote) + len(m.byQPN) + len(m.timers) + m.halfOpen.n + m.events.Len(); n != 0 {
			s.t.Errorf("side %d: %d things left over", i, n)
		}
	}
}

// life runs a whole connection, with every kind of message but MRA and REJ:
// handshake, an alternate path, the end, and a service lookup.
func (s *stage) life() (c *Conn, q *Query) {
	s.t.Helper()
	c = s.connect(s.t, 7)
	q, err := s.a.Resolve(s.now, resolveParam())
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(10 * time.Minute)
	c.LoadAlternate(s.now, altPath(), nil)
	s.run(10 * time.Minute)
	c.Disconnect(s.now, nil)
	s.run(10 * time.Minute)
	return c, q
}

var lifeMessages = []Attribute{AttrREQ, AttrREP, AttrRTU, AttrDREQ, AttrDREP, AttrSIDRREQ, AttrSIDRREP, AttrLAP, AttrAPR}

// TestEachMessageLost: if any message is lost a few times, everything only takes
// longer. If it is always lost, both sides get an event, and no Manager keeps anything.
func TestEachMessageLost(t *testing.T) {
	for _, a := range lifeMessages {
		for _, times := range []int{1, 3, 1000} {
			t.Run(fmt.Sprintf("%v %d", a, times), func(t *testing.T) {
				s := newStage(t)
				s.fault = func(o Out, nth int) int { return one(attrOf(o) != a || nth > times) }
				s.life()
				if s.seen[a] < 2 {
					t.Fatalf("%v was sent %d times", a, s.seen[a])
				}
				if a == AttrDREQ && times > 100 { // without DREQs the peer would notice the end only by its data
					for _, c := range s.b.byLocal {
						c.Disconnect(s.now, nil)
					}
					s.run(10 * time.Minute)
				}
				s.over()
				for _, want := range []struct {
					m     *Manager
					kind  EventKind
					needs []Attribute
				}{
					{s.b, ConnectRequest, []Attribute{AttrREQ}}, {s.a, ConnectResponse, []Attribute{AttrREQ, AttrREP}},
					{s.b, Established, []Attribute{AttrREQ, AttrREP, AttrRTU}},
					{s.b, DisconnectRequest, []Attribute{AttrREQ, AttrREP, AttrRTU, AttrDREQ}},
					{s.a, Resolved, []Attribute{AttrSIDRREQ, AttrSIDRREP}}, {s.b, ServiceRequest, []Attribute{AttrSIDRREQ}},
				} {
					_, n := s.last(want.m, want.kind)
					if never := times > 100 && slices.Contains(want.needs, a); never == (n > 0) {
						t.Errorf("%v was told %d times", want.kind, n)
					}
				}
				switch e, n := s.last(s.a, AlternateResponse); {
				case times > 100 && (a == AttrREQ || a == AttrREP || a == AttrRTU): // no connection
				case n != 1 || (e.Err != nil) != (times > 100 && (a == AttrLAP || a == AttrAPR)):
					t.Errorf("%d answers to the LAP, %v", n, e)
				}
				switch e, n := s.last(s.a, Disconnected); {
				case times > 100 && (a == AttrREQ || a == AttrREP || a == AttrRTU):
				case n != 1 || (e.Err != nil) != (times > 100 && (a == AttrDREQ || a == AttrDREP)):
					t.Errorf("disconnected %d times, %v", n, e)
				}
				if e, n := s.last(s.a, Unreachable); times > 100 && (a == AttrREQ || a == AttrREP || a >= AttrSIDRREQ && a <= AttrSIDRREP) != (n == 1) {
					t.Errorf("%d times unreachable, %v", n, e)
				}
			})
		}
	}
}

// TestEachMessageTwice: any message may arrive twice, at once or after the end of the connection.
// Each owner gets each event once, and no Manager keeps anything.
func TestEachMessageTwice(t *testing.T) {
	kinds := func(s *stage) string {
		var k []EventKind
		for _, e := range append(append([]Event(nil), s.told[s.a]...), s.told[s.b]...) {
			k = append(k, e.Kind)
		}
		return fmt.Sprint(k)
	}
	clean := newStage(t)
	clean.life()
	clean.over()
	want := kinds(clean)
	for _, a := range lifeMessages {
		t.Run(a.String(), func(t *testing.T) {
			s := newStage(t)
			s.fault = func(o Out, _ int) int { return 1 + one(attrOf(o) == a) }
			s.life()
			s.over()
			got := kinds(s)
			if a == AttrSIDRREQ { // after the answer a SIDR_REQ makes a new inquiry (cm_sidr_req_handler)
				got = want
			}
			if got != want {
				t.Errorf("events\n%v, want\n%v", got, want)
			}
		})
		t.Run(a.String()+" late", func(t *testing.T) {
			for _, after := range []time.Duration{0, 20 * time.Minute} { // within timewait, and long after it
				s := newStage(t)
				s.life()
				s.now = s.now.Add(after)
				for _, o := range s.kept {
					if attrOf(o) == a {
						to := s.a
						if o.To == peerGID {
							to = s.b
						}
						to.HandleMAD(s.now, o.From, o.To, o.MAD[:])
					}
				}
				s.fault = func(Out, int) int { return 0 } // the answers to the old message are lost
				s.run(time.Hour)
				s.over()
				got := kinds(s)
				if a == AttrREQ || a == AttrSIDRREQ { // the passive side cannot distinguish it from a new request
					got = want
				}
				if got != want {
					t.Errorf("events\n%v, want\n%v", got, want)
				}
			}
		})
	}
}

// TestMRABothSides: an owner may answer later than the peer's retries last, because an MRA asks the
// peer to wait for the REP, the RTU or the APR. One MRA may be lost.
func TestMRABothSides(t *testing.T) {
	for _, k := range []EventKind{ConnectRequest, ConnectResponse, AlternateRequest} {
		for _, lost := range []int{0, 1} {
			t.Run(fmt.Sprintf("%v, %d lost", k, lost), func(t *testing.T) {
				s := newStage(t)
				s.fault = func(o Out, nth int) int { return one(attrOf(o) != AttrMRA || nth > lost) }
				s.hesitate[k] = time.Minute
				cp := connectParam()
				cp.MaxCMRetries = 3 // of 4.1 or 4.6 s
				c, err := s.a.Connect(s.now, cp)
				if err != nil {
					t.Fatal(err)
				}
				s.run(5 * time.Minute)
				if c.State() != StateEstablished {
					t.Fatalf("%v: %v", c.State(), s.told)
				}
				if err := c.LoadAlternate(s.now, altPath(), nil); err != nil {
					t.Fatal(err)
				}
				s.run(5 * time.Minute)
				if e, n := s.last(s.a, AlternateResponse); n != 1 || e.Err != nil {
					t.Errorf("%d answers, %v", n, e)
				}
				if s.seen[AttrMRA] != 1+lost {
					t.Errorf("%d MRAs", s.seen[AttrMRA])
				}
			})
		}
	}
}

// TestRestart: a side loses its state and starts again with the same GUID, IDs
// and QPNs as before, in both roles, on either side.
func TestRestart(t *testing.T) {
	up := func(t *testing.T) (*stage, *Conn) {
		s := newStage(t)
		c := s.connect(t, 7)
		s.run(time.Second)
		if c.State() != StateEstablished {
			t.Fatal(c.State())
		}
		return s, c
	}
	fresh := func(s *stage, guid GUID) *Manager {
		n := uint32(guid) << 16
		m, err := NewManager(Config{GUID: guid, Rand: func() uint32 { n += 3; return n }})
		if err != nil {
			s.t.Fatal(err)
		}
		return m
	}
	t.Run("active", func(t *testing.T) {
		s, _ := up(t)
		s.a = fresh(s, 1)
		c := s.connect(t, 7)
		s.run(time.Second)
		if e, _ := s.last(s.a, Rejected); e.Reason != RejectStaleConn || e.Conn != c || c.State() != StateIdle && c.State() != StateTimewait {
			t.Errorf("%v, %v", e, c.State())
		}
		if _, n := s.last(s.b, Disconnected); n != 1 {
			t.Error("the owner of the old connection was not told")
		}
		s.run(time.Second)
		c = s.connect(t, 7)
		s.run(time.Second)
		if c.State() != StateEstablished {
			t.Errorf("the next attempt: %v", c.State())
		}
	})
	t.Run("active, another QPN", func(t *testing.T) {
		s, _ := up(t)
		s.a = fresh(s, 1)
		c := s.connect(t, 8) // does not show that the old connection is stale
		s.run(time.Second)
		if c.State() != StateEstablished || s.b.Len() != 2 {
			t.Errorf("%v, %d connections", c.State(), s.b.Len())
		}
		for _, old := range s.b.byLocal { // which stays until its owner ends it
			old.Disconnect(s.now, nil)
		}
		s.run(time.Minute)
		s.over()
	})
	t.Run("passive", func(t *testing.T) {
		s, old := up(t)
		s.b = fresh(s, 2)
		if _, err := s.b.Listen(ListenParam{ServiceID: service}); err != nil {
			t.Fatal(err)
		}
		s.qpn = 0 // the passive side uses the same QPN again
		c := s.connect(t, 9)
		s.run(time.Minute)
		if e, _ := s.last(s.a, Disconnected); e.Conn != old {
			t.Errorf("the owner of the old connection was not told: %v", s.told[s.a])
		}
		if e, _ := s.last(s.b, Rejected); e.Reason != RejectStaleConn {
			t.Errorf("the passive side was told %v", s.told[s.b])
		}
		// The active side repeats the REQ, and the passive side uses another QPN.
		if c.State() != StateEstablished {
			t.Errorf("%v", c.State())
		}
	})
	t.Run("the other has not noticed", func(t *testing.T) {
		for _, end := range []func(*Conn, mono.Time){
			func(c *Conn, now mono.Time) { c.Disconnect(now, nil) }, (*Conn).Destroy,
			func(c *Conn, now mono.Time) { c.LoadAlternate(now, altPath(), nil); c.Destroy(now) },
		} {
			s, c := up(t)
			s.b = fresh(s, 2)
			end(c, s.now)
			s.run(time.Second) // the retries would take a minute
			s.over()
		}
	})
}

// TestPeerDies: if a peer stops at any point, the other side ends the exchange by
// itself, after its retries.
func TestPeerDies(t *testing.T) {
	for _, a := range lifeMessages {
		for _, which := range []int{0, 1} {
			s := newStage(t)
			dead := false
			s.fault = func(o Out, _ int) int {
				dead = dead || attrOf(o) == a
				return one(!dead)
			}
			c, _ := s.life()
			for _, m := range []*Manager{s.a, s.b} {
				for _, x := range m.byLocal { // the owners notice by their data, too
					if which == 0 {
						x.Disconnect(s.now, nil)
					} else {
						x.Destroy(s.now)
					}
				}
			}
			s.run(10 * time.Minute)
			if s.over(); t.Failed() {
				t.Fatalf("%v: %v", a, c.State())
			}
		}
	}
}

// TestREQUnchecked: the Manager ignores the fields of the REQ that rdma_cm ignores.
func TestREQUnchecked(t *testing.T) {
	for name, change := range map[string]func(*REQ){
		"remote GID":     func(m *REQ) { m.Primary.RemoteGID = strangerGID },
		"LIDs":           func(m *REQ) { m.Primary.LocalLID, m.Primary.RemoteLID = 0, 7 },
		"hop limit":      func(m *REQ) { m.Primary.HopLimit = 0 },
		"subnet local":   func(m *REQ) { m.Primary.SubnetLocal = true },
		"SL":             func(m *REQ) { m.Primary.SL = 15 },
		"rate":           func(m *REQ) { m.Primary.Rate = 63 },
		"flow label":     func(m *REQ) { m.Primary.FlowLabel = 0 },
		"ACK timeout":    func(m *REQ) { m.Primary.AckTimeout = 31 },
		"retries":        func(m *REQ) { m.MaxCMRetries, m.RetryCount, m.RNRRetryCount = 0, 0, 0 },
		"Q_Key, EECs":    func(m *REQ) { m.QKey, m.LocalEECN, m.RemoteEECN, m.RDC = 5, 6, 7, true },
		"vendor, ECE":    func(m *REQ) { m.VendorID, m.Modifier = 9, 9 },
		"resources":      func(m *REQ) { m.ResponderResources, m.InitiatorDepth = 255, 255 },
		"CM timeouts":    func(m *REQ) { m.LocalResponseTimeout, m.RemoteResponseTimeout = 31, 31 },
		"TID":            func(m *REQ) { m.TID = 0 },
		"PSN, QPN":       func(m *REQ) { m.StartingPSN, m.QPN = 0, 0xFFFFFF },
		"limited member": func(m *REQ) { m.PKey = 0x7FFF },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDialogue(t)
			d.m.Listen(ListenParam{ServiceID: service})
			req := peerREQ()
			change(req)
			d.recv(req)
			c := d.event(ConnectRequest).Conn
			d.must(c.Accept(d.now, acceptParam()))
			d.finish(c)
		})
	}
}

// TestFloodCost: a request without room, a repeated one, one without a
// listener, and an answer without a request allocate no lasting memory.
func TestFloodCost(t *testing.T) {
	d := newDialogue(t, func(c *Config) { c.MaxReplies = 4 })
	d.m.Listen(ListenParam{ServiceID: service, Backlog: 2})
	d.recv(nth(0))
	d.recv(nth(1))
	nobody := nth(3)
	nobody.ServiceID++
	for name, m := range map[string]Message{
		"no room": nth(2), "again": nth(1), "no listener": nobody,
		"REP": peerREP(), "RTU": peerRTU(), "DREQ": peerDREQ(), "DREP": peerDREP(), "LAP": peerLAP(1), "APR": peerAPR(1, 0),
		"REJ": &REJ{LocalID: 5, Reason: RejectTimeout}, "MRA": &MRA{}, "SIDR_REQ": peerSIDRREQ(), "SIDR_REP": &SIDRREP{},
	} {
		b := encode(m)
		for range 100 { // the queue of answers is full then
			d.m.HandleMAD(d.now, peerGID, ownGID, b)
		}
		n := testing.AllocsPerRun(200, func() { d.m.HandleMAD(d.now, peerGID, ownGID, b) })
		if n > 2 && !raceEnabled { // the message and its answer are allocated, and freed again
			t.Errorf("%s: %v allocations", name, n)
		}
		if d.m.Len() != 2 || d.m.out.Len() > 4+2 {
			t.Fatalf("%s: %d connections, %d answers", name, d.m.Len(), d.m.out.Len())
		}
	}
}
