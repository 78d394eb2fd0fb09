package cm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
)

// TestREPRepeated: the peer cannot choose how long an accepted connection waits for its RTU, and
// how many REPs it sends.
func TestREPRepeated(t *testing.T) {
	for _, code := range []uint8{0, 8, 19, 20, 31} {
		for _, retries := range []uint8{0, 3, 15} {
			d := newDialogue(t)
			d.must(second(d.m.Listen(ListenParam{ServiceID: service})))
			req := peerREQ()
			req.LocalResponseTimeout, req.RemoteResponseTimeout, req.MaxCMRetries = code, code, retries
			d.recv(req)
			c := d.event(ConnectRequest).Conn
			d.must(c.Accept(d.now, acceptParam()))
			d.send(ownREP())
			began := d.now
			for _, after := range []time.Duration{ms(500), ms(1500), ms(3500), ms(7500)} {
				d.advance(began.Add(after).Sub(d.now) - 1)
				d.silent()
				d.advance(1)
				d.send(ownREP())
			}
			d.advance(began.Add(DefaultHalfOpenTimeout).Sub(d.now) - 1)
			d.silent()
			d.state(c, StateRepSent)
			d.advance(1)
			d.send(timeoutREJ(peerTID, peerID))
			if e := d.event(Unreachable); !errors.Is(e.Err, ErrTimeout) {
				t.Error(e)
			}
			d.silent()
			d.forgotten()
		}
	}
}

// TestREPAfterMRA: a peer that asks by an MRA for time before its RTU gets at most MaxTimeout,
// once, and a few more REPs.
func TestREPAfterMRA(t *testing.T) {
	d := newDialogue(t)
	c := d.passive(StateMRARepRcvd)
	wait := ms(65536 + 1024)
	for range 2 {
		d.advance(wait/2 - 1)
		d.silent()
		d.recv(&MRA{LocalID: peerID, RemoteID: ownID, Of: OfREP, ServiceTimeout: 31}) // a second MRA has no effect
	}
	d.advance(2)
	d.send(ownREP())
	d.advance(maxREPPause)
	d.send(ownREP())
	d.send(ownREP())
	d.send(timeoutREJ(peerTID, peerID))
	d.event(Unreachable)
	d.state(c, StateIdle)
	d.forgotten()
}

// TestSlowLossyPeer: a peer with the timeouts of Linux connects over a path
// with a delay of two seconds that loses the first few REPs.
func TestSlowLossyPeer(t *testing.T) {
	for lost := range 4 {
		d := newDialogue(t)
		d.must(second(d.m.Listen(ListenParam{ServiceID: service})))
		req := peerREQ()
		req.LocalResponseTimeout, req.MaxCMRetries = 20, 15
		d.recv(req)
		c := d.event(ConnectRequest).Conn
		d.must(c.Accept(d.now, acceptParam()))
		d.send(ownREP())
		for range lost {
			d.advance(d.m.NextTimeout().Sub(d.now))
			d.send(ownREP())
		}
		d.advance(4 * time.Second)
		d.recv(peerRTU())
		d.state(c, StateEstablished)
	}
}

// TestRequestExpires: a request that the owner does not answer ends after the request timeout,
// whether the owner has taken the event or not. It frees its place in the backlog, and
// NextEvent does not return it any more.
func TestRequestExpires(t *testing.T) {
	for _, own := range []time.Duration{0, time.Second} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("timeout %v, taken %v", own, taken), func(t *testing.T) {
				d := newDialogue(t)
				l, err := d.m.Listen(ListenParam{ServiceID: service, Backlog: 1, RequestTimeout: own})
				d.must(err)
				d.recv(peerREQ())
				c := d.m.byRemote[remoteKey{peerID, peerGUID, peerGID}]
				if taken {
					d.event(ConnectRequest)
				}
				limit := DefaultRequestTimeout
				if own != 0 {
					limit = own
				}
				d.advance(limit - 1)
				if l.Pending() != 1 || c.State() == StateIdle {
					t.Fatalf("%d pending, %v", l.Pending(), c.State())
				}
				d.advance(1)
				if taken {
					d.send(&REJ{Header: Header{TID: peerTID}, LocalID: ownID, RemoteID: peerID, Of: OfREQ, Reason: RejectNoResources})
					e := d.event(Unreachable)
					wantErrno(t, e.Err, ErrExpired)
					wantErrno(t, e.Err, syscall.ECONNABORTED)
				}
				d.silent()
				d.state(c, StateIdle)
				d.forgotten()
				if err := c.Accept(d.now, acceptParam()); err == nil {
					t.Error("accepted")
				}
				if n := d.m.Counters().Expired; n != 1 || l.Pending() != 0 {
					t.Errorf("%d expired, %d pending", n, l.Pending())
				}
				d.recv(nth(1))
				d.event(ConnectRequest)
			})
		}
	}
}

