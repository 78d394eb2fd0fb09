package cm

import (
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
)

// TestLAPsCross: if both sides send a LAP, that of the active side has precedence, in any order of
// arrival.
func TestLAPsCross(t *testing.T) {
	t.Run("active", func(t *testing.T) {
		d := newDialogue(t)
		c := d.active(StateEstablished)
		d.must(c.LoadAlternate(d.now, altPath(), nil))
		d.send(ownLAP(1))
		d.recv(peerLAP(1))
		d.send(ownAPR(1, APReject))
		d.silent()
		d.recv(peerAPR(ownLAP(1).TID, APLoaded))
		d.event(AlternateResponse)
		d.alternate(c, of(wire(altSeen(17))))
	})
	t.Run("passive", func(t *testing.T) {
		d := newDialogue(t)
		c := d.passive(StateEstablished)
		d.must(c.LoadAlternate(d.now, AlternatePath{Local: ownAlt, Remote: peerAlt, FlowLabel: 1}, nil))
		lap, _ := d.m.NextMAD()
		d.recv(peerLAP(1))
		if e := d.event(AlternateResponse); e.AP != APReject || e.Err != nil || e.Alternate.FlowLabel != 1 {
			t.Errorf("%v", e)
		}
		d.event(AlternateRequest)
		d.must(c.AnswerAlternate(d.now, AlternateAnswer{}))
		d.send(ownAPR(1, APLoaded))
		d.recv(peerAPR(be64(lap.MAD[8:]), APReject)) // has no effect: our LAP has already lost
		d.silent()
		d.advance(time.Hour)
		d.silent()
		d.alternate(c, of(altSeen(18)))
	})
}

// TestEndDuringLAP: every end of the connection also ends the exchange of LAP and APR, on both
// sides.
func TestEndDuringLAP(t *testing.T) {
	ends := map[string]struct {
		do   func(d *dialogue, c *Conn)
		told EventKind
	}{
		"DREQ": {func(d *dialogue, c *Conn) { d.recv(peerDREQ()) }, DisconnectRequest},
		"REJ": {func(d *dialogue, c *Conn) {
			d.recv(&REJ{LocalID: peerID, RemoteID: ownID, Of: OfOther, Reason: 4 + 24})
		}, Rejected},
		"disconnect": {func(d *dialogue, c *Conn) { d.must(c.Disconnect(d.now, nil)); d.send(ownDREQ()); d.recv(peerDREP()) }, Disconnected},
		"destroy":    {func(d *dialogue, c *Conn) { c.Destroy(d.now); d.send(ownDREQ()); d.recv(peerDREP()) }, 0},
	}
	for name, end := range ends {
		for _, way := range []string{"asking", "asked", "not taken"} {
			t.Run(name+" "+way, func(t *testing.T) {
				d := newDialogue(t)
				c := d.active(StateEstablished)
				switch way {
				case "asking":
					d.must(c.LoadAlternate(d.now, altPath(), nil))
					d.send(ownLAP(1))
				case "asked", "not taken":
					d.recv(peerLAP(1))
				}
				if way == "asked" {
					d.event(AlternateRequest)
				}
				end.do(d, c)
				if end.told != 0 {
					d.event(end.told)
				}
				d.checkTables()
				d.recv(peerAPR(ownLAP(1).TID, APLoaded))
				wantErrno(t, c.AnswerAlternate(d.now, AlternateAnswer{}), syscall.EINVAL)
				if e, ok := d.m.NextEvent(); ok {
					t.Errorf("unexpected %v", e)
				}
				d.finish(c)
			})
		}
	}
}

