package cm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// strangerSays is every CM message, with the IDs, the GUID and the QPNs of a
// connection between ownGID and peerGID, as a stranger who knows all of them can
// send it. The service of the REQ is one that nobody listens for: a REQ for a
// listener is a request of the stranger's own, see TestStrangersREQ.
func strangerSays(remote CommID) []Message {
	req := peerREQ()
	req.ServiceID = 1 << 60
	stale := peerREQ()
	stale.ServiceID, stale.LocalID = req.ServiceID, peerID+1
	rejs := []Message{}
	for _, of := range []Subject{OfREQ, OfREP, OfOther} {
		for _, reason := range []RejectReason{RejectConsumer, RejectStaleConn, RejectTimeout} {
			for _, id := range []CommID{0, peerID} {
				rejs = append(rejs, &REJ{LocalID: id, RemoteID: remote, Of: of, Reason: reason, InfoLen: 8,
					Info: [72]byte{7: byte(peerGUID)}})
			}
		}
	}
	rep, other := peerREP(), peerREP()
	other.LocalID++
	dreq, drep := peerDREQ(), peerDREP()
	wrongQPN := peerDREQ()
	wrongQPN.RemoteQPN++
	all := []Message{req, stale, rep, other, peerRTU(), dreq, wrongQPN, drep,
		&MRA{LocalID: peerID, RemoteID: remote, Of: OfREQ, ServiceTimeout: 24},
		&MRA{LocalID: peerID, RemoteID: remote, Of: OfREP, ServiceTimeout: 24},
		&MRA{LocalID: peerID, RemoteID: remote, Of: OfOther, ServiceTimeout: 24},
		peerLAP(9), peerAPR(ownTID+1<<32, APLoaded), peerAPR(ownTID+1<<32, APReject),
		&SIDRREQ{RequestID: remote, PKey: 0xFFFF, ServiceID: 1 << 60}, &SIDRREP{RequestID: remote},
	}
	return append(all, rejs...)
}

// transcript is what a Manager says to the peer and to its owner.
type transcript struct {
	toPeer, events []string
	toStranger     int
}

func (d *dialogue) listenTo(tr *transcript) {
	for {
		o, ok := d.m.NextMAD()
		if !ok {
			break
		}
		if o.To == strangerGID {
			tr.toStranger++
			continue
		}
		m, _ := DecodeMAD(o.MAD[:])
		tr.toPeer = append(tr.toPeer, fmt.Sprint(d.now, m))
	}
	for {
		e, ok := d.m.NextEvent()
		if !ok {
			return
		}
		tr.events = append(tr.events, fmt.Sprint(d.now, e))
	}
}

// goOn is the rest of the peer's life: what it may still say, and a new connection
// with the same QPN.
func (d *dialogue) goOn(tr *transcript) {
	again := peerREQ()
	again.LocalID, again.QPN = peerID+7, peerQPN+7
	for _, m := range []Message{peerREP(), peerRTU(), peerDREQ(), peerDREP(), again} {
		d.recv(m)
		d.listenTo(tr)
		d.advance(50 * time.Millisecond)
		d.listenTo(tr)
	}
	for range 100 {
		d.advance(10 * time.Second)
		d.listenTo(tr)
	}
}

// TestStrangers: in every state of either side nothing that comes from an address
// the connection does not know changes the state or a timer, is kept, is an event,
// or keeps the true peer from going on as if it had not happened. That holds for
// an address nobody has heard of, and for that of a connection that is over.
func TestStrangers(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		for _, active := range []bool{true, false} {
			states := passiveStates
			if active {
				states = activeStates
			}
			for _, s := range states {
				t.Run(fmt.Sprintf("earlier connection %v, active %v, %v", earlier, active, s), func(t *testing.T) {
					undisturbed := strangerTwin(t, earlier, active, s, nil)
					n := len(strangerSays(ownID))
					for i := range n + 1 {
						say := strangerSays(ownID)
						if i < n {
							say = say[i : i+1]
						}
						got := strangerTwin(t, earlier, active, s, say)
						if got.toStranger > len(say) {
							t.Errorf("%v: %d answers", say, got.toStranger)
						}
						got.toStranger = 0
						if diff := cmp.Diff(undisturbed, got, cmp.AllowUnexported(transcript{})); diff != "" {
							t.Errorf("%v: the peer or the owner noticed (-without +with):\n%s", say, diff)
						}
					}
				})
			}
		}
	}
}

// strangerTwin brings a connection to a state, has a stranger say something, and
// lets the peer go on.
func strangerTwin(t *testing.T, earlier, active bool, s State, say []Message) (tr transcript) {
	t.Helper()
	var n uint32
	d := newDialogue(t, func(c *Config) { c.Rand = func() uint32 { n += 0x10; return n } })
	if earlier {
		before := n
		d.earlier()
		n = before
	}
	c := d.reach(active, s)
	d.listenTo(&transcript{})
	type kept struct {
		state       State
		at          any
		remote      CommID
		conns, ways int
		inquiries   int
		events      int
	}
	snapshot := func() kept {
		return kept{c.state, c.timer, c.remoteID, d.m.Len(), len(d.m.byRemote) + len(d.m.byQPN), len(d.m.inquiries), d.m.events.Len()}
	}
	before := snapshot()
	for _, m := range say {
		d.recvFrom(strangerGID, m)
	}
	if after := snapshot(); after != before {
		t.Errorf("%v: %+v, was %+v", say, after, before)
	}
	if len(say) > 1 && !in(s, StateReqSent, StateMRAReqRcvd) && d.m.Counters().Foreign == 0 {
		t.Error("not counted")
	}
	d.checkTables()
	d.goOn(&tr)
	return tr
}