// TestInquiryExpires: the same for inquiries about UD queue pairs.
func TestInquiryExpires(t *testing.T) {
	for _, taken := range []bool{false, true} {
		d := newDialogue(t)
		l, err := d.m.Listen(ListenParam{ServiceID: udp, Backlog: 1})
		d.must(err)
		d.recv(peerSIDRREQ())
		var q *Inquiry
		if taken {
			q = d.event(ServiceRequest).Inquiry
		}
		d.advance(DefaultRequestTimeout)
		if taken {
			if e := d.event(ServiceRequestOver); e.Inquiry != q {
				t.Error(e)
			}
			wantErrno(t, q.Accept(1, 0, nil), ErrExpired)
			wantErrno(t, q.Reject(0, nil), syscall.ECONNABORTED)
		}
		d.silent()
		d.forgotten()
		if l.Pending() != 0 || d.m.Counters().Expired != 1 {
			t.Errorf("%d pending, %d expired", l.Pending(), d.m.Counters().Expired)
		}
		d.recv(peerSIDRREQ())
		d.event(ServiceRequest)
	}
}

// spoofed returns the n-th of many addresses, none of which is the peer's.
func spoofed(n int) bth.GID {
	g := gid("10.1.0.0")
	binary.BigEndian.PutUint16(g[13:], uint16(n>>8)+0x100)
	g[15] = byte(n)
	return g
}

// forged returns the n-th REQ of a flood, from a source.
func forged(n int, from, to bth.GID) *REQ {
	req := nth(n)
	req.LocalID, req.QPN, req.LocalGUID = CommID(n+1), bth.QPN(n&0xFFFFFF), GUID(n+1)
	req.Primary.LocalGID = from
	req.Private = ipPrivate(from.Addr(), to.Addr(), 1, "")
	// The longest times and most retries possible.
	req.LocalResponseTimeout, req.MaxCMRetries, req.Primary.AckTimeout = 31, 15, 31
	return req
}

// TestFlood: 100 000 REQs arrive, from one source or from many, while the owner
// answers at once, late or never. The state of the Manager stays bounded, and another peer
// connects with its first REQ, with a round trip of a millisecond.
func TestFlood(t *testing.T) {
	const n, every = 100_000, 100 * time.Microsecond
	for name, source := range map[string]func(int) bth.GID{
		"one source":   func(int) bth.GID { return strangerGID },
		"one /64":      func(i int) bth.GID { g := gid("fd00::"); g[15], g[14] = byte(i), byte(i>>8); return g },
		"many sources": spoofed,
	} {
		for _, answers := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, answered %v", name, answers), func(t *testing.T) {
				d := newDialogue(t, func(c *Config) { c.MaxHalfOpen = 256 })
				const backlog = 64
				d.must(second(d.m.Listen(ListenParam{ServiceID: service, Backlog: backlog})))
				at := func(i int) bth.GID {
					if g := source(i); g.Is4() {
						return ownGID
					}
					return gid("fd00:1::1")
				}
				var c *Conn
				for i := range n {
					d.now = d.now.Add(every)
					d.m.HandleTimeout(d.now)
					from, to := source(i), at(i)
					d.recvAt(from, to, forged(i, from, to))
					switch i {
					case n / 2:
						d.recv(peerREQ())
					case n/2 + 10:
						if c == nil {
							t.Fatal("the peer's request was not handed out within a millisecond")
						}
						d.must(c.Accept(d.now, acceptParam()))
					case n/2 + 20:
						d.recv(&RTU{LocalID: peerID, RemoteID: c.LocalID()})
						d.state(c, StateEstablished)
					}
					for {
						e, ok := d.m.NextEvent()
						if !ok {
							break
						}
						switch {
						case e.Kind != ConnectRequest:
						case e.Conn.PeerAddress() == peerGID:
							c = e.Conn
						case answers:
							d.must(e.Conn.Accept(d.now, acceptParam()))
						}
					}
					for more := true; more; {
						_, more = d.m.NextMAD()
					}
					if d.m.halfOpen.n > 256 || d.m.Len() > 256+1 || d.m.events.Len() > 0 {
						t.Fatalf("%d half-open, %d remembered", d.m.halfOpen.n, d.m.Len())
					}
				}
				d.checkTables()
				if got := d.m.Counters(); name == "many sources" && got.Evicted == 0 || name != "many sources" && got.RequestsFull == 0 {
					t.Errorf("%d evicted, %d full: no flood", got.Evicted, got.RequestsFull)
				}
				d.advance(2 * time.Minute)
				for more := true; more; {
					_, more = d.m.NextEvent()
				}
				if d.m.Len() != 1 {
					t.Errorf("%d remembered in the end", d.m.Len())
				}
			})
		}
	}
}

