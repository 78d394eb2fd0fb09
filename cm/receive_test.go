package cm

import (
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
)

// The tests in this file check the receive rules one by one: each message, in every
// state in which it may arrive.

func in(s State, set ...State) bool { return slices.Contains(set, s) }

// A duplicate REQ is ignored, answered by an MRA while the owner must answer, or refused
// after the end of the connection.
func TestRecvDuplicateREQ(t *testing.T) {
	for _, s := range passiveStates {
		t.Run(s.String(), func(t *testing.T) {
			d := newDialogue(t)
			c := d.passive(s)
			d.recv(peerREQ())
			switch s {
			case StateMRAReqSent:
				d.send(&MRA{Header: Header{TID: peerTID}, LocalID: ownID, RemoteID: peerID, Of: OfREQ, ServiceTimeout: 24})
			case StateTimewait:
				d.send(&REJ{Header: Header{TID: c.tid}, LocalID: ownID, RemoteID: peerID, Of: OfOther, Reason: RejectStaleConn})
			case StateReqRcvd:
				d.event(ConnectRequest)
				s = StateMRAReqSent
			}
			d.silent()
			d.state(c, s)
			if n := d.m.Counters().Duplicates[0]; n != 1 {
				t.Errorf("%d duplicates counted", n)
			}
		})
	}
}

// A new REQ with the QPN of an existing connection: the peer must have lost that connection.
func TestRecvStaleREQ(t *testing.T) {
	for _, s := range passiveStates {
		t.Run(s.String(), func(t *testing.T) {
			d := newDialogue(t)
			c := d.passive(s)
			req := peerREQ()
			req.LocalID++
			d.recv(req)
			if s == StateTimewait {
				// In timewait the QPN does not count as in use.
				d.event(ConnectRequest)
				d.silent()
				return
			}
			d.send(&REJ{Header: Header{TID: peerTID}, RemoteID: peerID + 1, Of: OfREQ, Reason: RejectStaleConn})
			if s == StateEstablished {
				d.send(ownDREQ())
				d.state(c, StateDreqSent)
				d.recv(peerDREP())
				d.event(Disconnected)
				// Now the QPN is free, and the same REQ is accepted.
				d.recv(req)
				d.event(ConnectRequest)
			} else if s == StateReqRcvd {
				d.event(ConnectRequest)
			}
			d.silent()
		})
	}
}

func TestRecvREQWithoutListener(t *testing.T) {
	d := newDialogue(t)
	d.recv(peerREQ())
	d.send(&REJ{Header: Header{TID: peerTID}, RemoteID: peerID, Of: OfREQ, Reason: RejectInvalidServiceID})
	d.silent()
	d.forgotten()
}

func TestRecvREQRefused(t *testing.T) {
	info := [InfoLen]byte(append(slices.Clone(ownGID[:]), make([]byte, InfoLen-16)...))
	for _, tt := range []struct {
		name   string
		change func(*REQ)
		reason RejectReason
		info   [InfoLen]byte
	}{
		{"P_Key", func(m *REQ) { m.PKey = 0x8001 }, RejectInvalidGID, info},
		{"unreachable", func(m *REQ) { m.Primary.LocalGID = strangerGID }, RejectInvalidGID, info},
		{"header version", func(m *REQ) { m.Private[0] = 1 }, RejectConsumer, [72]byte{}},
		{"IP version", func(m *REQ) { m.Private[1] = 0x50 }, RejectConsumer, [72]byte{}},
		{"multicast source", func(m *REQ) { m.Private[16] = 224 }, RejectConsumer, [72]byte{}},
		{"broadcast", func(m *REQ) { copy(m.Private[32:], "\xff\xff\xff\xff") }, RejectConsumer, [72]byte{}},
		{"unspecified", func(m *REQ) { clear(m.Private[16:20]) }, RejectConsumer, [72]byte{}},
		{"loopback", func(m *REQ) { m.Private[16] = 127 }, RejectConsumer, [72]byte{}},
		{"UC", func(m *REQ) { m.Transport = UC }, RejectConsumer, [72]byte{}},
		{"RD", func(m *REQ) { m.Transport = RD }, RejectConsumer, [72]byte{}},
		{"XRC", func(m *REQ) { m.Transport, m.ExtTransport = Extended, ExtXRC }, RejectConsumer, [72]byte{}},
		{"MTU 0", func(m *REQ) { m.MTU = 0 }, RejectInvalidMTU, [72]byte{}},
		{"MTU 6", func(m *REQ) { m.MTU = 6 }, RejectInvalidMTU, [72]byte{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDialogue(t, func(c *Config) {
				c.Reachable = func(local, peer bth.GID) bool { return local == ownGID && peer == peerGID }
			})
			if _, err := d.m.Listen(ListenParam{ServiceID: service}); err != nil {
				t.Fatal(err)
			}
			req := peerREQ()
			tt.change(req)
			d.recv(req)
			want := &REJ{Header: Header{TID: peerTID}, RemoteID: peerID, Of: OfREQ, Reason: tt.reason, Info: tt.info}
			if tt.info != ([InfoLen]byte{}) {
				want.InfoLen = 16
			}
			d.send(want)
			d.silent()
			d.forgotten()
		})
	}
	t.Run("ID 0", func(t *testing.T) {
		d := newDialogue(t)
		req := peerREQ()
		req.LocalID = 0
		d.recv(req)
		d.silent()
	})
}

