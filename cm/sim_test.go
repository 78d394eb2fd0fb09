package cm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// sim is two Managers, an unreliable network between them, and two owners that answer
// late, and reject or end connections at random.
type sim struct {
	*rand.Rand
	now    mono.Time
	side   [2]*simSide
	todo   []simAction // in flight and planned, unordered
	loss   float64
	dup    float64
	delay  float64 // share of messages that are delayed
	sent   int
	log    []string // of a failed run
	broken string   // the first violation that an owner has seen; empty: none
	seq    int
	faults int
	laps   int // begun
	agreed int // alternate paths loaded at both ends
	moved  int // migrations
}

type simAction struct {
	at  mono.Time
	seq int
	do  func()
}

type simSide struct {
	s     *sim
	m     *Manager
	gid   bth.GID
	conns []*simConn
}

// simConn is the knowledge of an owner about a connection.
type simConn struct {
	c           *Conn
	established bool   // RTU sent, or Established received
	ended       bool   // the owner knows that it is over, or wanted it over
	loaded      []Path // alternate paths that the owner agreed to
	after       EventKind
}

func newSim(seed uint64) *sim {
	s := &sim{Rand: rand.New(rand.NewPCG(seed, 1))}
	s.loss = []float64{0, 0.05, 0.3, 0.5}[s.IntN(4)]
	s.dup = []float64{0, 0.1, 0.5}[s.IntN(3)]
	s.delay = []float64{0, 0.2, 0.8}[s.IntN(3)]
	for i := range s.side {
		m, err := NewManager(Config{GUID: GUID(i + 1), Rand: s.Uint32})
		if err != nil {
			panic(err)
		}
		s.side[i] = &simSide{s: s, m: m, gid: [2]bth.GID{ownGID, peerGID}[i]}
		if _, err := m.Listen(ListenParam{ServiceID: service}); err != nil {
			panic(err)
		}
	}
	return s
}

func (s *sim) after(d time.Duration, do func()) {
	s.seq++
	s.todo = append(s.todo, simAction{s.now.Add(d), s.seq, do})
}

func (s *sim) tracef(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%v ", s.now)+fmt.Sprintf(format, args...))
}

// transmit puts a datagram on the network.
func (s *sim) transmit(to *simSide, o Out) {
	s.sent++
	copies := 1
	if s.Float64() < s.loss {
		copies = 0
	}
	if s.Float64() < s.dup {
		copies++
	}
	if copies != 1 {
		s.faults++
	}
	for range copies {
		d := 100 * time.Microsecond
		if s.Float64() < s.delay {
			d = time.Duration(s.Int64N(int64(6 * time.Second)))
		}
		s.after(d, func() {
			if m, err := DecodeMAD(o.MAD[:]); err == nil {
				s.tracef("%v <- %v", to.gid.Addr(), m)
			}
			to.m.HandleMAD(s.now, o.From, o.To, o.MAD[:])
		})
	}
}

// run executes actions, events and timers until there are no more.
func (s *sim) run(t *testing.T) {
	for step := 0; ; step++ {
		if step > 20000 {
			s.fail(t, "does not come to an end")
		}
		for i, side := range s.side {
			for {
				o, ok := side.m.NextMAD()
				if !ok {
					break
				}
				s.transmit(s.side[1-i], o)
			}
			for {
				e, ok := side.m.NextEvent()
				if !ok {
					break
				}
				s.tracef("%v event %v", side.gid.Addr(), e)
				side.event(e)
			}
			if err := side.m.check(); err != nil {
				s.fail(t, "%v", err)
			}
			if s.broken != "" {
				s.fail(t, "%s", s.broken)
			}
		}
		if s.side[0].m.out.Len()+s.side[1].m.out.Len() > 0 {
			continue // an owner has reacted at once: poll again
		}
		next := min(s.side[0].m.NextTimeout(), s.side[1].m.NextTimeout())
		i := -1
		for j, a := range s.todo {
			if a.at < next || a.at == next && (i < 0 || a.seq < s.todo[i].seq) {
				next, i = a.at, j
			}
		}
		if next == mono.Never {
			return
		}
		s.now = next
		if i >= 0 {
			do := s.todo[i].do
			s.todo = slices.Delete(s.todo, i, i+1)
			do()
			continue
		}
		s.side[0].m.HandleTimeout(s.now)
		s.side[1].m.HandleTimeout(s.now)
	}
}