// TestShares: when there is no more room, a new request evicts the oldest one of the source that
// holds most, if its own source holds less. Two sources that hold the same number do not displace
// each other.
func TestShares(t *testing.T) {
	d := newDialogue(t, func(c *Config) { c.MaxHalfOpen = 4 })
	d.must(second(d.m.Listen(ListenParam{ServiceID: service})))
	n := 0
	try := func(from string) (taken bool) {
		n++
		req := forged(n, gid(from), ownGID)
		full := d.m.Counters().RequestsFull
		d.recvFrom(gid(from), req)
		d.checkTables()
		return d.m.Counters().RequestsFull == full
	}
	has := func(want ...CommID) {
		t.Helper()
		if d.m.Len() != len(want) {
			t.Errorf("%d remembered, want %v", d.m.Len(), want)
		}
		for _, id := range want {
			found := false
			for _, c := range d.m.byLocal {
				found = found || c.remoteID == id
			}
			if !found {
				t.Errorf("%v is gone, want %v", id, want)
			}
		}
	}
	for _, tt := range []struct {
		from  string
		taken bool
		left  []CommID
	}{
		{"10.0.0.7", true, []CommID{2}}, {"10.0.0.7", true, []CommID{2, 3}}, {"10.0.0.7", true, []CommID{2, 3, 4}},
		{"10.0.0.7", true, []CommID{2, 3, 4, 5}},
		{"10.0.0.7", false, []CommID{2, 3, 4, 5}}, // its own share
		{"10.0.0.8", true, []CommID{3, 4, 5, 7}},
		{"10.0.0.8", true, []CommID{4, 5, 7, 8}},
		{"10.0.0.8", false, []CommID{4, 5, 7, 8}}, // as many as the other
		{"10.0.0.9", true, []CommID{5, 7, 8, 10}},
		{"10.0.0.8", false, []CommID{5, 7, 8, 10}}, // has most itself
		{"10.0.0.7", false, []CommID{5, 7, 8, 10}},
		{"10.0.0.6", true, []CommID{5, 8, 10, 13}},
		{"10.0.0.5", true, []CommID{8, 10, 13, 14}}, // one each: the oldest
	} {
		if got := try(tt.from); got != tt.taken {
			t.Errorf("%v: taken %v, want %v", tt.from, got, tt.taken)
		}
		has(tt.left...)
	}
}

// TestEvictedIsTold: a peer that may have the REP, or was asked to wait, gets a REJ when its
// connection is evicted. The owner gets an event if it has taken an event of the connection.
func TestEvictedIsTold(t *testing.T) {
	for _, s := range passiveStates[:4] {
		t.Run(s.String(), func(t *testing.T) {
			for _, again := range []bool{false, true} {
				d := newDialogue(t, func(c *Config) { c.MaxHalfOpen = 1 })
				c := d.passive(s)
				if again && s == StateMRAReqSent {
					d.recv(peerREQ())
					d.m.NextMAD() // the MRA
				}
				d.recvFrom(strangerGID, forged(1, strangerGID, ownGID))
				switch {
				case s == StateRepSent || s == StateMRARepRcvd:
					d.send(&REJ{Header: Header{TID: peerTID}, LocalID: ownID, RemoteID: peerID, Of: OfOther, Reason: RejectNoResources})
				case again && s == StateMRAReqSent:
					d.send(&REJ{Header: Header{TID: peerTID}, LocalID: ownID, RemoteID: peerID, Of: OfREQ, Reason: RejectNoResources})
				}
				if s != StateReqRcvd {
					e := d.event(Unreachable)
					wantErrno(t, e.Err, ErrEvicted)
				}
				if e := d.event(ConnectRequest); e.Conn == c {
					t.Error(e)
				}
				d.silent()
				d.state(c, StateIdle)
			}
		})
	}
}