// TestMigrated: after a migration MADs use the new path, and the Manager accepts MADs from both
// addresses of the peer.
func TestMigrated(t *testing.T) {
	from := func(d *dialogue, from, to bth.GID, m Message) { d.m.HandleMAD(d.now, from, to, encode(m)) }
	sent := func(d *dialogue, from, to bth.GID, a Attribute) {
		t.Helper()
		o, ok := d.m.NextMAD()
		if !ok || o.From != from || o.To != to || Attribute(be16(o.MAD[16:])) != a {
			t.Fatalf("%v: %v->%v %v, want %v->%v %v", ok, o.From.Addr(), o.To.Addr(), Attribute(be16(o.MAD[16:])), from.Addr(), to.Addr(), a)
		}
	}
	for _, active := range []bool{true, false} {
		d := newDialogue(t)
		c := d.asked(active)
		from(d, peerAlt, ownAlt, peerDREQ()) // ignored: the path is not agreed on yet
		if n := d.m.Counters().Foreign; n != 1 {
			t.Errorf("%d foreign", n)
		}
		d.must(c.AnswerAlternate(d.now, AlternateAnswer{}))
		d.send(ownAPR(1, APLoaded))

		d.must(c.Migrated(d.now))
		if c.LocalGID() != ownAlt || c.RemoteGID() != peerAlt || c.PeerAddress() != peerAlt {
			t.Errorf("%v %v %v", c.LocalGID(), c.RemoteGID(), c.PeerAddress())
		}
		d.alternate(c, nil)
		wantErrno(t, c.Migrated(d.now), syscall.EINVAL)

		// To go back to the old path, it is loaded as an alternate path.
		d.must(c.LoadAlternate(d.now, AlternatePath{Local: ownGID, Remote: peerGID}, nil))
		sent(d, ownAlt, peerAlt, AttrLAP)
		from(d, peerGID, ownGID, peerAPR(ownLAP(1).TID, APLoaded)) // from the address that the peer had before
		d.event(AlternateResponse)
		from(d, strangerGID, ownAlt, peerDREQ())
		d.silent()
		d.state(c, StateEstablished)
		if active {
			d.must(c.Disconnect(d.now, nil))
			sent(d, ownAlt, peerAlt, AttrDREQ)
			d.advance(ms(100))
			sent(d, ownAlt, peerAlt, AttrDREQ)
			from(d, peerAlt, ownAlt, peerDREP())
			d.event(Disconnected)
		} else {
			from(d, peerAlt, ownAlt, peerDREQ())
			d.event(DisconnectRequest)
			d.must(c.Disconnect(d.now, nil))
			sent(d, ownAlt, peerAlt, AttrDREP)
		}
		d.finish(c)
	}
	t.Run("peer first", func(t *testing.T) {
		d := newDialogue(t)
		c := d.asked(true)
		d.must(c.AnswerAlternate(d.now, AlternateAnswer{}))
		d.m.NextMAD()
		from(d, peerAlt, ownAlt, peerDREQ()) // the peer's QP has migrated, ours has not yet
		d.event(DisconnectRequest)
		d.finish(c)
	})
	t.Run("during a LAP", func(t *testing.T) {
		d := newDialogue(t)
		c := d.asked(true)
		d.must(c.AnswerAlternate(d.now, AlternateAnswer{}))
		d.m.NextMAD()
		p := altPath()
		p.FlowLabel = 4
		d.must(c.LoadAlternate(d.now, p, nil))
		sent(d, ownGID, peerGID, AttrLAP)
		d.must(c.Migrated(d.now))
		sent(d, ownAlt, peerAlt, AttrLAP)
	})
}

// TestAlternateOfUsers: two Managers agree on an alternate path, and both ends have the same one.
func TestAlternateOfUsers(t *testing.T) {
	p := newPair(t)
	var b *Conn
	p.on = func(e Event) {
		if e.Kind == AlternateRequest {
			b = e.Conn
			if err := e.Conn.AnswerAlternate(p.now, AlternateAnswer{}); err != nil {
				t.Error(err)
			}
		}
	}
	c := p.connect(t, 2)
	p.settle(t)
	if err := c.LoadAlternate(p.now, altPath(), nil); err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	x, ok := c.Alternate()
	y, ok2 := b.Alternate()
	if x.LocalLID, x.RemoteLID = 0, 0; !ok || !ok2 || x != mirrored(y) {
		t.Errorf("%v %v %v %v", ok, &x, ok2, &y)
	}
}