func (s *sim) fail(t *testing.T, format string, args ...any) {
	t.Helper()
	for _, l := range s.log[max(0, len(s.log)-200):] {
		t.Log(l)
	}
	t.Fatalf(format, args...)
}

// connect begins a connection.
func (d *simSide) connect(qpn bth.QPN) {
	p := connectParam()
	p.Local, p.Remote, p.QPN = d.gid, d.s.other(d).gid, qpn
	c, err := d.m.Connect(d.s.now, p)
	if err != nil {
		panic(err)
	}
	sc := &simConn{c: c}
	c.User = sc
	d.conns = append(d.conns, sc)
	if d.s.IntN(20) == 0 { // give up early
		d.s.after(d.s.think(), func() { d.destroy(sc) })
	}
}

func (s *sim) other(d *simSide) *simSide {
	if s.side[0] == d {
		return s.side[1]
	}
	return s.side[0]
}

// think returns the time until an owner answers, usually 0.
func (s *sim) think() time.Duration {
	switch s.IntN(4) {
	case 0:
		return time.Duration(s.Int64N(int64(12 * time.Second)))
	case 1:
		return time.Duration(s.Int64N(int64(10 * time.Millisecond)))
	}
	return 0
}

func (d *simSide) destroy(sc *simConn) {
	d.s.tracef("%v destroys %v in %v", d.gid.Addr(), sc.c.LocalID(), sc.c.State())
	sc.ended = true
	sc.c.Destroy(d.s.now)
}

func (d *simSide) event(e Event) {
	s := d.s
	sc, _ := e.Conn.User.(*simConn)
	if e.Kind == ConnectRequest {
		sc = &simConn{c: e.Conn}
		e.Conn.User = sc
		d.conns = append(d.conns, sc)
	}
	switch e.Kind {
	case ConnectRequest:
		s.after(s.think(), func() {
			if !sc.c.State().pendingRequest() {
				return // withdrawn by the peer
			}
			switch s.IntN(10) {
			case 0:
				sc.ended = true
				sc.c.Reject(s.now, RejectConsumer, nil)
			case 1:
				d.destroy(sc)
			default:
				p := acceptParam()
				p.QPN = bth.QPN(s.IntN(1 << 24))
				sc.c.Accept(s.now, p)
			}
		})
	case ConnectResponse:
		s.after(s.think(), func() {
			if sc.c.State() != StateMRARepSent || sc.c.destroyed {
				return
			}
			switch s.IntN(12) {
			case 0:
				sc.ended = true
				sc.c.Reject(s.now, RejectNoQP, nil)
			case 1:
				d.destroy(sc)
			default:
				sc.c.ReadyToUse(s.now, nil)
				d.up(sc)
				// The first data may overtake or replace the RTU.
				if s.IntN(2) == 0 {
					id := sc.c.RemoteID()
					s.after(s.think(), func() {
						if p := s.other(d).m.byLocal[id]; p != nil {
							p.CommEstablished(s.now)
						}
					})
				}
			}
		})
	case Established:
		d.up(sc)
	case Rejected, Unreachable, Disconnected:
		sc.ended = true
	case AlternateRequest:
		s.after(s.think(), func() {
			status := []APStatus{APLoaded, APLoaded, APReject, APUnsupported}[s.IntN(4)]
			if sc.c.AnswerAlternate(s.now, AlternateAnswer{Status: status}) == nil && status == APLoaded {
				sc.loaded = append(sc.loaded, *e.Alternate)
			}
		})
	case AlternateResponse:
		if e.AP == APLoaded && e.Err == nil {
			d.alternateLoaded(sc, *e.Alternate)
		}
	case DisconnectRequest:
		sc.ended = true
		s.after(s.think(), func() {
			if s.IntN(5) == 0 {
				d.destroy(sc)
			} else {
				sc.c.Disconnect(s.now, nil) // fails if the DREP has arrived first
			}
		})
	}
	sc.after = e.Kind
}

// alternateLoaded checks that the peer has loaded the path, too. Sometimes both ends then migrate,
// one before the other.
func (d *simSide) alternateLoaded(sc *simConn, p Path) {
	s := d.s
	peer := s.other(d).find(sc.c.RemoteID())
	p.LocalLID, p.RemoteLID = 0, 0
	if !slices.Contains(peer.loaded, mirrored(p)) {
		s.broken = fmt.Sprintf("%v believes in the alternate path %v, its peer has %v", sc.c.LocalID(), &p, peer.loaded)
	}
	s.agreed++
	if s.IntN(2) == 0 {
		for _, end := range []*simConn{sc, peer} {
			s.after(s.think(), func() {
				if end.c.Migrated(s.now) == nil {
					s.moved++
				}
			})
		}
	}
}