// TestPressure: when the backlog is full, peers that do not answer do not delay an owner that
// accepts one request after the other.
func TestPressure(t *testing.T) {
	d := newDialogue(t)
	d.must(second(d.m.Listen(ListenParam{ServiceID: service, Backlog: 2})))
	d.recv(nth(0))
	c := d.event(ConnectRequest).Conn
	d.must(c.Accept(d.now, acceptParam()))
	d.recv(nth(1))
	d.recv(nth(2))
	d.advance(2 * time.Second)
	d.state(c, StateIdle)
}

// TestRepliesLimited: the number of messages per second to unconfirmed addresses is limited, for
// each source and in all. There are never more answers than received messages.
func TestRepliesLimited(t *testing.T) {
	provoke := map[string]func(n int) Message{
		"REQ":      func(n int) Message { m := nth(n); m.ServiceID = 1 << 60; return m },
		"DREQ":     func(n int) Message { return &DREQ{LocalID: CommID(n), RemoteID: 77} },
		"LAP":      func(n int) Message { return &LAP{LocalID: CommID(n), RemoteID: 77} },
		"SIDR_REQ": func(n int) Message { return &SIDRREQ{RequestID: CommID(n), ServiceID: 1 << 60, PKey: 0xFFFF} },
	}
	for name, msg := range provoke {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, many sources %v", name, many), func(t *testing.T) {
				d := newDialogue(t, func(c *Config) { c.ReplyRate, c.TotalReplyRate = 10, 100 })
				limit := 10
				if many {
					limit = 100
				}
				const seconds, perSecond = 20, 1000
				sent := 0
				for n := range seconds * perSecond {
					d.now = d.now.Add(time.Second / perSecond)
					from := peerGID
					if many {
						from = spoofed(n)
					}
					d.recvFrom(from, msg(n))
					for _, ok := d.m.NextMAD(); ok; _, ok = d.m.NextMAD() {
						sent++
					}
				}
				if sent < seconds*limit || sent > (seconds+1)*limit {
					t.Errorf("%d answers in %d s, want %d a second", sent, seconds, limit)
				}
				if got := d.m.Counters().RepliesLimited; got != uint64(seconds*perSecond-sent) {
					t.Errorf("%d counted as dropped, want %d", got, seconds*perSecond-sent)
				}
			})
		}
	}
	t.Run("REP", func(t *testing.T) {
		d := newDialogue(t)
		d.must(second(d.m.Listen(ListenParam{ServiceID: service})))
		sent := 0
		const n = 1000
		for i := range n {
			d.recv(nth(i))
			d.must(d.event(ConnectRequest).Conn.Accept(d.now, acceptParam()))
			d.m.NextMAD()
		}
		for range 20 {
			d.advance(time.Second)
			for _, ok := d.m.NextMAD(); ok; _, ok = d.m.NextMAD() {
				sent++
			}
		}
		if limit := 21 * DefaultReplyRate / costUnprovoked; sent == 0 || sent > limit {
			t.Errorf("%d messages to a silent peer after the REPs, at most %d", sent, limit)
		}
	})
	t.Run("a rate below the cost of a message without a cause", func(t *testing.T) {
		l := newReplyLimiter(1, 1)
		if !l.allow(0, peerGID, costUnprovoked) || l.allow(1, peerGID, costProvoked) || !l.allow(20e9, peerGID, costUnprovoked) {
			t.Error("the limiter stands still, or limits nothing")
		}
	})
}

