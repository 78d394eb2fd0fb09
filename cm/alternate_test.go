package cm

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/goroce/roce/bth"
)

// The second addresses of the two ends.
var ownAlt, peerAlt = gid("10.1.0.1"), gid("10.1.0.2")

// ---- the messages of each side ----

func altPath() AlternatePath {
	return AlternatePath{Local: ownAlt, Remote: peerAlt, TrafficClass: 0x20, FlowLabel: 0x777, HopLimit: 9}
}

// altSeen is the Path of altPath, seen from this side.
func altSeen(ackTimeout uint8) Path {
	return Path{LocalGID: ownAlt, RemoteGID: peerAlt, FlowLabel: 0x777, TrafficClass: 0x20, HopLimit: 9, AckTimeout: ackTimeout}
}

// wire adds the fields that a path has only on the wire.
func wire(p Path) Path {
	p.LocalLID, p.RemoteLID = PermissiveLID, PermissiveLID
	return p
}

// mirrored is a path seen from the other side.
func mirrored(p Path) Path {
	p.LocalGID, p.RemoteGID = p.RemoteGID, p.LocalGID
	return p
}

// ownLAP is the n-th LAP of the active side.
func ownLAP(n uint64) *LAP {
	return &LAP{Header: Header{TID: ownTID + n<<32}, LocalID: ownID, RemoteID: peerID, RemoteQPN: peerQPN,
		RemoteResponseTimeout: 20, Alternate: wire(altSeen(17))}
}

func passiveLAP() *LAP {
	m := ownLAP(1)
	m.Alternate.AckTimeout = 18 // from the REQ
	return m
}

func peerLAP(tid uint64) *LAP {
	return &LAP{Header: Header{TID: tid}, LocalID: peerID, RemoteID: ownID, RemoteQPN: ownQPN, RemoteResponseTimeout: 19,
		Alternate: wire(mirrored(altSeen(18))), Private: [168]byte{'w', 'a', 'y'}}
}

func ownAPR(tid uint64, status APStatus) *APR {
	return &APR{Header: Header{TID: tid}, LocalID: ownID, RemoteID: peerID, Status: status}
}

func peerAPR(tid uint64, status APStatus) *APR {
	return &APR{Header: Header{TID: tid}, LocalID: peerID, RemoteID: ownID, Status: status}
}

// asked brings a connection to the state in which the owner must answer the peer's LAP.
func (d *dialogue) asked(active bool) *Conn {
	d.Helper()
	c := d.reach(active, StateEstablished)
	d.recv(peerLAP(1))
	e := d.event(AlternateRequest)
	if diff := cmp.Diff(altSeen(18), *e.Alternate); diff != "" || e.Conn != c || string(e.Private[:3]) != "way" || len(e.Private) != 168 {
		d.Fatalf("%v, path (-want +got):\n%s", e, diff)
	}
	return c
}

// alternate checks the alternate path of a connection; want is nil for none.
func (d *dialogue) alternate(c *Conn, want *Path) {
	d.Helper()
	var got *Path
	if p, ok := c.Alternate(); ok {
		got = &p
	}
	if diff := cmp.Diff(want, got); diff != "" {
		d.Fatalf("alternate path (-want +got):\n%s", diff)
	}
	a, err := c.QPAttr()
	d.must(err)
	if diff := cmp.Diff(want, a.Alternate); diff != "" {
		d.Fatalf("alternate path of the QP (-want +got):\n%s", diff)
	}
}

func of(p Path) *Path { return &p }

// TestREQProposesAlternate: the REP accepts or refuses the alternate path of our REQ.
func TestREQProposesAlternate(t *testing.T) {
	for f, want := range map[Failover]*Path{FailoverAccepted: of(wire(altSeen(20))), FailoverUnsupported: nil, FailoverRejected: nil, 3: nil} {
		t.Run(f.String(), func(t *testing.T) {
			d := newDialogue(t)
			p := connectParam()
			p.Alternate = of2(altPath())
			c, err := d.m.Connect(d.now, p)
			d.must(err)
			req := ownREQ()
			req.Alternate = wire(altSeen(17))
			d.send(req)
			if _, ok := c.Alternate(); ok {
				t.Error("an alternate path before the peer has agreed")
			}
			rep := peerREP()
			rep.Failover = f
			rep.TargetAckDelay = 20 // counts for both paths
			if want != nil {
				want.AckTimeout = AckTimeout(20, 16)
			}
			d.recv(rep)
			d.event(ConnectResponse)
			d.alternate(c, want)
			d.must(c.ReadyToUse(d.now, nil))
			d.send(ownRTU())
			d.alternate(c, want)
			d.finish(c)
		})
	}
	t.Run("bad", func(t *testing.T) {
		d := newDialogue(t)
		p := connectParam()
		p.Alternate = &AlternatePath{Local: p.Local, Remote: p.Remote}
		_, err := d.m.Connect(d.now, p)
		wantErrno(t, err, syscall.EINVAL)
		d.silent()
		d.forgotten()
	})
}