// propose proposes an alternate path that differs from all others.
func (d *simSide) propose(sc *simConn) {
	s := d.s
	p := AlternatePath{Local: ownAlt, Remote: peerAlt, FlowLabel: uint32(0x80000 + s.laps)}
	if d == s.side[1] {
		p.Local, p.Remote = p.Remote, p.Local
	}
	if sc.c.LoadAlternate(s.now, p, nil) == nil {
		s.laps++
	}
}

// up plans the end of an established connection.
func (d *simSide) up(sc *simConn) {
	sc.established = true
	if d.s.IntN(3) == 0 {
		d.s.after(d.s.think(), func() { d.propose(sc) })
	}
	hold := d.s.think()
	if d.s.IntN(2) == 0 {
		hold += 100 * time.Second // so that the other side usually ends the connection first
	}
	d.s.after(hold, func() {
		switch {
		case sc.c.State() != StateEstablished:
		case d.s.IntN(4) == 0:
			d.destroy(sc)
		default:
			sc.c.Disconnect(d.s.now, nil)
		}
	})
}

// TestSimulation: with any faults of the network, both sides agree about each connection in the
// end, neither Manager keeps anything, and the number of messages is bounded.
func TestSimulation(t *testing.T) {
	seeds := 4000
	if testing.Short() || raceEnabled {
		seeds = 400
	}
	var up, half, failed, faults, sent, laps, agreed, moved int
	for seed := range seeds {
		s := newSim(uint64(seed))
		n := 1 + s.IntN(4)
		for i := range n {
			d := s.side[s.IntN(2)]
			// QPNs are used again, sometimes too early: the peer must detect that.
			s.after(s.think(), func() { d.connect(bth.QPN(2 + i%2)) })
		}
		s.run(t)
		if t.Failed() {
			return
		}
		conns := len(s.side[0].conns) + len(s.side[1].conns)
		for i, side := range s.side {
			m := side.m
			if m.Len()+len(m.byRemote)+len(m.byQPN)+len(m.timers)+m.halfOpen.n+m.replies != 0 {
				s.fail(t, "seed %d: side %d: left over: %d %d %d %d", seed, i, m.Len(), len(m.byRemote), len(m.byQPN), len(m.timers))
			}
			for _, sc := range side.conns {
				if !sc.ended {
					s.fail(t, "seed %d: side %d: %v in %v, last %v: the owner was never told that it is over",
						seed, i, sc.c.LocalID(), sc.c.State(), sc.after)
				}
				if sc.c.Active() {
					continue
				}
				a := s.side[1-i].find(sc.c.RemoteID())
				paired := a.c.RemoteID() == sc.c.LocalID()
				switch {
				case sc.established && !(paired && a.established):
					s.fail(t, "seed %d: %v is established, the side that asked for it is not", seed, sc.c.LocalID())
				case sc.established:
					up++
				case paired && a.established:
					half++ // both sides have ended it nevertheless, see above
					if s.faults == 0 && s.delay == 0 {
						s.fail(t, "seed %d: %v does not know that it is established, on a perfect network", seed, sc.c.LocalID())
					}
					if sc.after == Unreachable && s.loss < 0.1 {
						s.fail(t, "seed %d: %v gave up although its REPs were answered", seed, sc.c.LocalID())
					}
				default:
					failed++
				}
			}
		}
		// Each connection repeats at most four messages 15 times on either side, and
		// each of these may be answered.
		if limit := conns * 2 * 4 * 16 * 2; s.sent > limit {
			s.fail(t, "seed %d: %d messages for %d connections", seed, s.sent, conns)
		}
		faults += s.faults
		sent += s.sent
		laps, agreed, moved = laps+s.laps, agreed+s.agreed, moved+s.moved
	}
	t.Logf("%d seeds: %d messages, %d faults; passive connections: %d established, %d only on the active side, %d failed",
		seeds, sent, faults, up, half, failed)
	t.Logf("%d alternate paths proposed, %d loaded at both ends, %d migrations of an end", laps, agreed, moved)
	if up == 0 || failed == 0 || faults == 0 || agreed == 0 || agreed == laps || moved == 0 {
		t.Error("the simulation proves nothing")
	}
}

func (d *simSide) find(id CommID) *simConn {
	for _, sc := range d.conns {
		if sc.c.LocalID() == id {
			return sc
		}
	}
	return nil
}