// earlier is a whole connection of somebody at strangerGID, which is over.
func (d *dialogue) earlier() {
	d.Helper()
	l, err := d.m.Listen(ListenParam{ServiceID: service})
	d.must(err)
	d.l = l
	req := strangersREQ()
	d.recvFrom(strangerGID, req)
	c := d.event(ConnectRequest).Conn
	d.must(c.Accept(d.now, acceptParam()))
	d.recvFrom(strangerGID, &RTU{LocalID: req.LocalID, RemoteID: c.LocalID()})
	d.event(Established)
	d.recvFrom(strangerGID, &DREQ{LocalID: req.LocalID, RemoteID: c.LocalID(), RemoteQPN: ownQPN})
	d.event(DisconnectRequest)
	d.must(c.Disconnect(d.now, nil))
	d.advance(time.Hour)
	d.event(TimewaitExit)
	for more := true; more; {
		_, more = d.m.NextMAD()
	}
	d.forgotten()
	d.now = 0
}

// strangersREQ is a REQ of somebody at strangerGID who names the ID, the GUID and
// the QPN of the peer.
func strangersREQ() *REQ {
	req := peerREQ()
	req.Primary.LocalGID = strangerGID
	req.Private = ipPrivate(strangerGID.Addr(), ownAddr, 40001, "")
	return req
}

// TestStrangersREQ: a REQ that names the ID, the GUID or the QPN of somebody else is
// a request of its own. It ends no connection, and the peer whose names it bears
// connects, before and after.
func TestStrangersREQ(t *testing.T) {
	for _, sameID := range []bool{true, false} {
		req := strangersREQ()
		if !sameID {
			req.LocalID += 9
		}
		t.Run(fmt.Sprintf("of a connection, its ID %v", sameID), func(t *testing.T) {
			everyState(t, func(d *dialogue, c *Conn, active bool, _ State) {
				if d.l == nil {
					d.must(second(d.m.Listen(ListenParam{ServiceID: service})))
				}
				timer := c.timer.At
				d.listenTo(&transcript{})
				s := c.State()
				d.recvFrom(strangerGID, req)
				d.state(c, s)
				if c.timer.At != timer {
					t.Error("the timer has moved")
				}
				if o, ok := d.m.NextMAD(); ok {
					t.Errorf("sent to %v: %x", o.To, o.MAD[:32])
				}
				d.event(ConnectRequest)
			})
		})
		t.Run(fmt.Sprintf("in advance, its ID %v", sameID), func(t *testing.T) {
			for n := range passiveStates[:5] {
				d := newDialogue(t)
				d.must(second(d.m.Listen(ListenParam{ServiceID: service})))
				d.recvFrom(strangerGID, req)
				c := d.event(ConnectRequest).Conn
				if n > 1 {
					d.must(c.Accept(d.now, acceptParam()))
					d.m.NextMAD()
				}
				if n > 3 {
					d.recvFrom(strangerGID, &RTU{LocalID: req.LocalID, RemoteID: c.LocalID()})
					d.event(Established)
				}
				d.recv(peerREQ())
				if o, ok := d.m.NextMAD(); ok {
					t.Errorf("the peer got %x", o.MAD[:32])
				}
				if e := d.event(ConnectRequest); e.Conn.PeerAddress() != peerGID {
					t.Errorf("request of %v", e.Conn.PeerAddress())
				}
				d.checkTables()
			}
		})
	}
}

// TestServerNamesAnother: a server that we dialled names the QPN, the GUID and the ID
// of another server in its REP. The connection to the other one stays, and the
// dialled one has what it asked for.
func TestServerNamesAnother(t *testing.T) {
	for _, active := range []bool{true, false} {
		for _, sameID := range []bool{true, false} {
			d := newDialogue(t)
			old := d.reach(active, StateEstablished)
			p := connectParam()
			p.Remote = strangerGID
			c, err := d.m.Connect(d.now, p)
			d.must(err)
			d.m.NextMAD()
			rep := peerREP()
			rep.RemoteID = c.LocalID()
			if !sameID {
				rep.LocalID++
			}
			d.recvFrom(strangerGID, rep)
			d.event(ConnectResponse)
			if o, ok := d.m.NextMAD(); ok {
				t.Errorf("sent to %v: %x", o.To, o.MAD[:32])
			}
			d.state(old, StateEstablished)
			d.state(c, StateMRARepSent)
		}
	}
}

// TestREQNamesThirdParty: the address that a REQ wants the data sent to, and the
// addresses in its RDMA-IP header, must be those that the REQ came from and to.
func TestREQNamesThirdParty(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*REQ)
		reason RejectReason
	}{
		"GID":                 {func(m *REQ) { m.Primary.LocalGID = strangerGID }, RejectInvalidGID},
		"source address":      {func(m *REQ) { m.Private = ipPrivate(strangerGID.Addr(), ownAddr, 1, "") }, RejectConsumer},
		"destination address": {func(m *REQ) { m.Private = ipPrivate(peerAddr, strangerGID.Addr(), 1, "") }, RejectConsumer},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDialogue(t)
			d.must(second(d.m.Listen(ListenParam{ServiceID: service})))
			req := peerREQ()
			tt.change(req)
			d.recv(req)
			o, ok := d.m.NextMAD()
			if !ok || o.To != peerGID {
				t.Fatalf("sent %v to %v", ok, o.To)
			}
			var rej REJ
			d.must(rej.Decode(o.MAD[:]))
			if rej.Reason != tt.reason {
				t.Errorf("reason %v, want %v", rej.Reason, tt.reason)
			}
			d.silent()
			d.forgotten()
		})
	}
}
