package cm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// strangerSays returns every CM message with the IDs, the GUID and the QPNs of a
// connection between ownGID and peerGID: a third host that knows these numbers could
// send them. The service of the REQ has no listener, because a REQ for a
// listener is a valid request of the third host, see TestStrangersREQ.
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

// transcript has the messages of a Manager to the peer, and its events.
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

// goOn lets the peer continue: it sends the messages that may still come, and begins a new
// connection with the same QPN.
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

// TestStrangers: a message from an address that does not belong to the connection has no effect, in
// every state of either side: it changes neither the state nor a timer, the Manager does not keep
// it, it causes no event, and the true peer continues as if it had not arrived. That holds for an
// unknown address, and for the address of an earlier connection.
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

// strangerTwin brings a connection to a state, receives messages from a third host, and
// lets the peer continue.
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

// earlier runs a whole connection with a peer at strangerGID, until its end.
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

// strangersREQ returns a REQ of a host at strangerGID with the ID, the GUID and
// the QPN of the peer.
func strangersREQ() *REQ {
	req := peerREQ()
	req.Primary.LocalGID = strangerGID
	req.Private = ipPrivate(strangerGID.Addr(), ownAddr, 40001, "")
	return req
}

// TestStrangersREQ: a REQ with the ID, the GUID or the QPN of another host is
// a separate request. It ends no connection, and the host whose numbers it has
// can connect, before and after.
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

// TestServerNamesAnother: a server to which we connect sends a REP with the QPN, the GUID and the
// ID of another server. The connection to the other server stays, and the connection to the first
// one is established.
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

// TestREQNamesThirdParty: the address of the queue pair in a REQ, and the
// addresses in its RDMA-IP header, must be the source and the destination of the REQ.
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