func of2(p AlternatePath) *AlternatePath { return &p }

// TestREQOffersAlternate: the answer of the passive side to each alternate path.
func TestREQOffersAlternate(t *testing.T) {
	far := gid("10.9.9.9")
	for _, tt := range []struct {
		name   string
		change func(*Path)
		says   Failover // the answer of the owner, if the Manager asks it
		want   Failover
	}{
		{"taken", func(*Path) {}, FailoverAccepted, FailoverAccepted},
		{"not supported", func(*Path) {}, FailoverUnsupported, FailoverUnsupported},
		{"rejected", func(*Path) {}, FailoverRejected, FailoverRejected},
		{"without LIDs", func(p *Path) { p.LocalLID, p.RemoteLID, p.HopLimit, p.SubnetLocal = 0, 0, 9, true }, FailoverAccepted, FailoverAccepted},
		{"none", func(p *Path) { *p = Path{} }, FailoverRejected, FailoverAccepted},
		{"LIDs alone", func(p *Path) { *p = Path{LocalLID: 1, RemoteLID: 2} }, FailoverAccepted, FailoverUnsupported},
		{"from nowhere", func(p *Path) { p.LocalGID = bth.GID{} }, FailoverAccepted, FailoverUnsupported},
		{"two IP versions", func(p *Path) { p.LocalGID = gid("fd00::1") }, FailoverAccepted, FailoverRejected},
		{"the primary path", func(p *Path) { *p = peerREQ().Primary }, FailoverAccepted, FailoverRejected},
		{"out of reach", func(p *Path) { p.LocalGID = far }, FailoverAccepted, FailoverRejected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDialogue(t, func(c *Config) { c.Reachable = func(_, peer bth.GID) bool { return peer != far } })
			d.m.Listen(ListenParam{ServiceID: service})
			req := peerREQ()
			req.Alternate = wire(mirrored(altSeen(18)))
			tt.change(&req.Alternate)
			d.recv(req)
			c := d.event(ConnectRequest).Conn
			p := acceptParam()
			p.Failover = tt.says
			var want *Path
			if tt.want == FailoverAccepted && tt.name != "none" {
				want = of(altSeen(18))
			}
			a, err := c.AcceptAttr(p)
			d.must(err)
			if diff := cmp.Diff(want, a.Alternate); diff != "" {
				t.Errorf("accept attributes (-want +got):\n%s", diff)
			}
			d.must(c.Accept(d.now, p))
			rep := ownREP()
			rep.Failover = tt.want
			d.send(rep)
			d.alternate(c, want)
			d.finish(c)
		})
	}
}

// TestLoadAlternate: the peer's answer is an event, and an accepted path is the alternate path of
// the connection.
func TestLoadAlternate(t *testing.T) {
	for _, active := range []bool{true, false} {
		for s := APLoaded; s <= APInvalidSL; s++ {
			t.Run(s.String(), func(t *testing.T) {
				d := newDialogue(t)
				c := d.reach(active, StateEstablished)
				lap, want := ownLAP(1), of(wire(altSeen(17)))
				if !active {
					lap, want = passiveLAP(), of(wire(altSeen(18)))
				}
				d.must(c.LoadAlternate(d.now, altPath(), nil))
				d.send(lap)
				wantErrno(t, c.LoadAlternate(d.now, altPath(), nil), syscall.EINVAL) // one at a time
				d.silent()
				d.alternate(c, nil)
				apr := peerAPR(lap.TID, s)
				apr.InfoLen, apr.Info, apr.Private = 2, [72]byte{1, 2}, [148]byte{147: 7}
				d.recv(apr)
				e := d.event(AlternateResponse)
				if diff := cmp.Diff(want, e.Alternate); diff != "" || e.Conn != c || e.AP != s || e.Err != nil ||
					len(e.Info) != 2 || len(e.Private) != 148 || e.Private[147] != 7 {
					t.Errorf("%v %v %v, path (-want +got):\n%s", e, e.Info, e.Private, diff)
				}
				if s != APLoaded {
					want = nil
				}
				d.alternate(c, want)
				d.recv(apr) // a duplicate has no effect
				d.silent()
				d.state(c, StateEstablished)
				if n := d.m.Counters().Duplicates[AttrAPR-AttrREQ]; n != 1 {
					t.Errorf("%d duplicates", n)
				}
				d.advance(time.Hour) // the LAP is not repeated
				d.silent()
				d.finish(c)
			})
		}
	}
}