// A duplicate REP is answered by the RTU again if the connection is established, and by an MRA
// while the owner must answer.
func TestRecvDuplicateREP(t *testing.T) {
	for _, s := range activeStates[2:] {
		t.Run(s.String(), func(t *testing.T) {
			d := newDialogue(t)
			c := d.active(s)
			d.recv(peerREP())
			switch s {
			case StateEstablished:
				d.send(ownRTU())
			case StateMRARepSent:
				d.send(&MRA{Header: Header{TID: ownTID}, LocalID: ownID, RemoteID: peerID, Of: OfREP, ServiceTimeout: 24})
			case StateRepRcvd:
				d.event(ConnectResponse)
				s = StateMRARepSent
			}
			d.silent()
			d.state(c, s)
		})
	}
	t.Run("passive", func(t *testing.T) {
		d := newDialogue(t)
		d.passive(StateEstablished)
		d.recv(peerREP()) // unexpected on the passive side
		d.silent()
	})
	t.Run("unknown", func(t *testing.T) {
		d := newDialogue(t)
		d.recv(peerREP())
		d.silent()
		if n := d.m.Counters().Unmatched; n != 1 {
			t.Errorf("%d unmatched counted", n)
		}
	})
	t.Run("RTU carries its private data again", func(t *testing.T) {
		d := newDialogue(t)
		c := d.active(StateMRARepSent)
		d.must(c.ReadyToUse(d.now, []byte("rtu")))
		rtu := ownRTU()
		copy(rtu.Private[:], "rtu")
		d.send(rtu)
		d.recv(peerREP())
		d.send(rtu)
	})
}

func TestRecvREP(t *testing.T) {
	for _, s := range []State{StateReqSent, StateMRAReqRcvd} {
		t.Run(s.String(), func(t *testing.T) {
			d := newDialogue(t)
			c := d.active(s)
			d.recv(peerREP())
			d.state(c, StateRepRcvd)
			e := d.event(ConnectResponse)
			if e.Conn != c || len(e.Private) != REPPrivateLen || string(e.Private[:3]) != "yes" {
				t.Errorf("event %v, private %q", e, e.Private)
			}
			d.state(c, StateMRARepSent)
			d.advance(time.Hour) // nothing is repeated while the owner must answer
			d.silent()
		})
	}
	t.Run("without ID", func(t *testing.T) {
		d := newDialogue(t)
		c := d.active(StateReqSent)
		rep := peerREP()
		rep.LocalID = 0
		d.recv(rep)
		d.silent()
		d.state(c, StateReqSent)
	})
	t.Run("ID of another connection", func(t *testing.T) {
		d := newDialogue(t)
		d.passive(StateEstablished)
		c, err := d.m.Connect(d.now, connectParam())
		d.must(err)
		d.m.NextMAD()
		rep := peerREP()
		rep.RemoteID, rep.QPN = c.LocalID(), 99
		d.recv(rep)
		d.silent()
		d.state(c, StateReqSent)
		if c.RemoteID() != 0 || c.RemoteGUID() != 0 {
			t.Error("the REP left traces")
		}
	})
	t.Run("stale QPN", func(t *testing.T) {
		d := newDialogue(t)
		old := d.passive(StateEstablished)
		c, err := d.m.Connect(d.now, connectParam())
		d.must(err)
		d.m.NextMAD()
		rep := peerREP()
		rep.LocalID++
		rep.RemoteID = c.LocalID()
		d.recv(rep)
		d.send(&REJ{Header: Header{TID: ownTID}, LocalID: c.LocalID(), RemoteID: peerID + 1, Of: OfREP, Reason: RejectStaleConn})
		d.send(ownDREQ())
		d.silent()
		d.state(old, StateDreqSent)
		d.state(c, StateReqSent)
		d.recv(peerDREP())
		d.event(Disconnected)
		d.recv(rep) // the old connection has ended, so this one is accepted
		d.event(ConnectResponse)
	})
}