// TestConfirmedSource: a source that has confirmed a connection gets all repetitions of its lost
// REPs, even if unconfirmed sources have used up the rate; it also gets a REJ for each of its
// connections that is given up. When its connections have ended, the source counts as unconfirmed
// again.
func TestConfirmedSource(t *testing.T) {
	d := newDialogue(t)
	first := d.passive(StateEstablished)
	const many = 200
	count := func(after time.Duration) (to int) {
		for i := range 5000 {
			d.recvFrom(spoofed(i), &DREQ{LocalID: CommID(i), RemoteID: 77})
		}
		d.advance(after)
		for o, ok := d.m.NextMAD(); ok; o, ok = d.m.NextMAD() {
			to += one(o.To == peerGID)
		}
		return to
	}
	begin := func(from int) {
		for i := range many {
			d.recv(nth(from + i))
			d.must(d.event(ConnectRequest).Conn.Accept(d.now, acceptParam()))
			d.m.NextMAD()
		}
	}
	begin(1)
	for _, after := range []time.Duration{ms(500), ms(1000), ms(2000), ms(4000), ms(2500)} {
		if n := count(after); n != many {
			t.Errorf("%d messages after %v more, want %d", n, after, many)
		}
	}
	for range many {
		d.event(Unreachable)
	}
	d.must(first.Disconnect(d.now, nil))
	d.recv(peerDREP())
	count(time.Minute)
	d.event(Disconnected)
	d.event(TimewaitExit)
	begin(1 + many)
	if n := count(ms(500)); n > DefaultReplyRate/costUnprovoked {
		t.Errorf("%d REPs repeated to a stranger", n)
	}
}

// TestRoomAtMaxConns: with MaxConns connections, a request of a source that holds none evicts
// a half-open connection, although the owner has not taken the event of that one's end yet.
func TestRoomAtMaxConns(t *testing.T) {
	d := newDialogue(t, func(c *Config) { c.MaxConns = 2 })
	d.m.Listen(ListenParam{ServiceID: service})
	for n := range 2 {
		d.recvFrom(spoofed(1), forged(n, spoofed(1), ownGID))
		d.event(ConnectRequest)
	}
	d.recvFrom(spoofed(2), forged(9, spoofed(2), ownGID))
	if c := d.m.Counters(); d.m.Len() != 2 || c.Evicted != 1 || c.RequestsFull != 0 {
		t.Fatalf("%d connections, %d evicted, %d requests dropped; want 2, 1, 0", d.m.Len(), c.Evicted, c.RequestsFull)
	}
	d.event(Unreachable)
	if e := d.event(ConnectRequest); e.Conn.PeerAddress() != spoofed(2) {
		t.Error(e)
	}
	d.recvFrom(spoofed(2), forged(10, spoofed(2), ownGID)) // has its share
	if c := d.m.Counters(); c.Evicted != 1 || c.RequestsFull != 1 {
		t.Errorf("%d evicted, %d requests dropped; want 1, 1", c.Evicted, c.RequestsFull)
	}
}

// TestShareOfMaxConns: the last eighth of MaxConns is for sources that hold less than an
// eighth. Accepted connections count, too.
func TestShareOfMaxConns(t *testing.T) {
	const most = 64
	d := newDialogue(t, func(c *Config) { c.MaxConns = most })
	d.m.Listen(ListenParam{ServiceID: service})
	connect := func(n int, from bth.GID) bool {
		before := d.m.Len()
		d.recvFrom(from, forged(n, from, ownGID))
		if d.m.Len() == before {
			return false
		}
		c := d.event(ConnectRequest).Conn
		d.must(c.Accept(d.now, acceptParam()))
		for d.m.out.Len() > 0 {
			d.m.NextMAD()
		}
		d.must(c.CommEstablished(d.now))
		d.event(Established)
		return true
	}
	taken := 0
	for n := range 2 * most {
		if connect(n, spoofed(1)) {
			taken++
		}
	}
	if taken != most-most/8 {
		t.Errorf("one source got %d of %d connections", taken, most)
	}
	for n := range most / 8 {
		if !connect(n, spoofed(2)) {
			t.Fatalf("another source got %d connections", n)
		}
	}
	for _, c := range d.m.byLocal {
		c.Destroy(d.now)
	}
	d.advance(time.Hour)
	if len(d.m.passive) != 0 {
		t.Errorf("sources remain: %v", d.m.passive)
	}
}