func TestLoadAlternateErrors(t *testing.T) {
	for name, p := range map[string]AlternatePath{
		"no addresses":    {},
		"to nowhere":      {Local: ownAlt},
		"two IP versions": {Local: ownAlt, Remote: gid("fd00::2")},
		"the same path":   {Local: ownGID, Remote: peerGID},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDialogue(t)
			c := d.active(StateEstablished)
			wantErrno(t, c.LoadAlternate(d.now, p, nil), syscall.EINVAL)
			d.silent()
			d.state(c, StateEstablished)
		})
	}
	t.Run("another flow label will do", func(t *testing.T) {
		d := newDialogue(t)
		d.must(d.active(StateEstablished).LoadAlternate(d.now, AlternatePath{Local: ownGID, Remote: peerGID, FlowLabel: 5}, nil))
	})
	t.Run("information", func(t *testing.T) {
		d := newDialogue(t)
		c := d.asked(false)
		wantErrno(t, c.AnswerAlternate(d.now, AlternateAnswer{Status: APReject, Info: make([]byte, InfoLen+1)}), syscall.EINVAL)
		d.silent()
		d.must(c.AnswerAlternate(d.now, AlternateAnswer{Status: APReject, Info: make([]byte, InfoLen)}))
		apr := ownAPR(1, APReject)
		apr.InfoLen = InfoLen
		d.send(apr)
	})
}

// TestRecvLAP: the answer to a LAP in each state.
func TestRecvLAP(t *testing.T) {
	everyState(t, func(d *dialogue, c *Conn, active bool, s State) {
		if in(s, StateReqRcvd, StateRepRcvd) {
			d.m.NextEvent()
			s = c.State()
		}
		d.recv(peerLAP(1))
		n := d.m.Counters()
		switch {
		case s == StateEstablished:
			d.event(AlternateRequest)
			d.must(c.AnswerAlternate(d.now, AlternateAnswer{}))
			d.send(ownAPR(1, APLoaded))
			d.alternate(c, of(altSeen(18)))
		case in(s, StateTimewait, StateReqSent, StateMRAReqRcvd): // the peer's ID is not known, or not any more
			d.send(ownAPR(1, APInvalidCommID))
			if n.Unmatched != 1 {
				d.Errorf("unmatched %d", n.Unmatched)
			}
		case n.Duplicates[AttrLAP-AttrREQ] != 1:
			d.Errorf("counted %d times", n.Duplicates[AttrLAP-AttrREQ])
		}
		d.silent()
		d.state(c, s)
		d.finish(c)
	})
}

// TestRecvLAPRefused: the Manager refuses an invalid LAP without asking the owner.
func TestRecvLAPRefused(t *testing.T) {
	far := gid("10.9.9.9")
	for _, tt := range []struct {
		name   string
		change func(*LAP)
		want   APStatus
	}{
		{"our ID", func(m *LAP) { m.RemoteID = 0x999 }, APInvalidCommID},
		{"its ID", func(m *LAP) { m.LocalID = 0x999 }, APInvalidCommID},
		{"our QPN", func(m *LAP) { m.RemoteQPN++ }, APInvalidQPN},
		{"no address", func(m *LAP) { m.Alternate.LocalGID = bth.GID{} }, APInvalidGID},
		{"two IP versions", func(m *LAP) { m.Alternate.LocalGID = gid("fd00::1") }, APInvalidGID},
		{"out of reach", func(m *LAP) { m.Alternate.LocalGID = far }, APInvalidGID},
		{"the path in use", func(m *LAP) { m.Alternate = peerREQ().Primary }, APIsCurrent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDialogue(t, func(c *Config) { c.Reachable = func(_, peer bth.GID) bool { return peer != far } })
			c := d.passive(StateEstablished)
			lap := peerLAP(1)
			tt.change(lap)
			d.recv(lap)
			apr := ownAPR(1, tt.want)
			apr.LocalID, apr.RemoteID = lap.RemoteID, lap.LocalID
			d.send(apr)
			d.silent()
			d.alternate(c, nil)
			d.recv(peerLAP(2)) // a good one is taken
			d.event(AlternateRequest)
			d.finish(c)
		})
	}
}