func TestRecvRTU(t *testing.T) {
	everyState(t, func(d *dialogue, c *Conn, active bool, s State) {
		rtu := peerRTU()
		copy(rtu.Private[:], "go")
		if in(s, StateReqRcvd, StateRepRcvd) {
			d.m.NextEvent()
			s = c.State()
		}
		d.recv(rtu)
		if !active && in(s, StateRepSent, StateMRARepRcvd) {
			d.state(c, StateEstablished)
			if e := d.event(Established); e.Conn != c || string(e.Private[:3]) != "go\x00" || len(e.Private) != RTUPrivateLen {
				d.Errorf("event %v, private %q", e, e.Private)
			}
		} else {
			d.state(c, s)
		}
		d.silent()
	})
}

func TestRecvMRA(t *testing.T) {
	for _, of := range []Subject{OfREQ, OfREP, OfOther, 3} {
		t.Run(of.String(), func(t *testing.T) {
			everyState(t, func(d *dialogue, c *Conn, active bool, s State) {
				if in(s, StateReqRcvd, StateRepRcvd) {
					d.m.NextEvent()
					s = c.State()
				}
				d.recv(&MRA{LocalID: peerID, RemoteID: ownID, Of: of, ServiceTimeout: 20})
				switch {
				case s == StateReqSent && of == OfREQ:
					d.state(c, StateMRAReqRcvd)
					d.advance(ms(4096 + 512 - 1))
					d.silent()
					d.advance(ms(1))
					d.send(ownREQ())
				case s == StateRepSent && of == OfREP:
					d.state(c, StateMRARepRcvd)
					d.advance(ms(4096 + 1024 - 1))
					d.silent()
					d.advance(ms(1))
					d.send(ownREP())
				default:
					d.state(c, s)
				}
				d.silent()
			})
		})
	}
}

// The DREQ of an unknown connection is answered, too, with the IDs swapped.
func TestRecvUnknownDREQ(t *testing.T) {
	d := newDialogue(t)
	d.recv(peerDREQ())
	d.send(ownDREP(0x5555))
	d.silent()
	d.forgotten()
}

func TestRecvDREQ(t *testing.T) {
	everyState(t, func(d *dialogue, c *Conn, active bool, s State) {
		if in(s, StateReqRcvd, StateRepRcvd) {
			d.m.NextEvent()
			s = c.State()
		}
		wrong := peerDREQ()
		wrong.RemoteQPN++
		if !in(s, StateReqSent, StateMRAReqRcvd) { // in these states the pair of IDs is not known, so the QPN is not checked
			d.recv(wrong)
			d.silent()
			d.state(c, s)
		}
		d.recv(peerDREQ())
		switch s {
		case StateReqSent, StateMRAReqRcvd: // the pair of IDs is not known yet
			d.send(ownDREP(0x5555))
		case StateRepSent, StateMRARepRcvd, StateEstablished, StateDreqSent:
			d.state(c, StateDreqRcvd)
			if e := d.event(DisconnectRequest); e.Conn != c || string(e.Private[:4]) != "bye\x00" || len(e.Private) != DREQPrivateLen {
				d.Errorf("event %v, private %q", e, e.Private)
			}
			d.advance(time.Hour)
			d.silent() // messages of earlier states are not repeated any more
			d.must(c.Disconnect(d.now, []byte("bye bye")))
			drep := ownDREP(0x5555)
			copy(drep.Private[:], "bye bye")
			d.send(drep)
			d.state(c, StateTimewait)
			again := peerDREQ()
			again.TID++
			d.recv(again)
			drep.TID++
			d.send(drep)
		case StateTimewait:
			d.send(ownDREP(0x5555))
		}
		d.silent()
	})
}

func TestRecvDREP(t *testing.T) {
	everyState(t, func(d *dialogue, c *Conn, active bool, s State) {
		if in(s, StateReqRcvd, StateRepRcvd) {
			d.m.NextEvent()
			s = c.State()
		}
		d.recv(peerDREP())
		if in(s, StateDreqSent, StateDreqRcvd) {
			d.state(c, StateTimewait)
			if e := d.event(Disconnected); e.Conn != c || e.Err != nil || string(e.Private[:3]) != "ok\x00" {
				d.Errorf("event %v, private %q", e, e.Private)
			}
		} else {
			d.state(c, s)
		}
		d.silent()
	})
}

// TestRecvREJ: the REJs that a peer may send, and the states in which each has an effect.
func TestRecvREJ(t *testing.T) {
	before := []State{StateReqSent, StateMRAReqRcvd}
	asking := []State{StateReqRcvd, StateMRAReqSent, StateRepSent, StateMRARepRcvd}
	up := []State{StateRepRcvd, StateMRARepSent, StateEstablished, StateDreqSent}
	for _, tt := range []struct {
		name string
		rej  REJ
		hits func(active bool, s State) bool
	}{
		{"of REQ, no ID", REJ{RemoteID: ownID, Of: OfREQ, Reason: RejectInvalidServiceID},
			func(_ bool, s State) bool { return in(s, before...) }},
		{"of REQ, with ID", REJ{LocalID: peerID, RemoteID: ownID, Of: OfREQ, Reason: RejectConsumer},
			func(_ bool, s State) bool { return in(s, before...) }},
		{"of REQ, stale", REJ{RemoteID: ownID, Of: OfREQ, Reason: RejectStaleConn},
			func(_ bool, s State) bool { return in(s, before...) }},
		{"of REP", REJ{LocalID: peerID, RemoteID: ownID, Of: OfREP, Reason: RejectConsumer},
			func(_ bool, s State) bool { return in(s, asking...) || in(s, up...) }},
		{"other, stale", REJ{LocalID: peerID, RemoteID: ownID, Of: OfOther, Reason: RejectStaleConn},
			func(_ bool, s State) bool { return in(s, asking...) || in(s, up...) }},
		{"timeout", REJ{LocalID: peerID, Of: OfOther, Reason: RejectTimeout, InfoLen: 8, Info: [72]byte{7: byte(peerGUID)}},
			func(_ bool, s State) bool { return in(s, asking...) || in(s, up...) }},
		{"timeout, other GUID", REJ{LocalID: peerID, RemoteID: ownID, Of: OfOther, Reason: RejectTimeout, InfoLen: 8},
			func(bool, State) bool { return false }},
		{"other pair", REJ{LocalID: peerID + 1, RemoteID: ownID, Of: OfOther, Reason: RejectConsumer},
			func(bool, State) bool { return false }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everyState(t, func(d *dialogue, c *Conn, active bool, s State) {
				delivered := s != StateReqRcvd
				if s == StateRepRcvd {
					d.m.NextEvent()
					s = StateMRARepSent
				}
				rej := tt.rej
				copy(rej.Private[:], "no")
				d.recv(&rej)
				if !tt.hits(active, s) {
					d.state(c, s)
					if s == StateReqRcvd {
						d.event(ConnectRequest)
					}
					d.silent()
					return
				}
				if in(s, up...) || rej.Reason == RejectStaleConn {
					d.state(c, StateTimewait)
				} else {
					d.state(c, StateIdle)
				}
				if delivered {
					e := d.event(Rejected)
					if e.Conn != c || e.Reason != rej.Reason || string(e.Private[:3]) != "no\x00" ||
						len(e.Private) != REJPrivateLen || len(e.Info) != int(rej.InfoLen) {
						d.Errorf("event %v, private %q, info %x", e, e.Private, e.Info)
					}
				}
				// If the owner has not taken the request, it gets no event.
				d.silent()
				d.advance(ms(1024))
				if delivered && c.State() == StateIdle && (in(s, up...) || rej.Reason == RejectStaleConn) {
					d.event(TimewaitExit)
				}
				d.silent()
				d.forgotten()
			})
		})
	}
}