// TestRecvDuplicateLAP: a duplicate LAP is ignored until the owner has taken the event. Then an MRA
// answers it, and after the owner's answer the same APR again.
func TestRecvDuplicateLAP(t *testing.T) {
	for _, active := range []bool{true, false} {
		for _, status := range []APStatus{APLoaded, APReject} {
			d := newDialogue(t)
			c := d.reach(active, StateEstablished)
			d.recv(peerLAP(1))
			d.recv(peerLAP(1))
			if o, ok := d.m.NextMAD(); ok {
				t.Fatalf("unexpected %x", o.MAD)
			}
			d.event(AlternateRequest)
			d.silent()
			mra := &MRA{Header: Header{TID: 1}, LocalID: ownID, RemoteID: peerID, Of: OfOther, ServiceTimeout: 24}
			for range 2 {
				d.recv(peerLAP(1))
				d.send(mra)
			}
			d.must(c.AnswerAlternate(d.now, AlternateAnswer{Status: status, Private: []byte("so")}))
			apr := ownAPR(1, status)
			apr.Private = [148]byte{'s', 'o'}
			d.send(apr)
			for range 2 {
				d.recv(peerLAP(1))
				d.send(apr)
				d.silent()
			}
			if n := d.m.Counters().Duplicates[AttrLAP-AttrREQ]; n != 5 {
				t.Errorf("%d duplicates", n)
			}
			// Linux uses one TID for all LAPs of a connection: a LAP with another path is a new
			// one.
			other := peerLAP(1)
			other.Alternate.FlowLabel++
			d.recv(other)
			d.event(AlternateRequest)
			d.finish(c)
		}
	}
}

// TestRecvMRAOfLAP: an MRA makes the wait longer once, for this LAP only.
func TestRecvMRAOfLAP(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateEstablished)
	mra := &MRA{Header: Header{TID: ownLAP(1).TID}, LocalID: peerID, RemoteID: ownID, Of: OfOther, ServiceTimeout: 20}
	d.recv(mra) // ignored: we wait for no answer
	d.silent()
	d.must(c.LoadAlternate(d.now, altPath(), nil))
	d.send(ownLAP(1))
	d.recv(mra)
	d.recv(mra)
	wait := ms(4096 + 512)
	for range 2 {
		d.advance(wait - 1)
		d.silent()
		d.advance(1)
		d.send(ownLAP(1))
	}
	if n := d.m.Counters().Duplicates[AttrMRA-AttrREQ]; n != 2 {
		t.Errorf("%d duplicates", n)
	}
	d.recv(peerAPR(ownLAP(1).TID, APLoaded))
	d.event(AlternateResponse)
	d.state(c, StateEstablished)
}

// TestMRADelaysOneMessage: an MRA for a LAP does not change the intervals of later messages.
func TestMRADelaysOneMessage(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateEstablished)
	d.must(c.LoadAlternate(d.now, altPath(), nil))
	d.send(ownLAP(1))
	d.recv(&MRA{LocalID: peerID, RemoteID: ownID, Of: OfOther, ServiceTimeout: 24})
	d.recv(peerAPR(ownLAP(1).TID, APReject))
	d.event(AlternateResponse)
	d.must(c.LoadAlternate(d.now, altPath(), nil))
	d.send(ownLAP(2))
	d.advance(ms(4608))
	d.send(ownLAP(2))
}

// TestMRAOfREQDelaysNothingElse: an MRA for the REQ does not change the intervals of the DREQ.
func TestMRAOfREQDelaysNothingElse(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateMRAReqRcvd)
	d.recv(peerREP())
	d.event(ConnectResponse)
	d.must(c.ReadyToUse(d.now, nil))
	d.send(ownRTU())
	d.must(c.Disconnect(d.now, nil))
	d.send(ownDREQ())
	d.advance(16*ms(4608) + ms(6300)) // with the interval of the MRA it would be 16 times 66 s
	d.recvd(ownDREQ(), 6+15)
	d.event(Disconnected)
	d.state(c, StateTimewait)
}

// recvd checks that the Manager sends the message m so many times, and nothing else.
func (d *dialogue) recvd(m Message, times int) {
	d.Helper()
	for range times {
		d.send(m)
	}
	if o, ok := d.m.NextMAD(); ok {
		got, _ := DecodeMAD(o.MAD[:])
		d.Fatalf("and %v", got)
	}
}

// TestLateAPR: a late APR to a LAP that was given up does not answer the next LAP.
func TestLateAPR(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateEstablished)
	d.must(c.LoadAlternate(d.now, altPath(), nil))
	d.advance(time.Hour)
	d.recvd(ownLAP(1), 16)
	e := d.event(AlternateResponse)
	wantErrno(t, e.Err, syscall.ETIMEDOUT)
	if !errors.Is(e.Err, ErrTimeout) {
		t.Error(e.Err)
	}
	d.must(c.LoadAlternate(d.now, AlternatePath{Local: ownAlt, Remote: peerAlt}, nil))
	d.m.NextMAD()
	d.recv(peerAPR(ownLAP(1).TID, APLoaded))
	d.silent()
	d.alternate(c, nil)
	d.recv(peerAPR(ownLAP(2).TID, APLoaded))
	d.event(AlternateResponse)
	if p, ok := c.Alternate(); !ok || p.FlowLabel != FlowLabel(40000, 7174) {
		t.Errorf("%v %v", &p, ok)
	}
}