func TestMalformed(t *testing.T) {
	d := newDialogue(t)
	good := encode(peerREQ())
	d.m.HandleMAD(0, peerGID, ownGID, good[:255])
	d.m.HandleMAD(0, peerGID, ownGID, nil)
	for _, a := range []Attribute{AttrREQ, AttrMRA, AttrREJ, AttrREP, AttrRTU, AttrDREQ, AttrDREP, AttrSIDRREQ,
		AttrSIDRREP, AttrLAP, AttrAPR} {
		bad := encode(attributes[a].new())
		bad[2] = 1
		d.m.HandleMAD(0, peerGID, ownGID, bad)
	}
	for _, from := range []string{"224.0.0.1", "ff02::1", "255.255.255.255", "0.0.0.0", "::"} { // the answer would not go to one host
		d.recvFrom(gid(from), peerREQ())
	}
	good[17] = 1
	d.m.HandleMAD(0, peerGID, ownGID, good)
	d.silent()
	if c := d.m.Counters(); c.Malformed != 2+11+5 || c.Unsupported != 1 {
		t.Errorf("malformed %d, unsupported %d", c.Malformed, c.Unsupported)
	}
}

// Every MAD without an effect is counted as unmatched or duplicate, once.
func TestUselessIsCounted(t *testing.T) {
	all := []Message{peerREQ(), peerREP(), peerRTU(), peerDREQ(), peerDREP(),
		&MRA{LocalID: peerID, RemoteID: ownID, Of: OfREP}, &REJ{LocalID: peerID, RemoteID: ownID, Of: OfOther, Reason: 28}}
	total := func(c Counters) (n uint64) {
		for _, v := range c.Duplicates {
			n += v
		}
		return n + c.Unmatched
	}
	t.Run("unknown", func(t *testing.T) {
		for _, msg := range append(slices.Clone(all[1:]), &SIDRREP{RequestID: 5}) {
			d := newDialogue(t)
			d.recv(msg)
			if n := total(d.m.Counters()); n != 1 {
				t.Errorf("%v: counted %d times", msg.Attribute(), n)
			}
		}
	})
	t.Run("of a stranger", func(t *testing.T) {
		for _, msg := range all[1:] { // without the REQ, which is a valid request of the other address
			d := newDialogue(t)
			d.passive(StateRepSent)
			d.recvFrom(strangerGID, msg)
			c := d.m.Counters()
			if c.Foreign != 1 || c.Unmatched != 1 {
				t.Errorf("%v: counted %d and %d times", msg.Attribute(), c.Foreign, c.Unmatched)
			}
		}
	})
	t.Run("too late", func(t *testing.T) {
		for _, msg := range all {
			d := newDialogue(t)
			d.passive(StateTimewait)
			before := total(d.m.Counters())
			d.recv(msg)
			if n := total(d.m.Counters()) - before; n != 1 {
				t.Errorf("%v: counted %d times", msg.Attribute(), n)
			}
		}
	})
	t.Run("too early", func(t *testing.T) {
		for _, msg := range []Message{peerRTU(), peerDREQ(), peerDREP(), &MRA{LocalID: peerID, RemoteID: ownID, Of: OfREP}} {
			d := newDialogue(t)
			d.passive(StateMRAReqSent)
			d.recv(msg)
			if n := total(d.m.Counters()); n != 1 {
				t.Errorf("%v: counted %d times", msg.Attribute(), n)
			}
		}
	})
	t.Run("unusable", func(t *testing.T) {
		req, rep, dreq := peerREQ(), peerREP(), peerDREQ()
		req.LocalID, rep.LocalID, dreq.RemoteQPN = 0, 0, 99
		d := newDialogue(t)
		d.active(StateReqSent)
		d.recv(req)
		d.recv(rep)
		if n := d.m.Counters().Unmatched; n != 2 {
			t.Errorf("counted %d times", n)
		}
		d = newDialogue(t)
		d.active(StateEstablished)
		d.recv(dreq)
		if n := d.m.Counters().Unmatched; n != 1 {
			t.Errorf("counted %d times", n)
		}
	})
}
