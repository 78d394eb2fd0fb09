package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/goroce/roce/bth"
)

// TestRetransmission: each message that needs an answer is repeated at Linux's
// intervals, as often as the REQ says, and then given up.
func TestRetransmission(t *testing.T) {
	for _, tt := range []struct {
		name    string
		active  bool
		state   State
		msg     Message
		every   time.Duration
		retries int
		reports EventKind
		rej     *REJ
		early   int // repetitions before the first interval: after 100 ms, 200 ms, …
	}{
		// 2·256 ms + 4096 ms.
		{"REQ", true, StateReqSent, ownREQ(), ms(4608), 15, Unreachable, timeoutREJ(ownTID, 0), 0},
		{"REQ after MRA", true, StateMRAReqRcvd, ownREQ(), ms(4608), 15, Unreachable, timeoutREJ(ownTID, 0), 0},
		{"LAP", true, StateEstablished, ownLAP(1), ms(4608), 15, AlternateResponse, nil, 0},
		// The values in the REQ of the peer: code 19, 3 retries.
		{"LAP of the passive side", false, StateEstablished, passiveLAP(), ms(2048), 3, AlternateResponse, nil, 0},
		{"DREQ of the active side", true, StateDreqSent, ownDREQ(), ms(4608), 15, Disconnected, nil, 6},
		{"DREQ of the passive side", false, StateDreqSent, ownDREQ(), ms(2048), 3, Disconnected, nil, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDialogue(t)
			c := d.reach(tt.active, tt.state)
			if tt.reports == AlternateResponse {
				d.must(c.LoadAlternate(d.now, altPath(), nil))
				d.send(tt.msg)
			}
			again := func(after time.Duration) {
				t.Helper()
				d.advance(after - 1)
				d.silent()
				d.advance(1)
				d.send(tt.msg)
				d.silent()
				d.state(c, tt.state)
			}
			for i := range tt.early {
				again(ms(100 << i))
			}
			for i := range tt.retries {
				if i == 0 && tt.state == StateMRAReqRcvd {
					again(ms(65536 + 512)) // the time in the peer's MRA, once
				} else {
					again(tt.every)
				}
			}
			d.advance(tt.every - 1)
			d.silent()
			d.advance(1)
			if tt.rej != nil {
				d.send(tt.rej)
			}
			e := d.event(tt.reports)
			if e.Conn != c || !errors.Is(e.Err, ErrTimeout) || !errors.Is(e.Err, syscall.ETIMEDOUT) {
				t.Errorf("event %v", e)
			}
			if tt.reports == AlternateResponse { // the connection stays
				d.state(c, StateEstablished)
				d.must(c.LoadAlternate(d.now, altPath(), nil))
				d.m.NextMAD()
				d.finish(c)
				return
			}
			if tt.reports == Disconnected {
				d.state(c, StateTimewait)
				d.advance(2 * time.Second)
				d.event(TimewaitExit)
			}
			d.state(c, StateIdle)
			d.silent()
			d.forgotten()
			a := tt.msg.Attribute() - AttrREQ
			if n := d.m.Counters(); n.Retries[a] != uint64(tt.retries+tt.early) || n.Sent[a] != uint64(tt.retries+tt.early)+1 {
				t.Errorf("sent %d, retries %d", n.Sent[a], n.Retries[a])
			}
		})
	}
}

// TestLateTimer: if HandleTimeout is called late, it handles a timer once, not once for each missed
// interval.
func TestLateTimer(t *testing.T) {
	d := newDialogue(t)
	d.active(StateReqSent)
	d.now = d.now.Add(time.Hour)
	d.m.HandleTimeout(d.now)
	d.send(ownREQ())
	d.silent()
	if got, want := d.m.NextTimeout(), d.now.Add(ms(4608)); got != want {
		t.Errorf("next %v, want %v", got, want)
	}
}

func TestTimewait(t *testing.T) {
	for _, active := range []bool{true, false} {
		d := newDialogue(t)
		c := d.reach(active, StateTimewait)
		wait := ms(512) // code 17
		if !active {
			wait = ms(1024) // code 18, from the REQ
		}
		if got, want := d.m.NextTimeout(), d.now.Add(wait); got != want {
			t.Errorf("timewait until %v, want %v", got, want)
		}
		d.advance(wait - 1)
		d.silent()
		d.advance(1)
		if e := d.event(TimewaitExit); e.Conn != c {
			t.Errorf("event %v", e)
		}
		d.state(c, StateIdle)
		d.forgotten()
		d.finish(c)
	}
}

// TestPeerCannotChooseForEver: the Manager limits the times that a peer chooses, also codes for no
// time and for ever.
func TestPeerCannotChooseForEver(t *testing.T) {
	for _, tt := range []struct {
		code, timeout  uint8
		dreq, timewait time.Duration
	}{
		{0, 20, ms(256), ms(4096)}, {1, 12, ms(256), ms(16)}, {13, 13, ms(256), ms(32)}, {18, 18, ms(1024), ms(1024)}, {20, 20, ms(4096), ms(4096)},
		{31, 20, ms(8192), ms(4096)},
	} {
		d := newDialogue(t)
		d.m.Listen(ListenParam{ServiceID: service})
		req := peerREQ()
		req.LocalResponseTimeout, req.Primary.AckTimeout, req.MaxCMRetries = tt.code, tt.code, 15
		d.recv(req)
		c := d.event(ConnectRequest).Conn
		if a, err := c.QPAttr(); err != nil || a.Timeout != tt.timeout {
			t.Errorf("%d: the queue pair's timeout is %d, want %d, %v", tt.code, a.Timeout, tt.timeout, err)
		}
		d.must(c.Accept(d.now, acceptParam()))
		d.recv(&MRA{LocalID: peerID, RemoteID: ownID, Of: OfREP, ServiceTimeout: 31})
		if got, want := d.m.NextTimeout().Sub(d.now), ResponseTimeout(24)+tt.timewait; got != want {
			t.Errorf("%d: waits %v after an MRA, want %v", tt.code, got, want)
		}
		d.recv(peerRTU())
		began := d.now
		d.must(c.Disconnect(d.now, nil))
		d.advance(time.Hour)
		var last time.Duration
		for n := d.m.out.Len(); n > 0; n-- {
			d.m.NextMAD()
		}
		if last = c.timer.At.Sub(began); last > 16*tt.dreq+2*tt.dreq+tt.timewait {
			t.Errorf("%d: over after %v", tt.code, last)
		}
		d.event(Established)
	}
	t.Run("REP", func(t *testing.T) {
		d := newDialogue(t)
		c := d.active(StateReqSent)
		rep := peerREP()
		rep.TargetAckDelay = 31
		d.recv(rep)
		if a, err := c.QPAttr(); err != nil || a.Timeout != 20 {
			t.Errorf("timeout %d, %v", a.Timeout, err)
		}
	})
	t.Run("alternate path", func(t *testing.T) {
		for code, want := range map[uint8]uint8{0: 20, 1: 12, 17: 17, 31: 20} {
			d := newDialogue(t)
			c := d.active(StateEstablished)
			lap := peerLAP(1)
			lap.Alternate.AckTimeout = code
			d.recv(lap)
			if e := d.event(AlternateRequest); e.Conn != c || e.Alternate.AckTimeout != want {
				t.Errorf("timeout %d, want %d", e.Alternate.AckTimeout, want)
			}
		}
	})
}

func TestQPAttr(t *testing.T) {
	t.Run("active", func(t *testing.T) {
		d := newDialogue(t)
		c := d.active(StateMRARepSent)
		got, err := c.QPAttr()
		d.must(err)
		want := QPAttr{
			PKey: 0xFFFF, RemoteRead: true,
			Local: ownGID, Remote: peerGID, FlowLabel: FlowLabel(40000, 7174), HopLimit: 64,
			PathMTU: bth.MTU1024, DestQPN: peerQPN, RemoteID: peerID,
			RQPSN: ownPSN, SQPSN: peerPSN, // each side starts with what the other chose
			MaxDestRdAtomic: 3, // the REP's initiator depth
			MaxRdAtomic:     5, // the REP's responder resources, fewer than the 8 asked for
			Timeout:         17,
			RetryCount:      7, // the REQ's, cut from 9
			RNRRetry:        2, // the REP's
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(Offer{ResponderResources: 3, InitiatorDepth: 5, RetryCount: 7, RNRRetryCount: 2,
			QPN: peerQPN, MTU: bth.MTU1024, PKey: 0xFFFF}, c.Offer()); diff != "" {
			t.Errorf("offer (-want +got):\n%s", diff)
		}
	})
	t.Run("active asks for less", func(t *testing.T) {
		d := newDialogue(t)
		p := connectParam()
		p.InitiatorDepth = 2
		c, err := d.m.Connect(0, p)
		d.must(err)
		d.recv(peerREP())
		if got, _ := c.QPAttr(); got.MaxRdAtomic != 2 {
			t.Errorf("MaxRdAtomic %d, want 2", got.MaxRdAtomic)
		}
	})
	t.Run("active grants no READs", func(t *testing.T) {
		d := newDialogue(t)
		p := connectParam()
		p.ResponderResources = 0
		c, err := d.m.Connect(0, p)
		d.must(err)
		d.recv(peerREP()) // the REP claims that the peer may READ nevertheless
		if got, _ := c.QPAttr(); got.RemoteRead || got.MaxDestRdAtomic != 0 {
			t.Errorf("remote read %v, %d at a time", got.RemoteRead, got.MaxDestRdAtomic)
		}
	})
	t.Run("target ack delay", func(t *testing.T) {
		d := newDialogue(t)
		c := d.active(StateReqSent)
		rep := peerREP()
		rep.TargetAckDelay = 20
		d.recv(rep)
		if got, _ := c.QPAttr(); got.Timeout != AckTimeout(20, 16) {
			t.Errorf("timeout %d, want %d", got.Timeout, AckTimeout(20, 16))
		}
	})
	t.Run("passive", func(t *testing.T) {
		d := newDialogue(t)
		c := d.passive(StateMRAReqSent)
		want := QPAttr{
			PKey: 0xFFFF, RemoteRead: true,
			Local: ownGID, Remote: peerGID, FlowLabel: 0x12345, TrafficClass: 0x60, HopLimit: 63,
			PathMTU: bth.MTU2048, DestQPN: peerQPN, RemoteID: peerID,
			RQPSN: ownPSN, SQPSN: peerPSN,
			MaxDestRdAtomic: 8, MaxRdAtomic: 4, // the REQ's, swapped
			Timeout: 18, RetryCount: 5, RNRRetry: 6, // the REQ's
		}
		got, err := c.QPAttr()
		d.must(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of the request (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(Offer{ResponderResources: 8, InitiatorDepth: 4, RetryCount: 5, RNRRetryCount: 6,
			QPN: peerQPN, MTU: bth.MTU2048, PKey: 0xFFFF}, c.Offer()); diff != "" {
			t.Errorf("offer (-want +got):\n%s", diff)
		}
		want.MaxDestRdAtomic = 6
		got, err = c.AcceptAttr(acceptParam())
		d.must(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("before accept (-want +got):\n%s", diff)
		}
		d.must(c.Accept(d.now, acceptParam()))
		got, err = c.QPAttr()
		d.must(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after accept (-want +got):\n%s", diff)
		}
		if c.qpAttr(0, 0, true).RemoteRead {
			t.Error("remote read allowed without responder resources")
		}
	})
}

func TestGetters(t *testing.T) {
	d := newDialogue(t)
	p := connectParam()
	p.User = "me"
	c, err := d.m.Connect(0, p)
	d.must(err)
	d.recv(peerREP())
	if c.User != "me" || !c.Active() || c.LocalID() != ownID || c.RemoteID() != peerID || c.RemoteGUID() != peerGUID ||
		c.ServiceID() != service || c.LocalGID() != ownGID || c.RemoteGID() != peerGID || c.PeerAddress() != peerGID ||
		c.LocalAddr() != netip.MustParseAddrPort("10.0.0.1:40000") || c.RemoteAddr() != netip.MustParseAddrPort("10.0.0.2:7174") {
		t.Errorf("%+v", c)
	}
	d = newDialogue(t)
	l, err := d.m.Listen(ListenParam{ServiceID: service, User: "door"})
	d.must(err)
	d.recv(peerREQ())
	e := d.event(ConnectRequest)
	c = e.Conn
	if e.Listener != l || l.ServiceID() != service || l.Pending() != 1 ||
		string(e.Private[:7]) != "please\x00" || len(e.Private) != REQUserLen {
		t.Errorf("event %v, private %q", e, e.Private)
	}
	if c.User != "door" || c.Active() || c.LocalID() != ownID || c.RemoteID() != peerID || c.RemoteGUID() != peerGUID ||
		c.ServiceID() != service || c.LocalGID() != ownGID || c.RemoteGID() != peerGID || c.PeerAddress() != peerGID ||
		c.LocalAddr() != netip.MustParseAddrPort("10.0.0.1:7174") || c.RemoteAddr() != netip.MustParseAddrPort("10.0.0.2:40001") {
		t.Errorf("%+v", c)
	}
}

func TestPrivateDataSizes(t *testing.T) {
	raw := connectParam()
	raw.Dst = netip.AddrPort{}
	for _, tt := range []struct {
		name string
		room int
		try  func(d *dialogue, private []byte) error
	}{
		{"REQ", 56, func(d *dialogue, b []byte) error {
			p := connectParam()
			p.Private = b
			_, err := d.m.Connect(0, p)
			return err
		}},
		{"REQ without header", 92, func(d *dialogue, b []byte) error {
			p := raw
			p.Private = b
			_, err := d.m.Connect(0, p)
			return err
		}},
		{"REP", 196, func(d *dialogue, b []byte) error {
			return d.passive(StateMRAReqSent).Accept(0, AcceptParam{Private: b})
		}},
		{"RTU", 224, func(d *dialogue, b []byte) error { return d.active(StateMRARepSent).ReadyToUse(0, b) }},
		{"REJ", 148, func(d *dialogue, b []byte) error { return d.passive(StateMRAReqSent).Reject(0, RejectConsumer, b) }},
		{"DREQ", 220, func(d *dialogue, b []byte) error { return d.active(StateEstablished).Disconnect(0, b) }},
		{"DREP", 224, func(d *dialogue, b []byte) error { return d.active(StateDreqRcvd).Disconnect(0, b) }},
		{"LAP", 168, func(d *dialogue, b []byte) error { return d.active(StateEstablished).LoadAlternate(0, altPath(), b) }},
		{"APR", 148, func(d *dialogue, b []byte) error {
			return d.asked(true).AnswerAlternate(0, AlternateAnswer{Status: APReject, Private: b})
		}},
		{"SIDR_REQ", 180, func(d *dialogue, b []byte) error {
			p := resolveParam()
			p.Private = b
			_, err := d.m.Resolve(0, p)
			return err
		}},
		{"SIDR_REP", 136, func(d *dialogue, b []byte) error { return d.inquiry().Accept(1, 0, b) }},
		{"SIDR_REP refused", 136, func(d *dialogue, b []byte) error { return d.inquiry().Reject(SIDRReject, b) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			full := make([]byte, tt.room+1)
			for i := range full {
				full[i] = byte(i + 1)
			}
			d := newDialogue(t)
			d.must(tt.try(d, full[:tt.room]))
			o, _ := d.m.NextMAD()
			for {
				more, ok := d.m.NextMAD()
				if !ok {
					break
				}
				o = more
			}
			if got := o.MAD[MADLen-1]; got != byte(tt.room) {
				t.Errorf("last byte %d, want %d", got, byte(tt.room))
			}
			d = newDialogue(t)
			err := tt.try(d, full)
			if !errors.Is(err, ErrPrivateData) || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%d bytes: %v", len(full), err)
			}
			d.checkTables()
		})
	}
}

func TestConnectErrors(t *testing.T) {
	d := newDialogue(t, func(c *Config) { c.MaxConns = 1 })
	for name, change := range map[string]func(*ConnectParam){
		"no source":      func(p *ConnectParam) { p.Local = bth.GID{} },
		"no destination": func(p *ConnectParam) { p.Remote = bth.GID{} },
		"no MTU":         func(p *ConnectParam) { p.MTU = 0 },
		"RD":             func(p *ConnectParam) { p.Transport = RD },
		"families":       func(p *ConnectParam) { p.Src = netip.MustParseAddrPort("[fd00::1]:1") },
		"timeout":        func(p *ConnectParam) { p.ResponseTimeout = 32 },
		"life time":      func(p *ConnectParam) { p.PacketLifeTime = 31 },
		"retries":        func(p *ConnectParam) { p.MaxCMRetries = 16 },
	} {
		p := connectParam()
		change(&p)
		c, err := d.m.Connect(0, p)
		if c != nil {
			t.Errorf("%s: connection made", name)
		}
		wantErrno(t, err, syscall.EINVAL)
		d.silent()
		d.forgotten()
	}
	_, err := d.m.Connect(0, connectParam())
	d.must(err)
	_, err = d.m.Connect(0, connectParam())
	wantErrno(t, err, ErrLimit)
	wantErrno(t, err, syscall.ENOMEM)
	_, err = d.m.Resolve(0, resolveParam())
	wantErrno(t, err, ErrLimit)
}

// TestConnectVariants: parameters of Connect, and the fields of the REQ that they change.
func TestConnectVariants(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*ConnectParam)
		want   func(*REQ)
	}{
		{"hop limit 1", func(p *ConnectParam) { p.HopLimit = 1 }, func(m *REQ) {
			m.Primary.LocalLID, m.Primary.RemoteLID, m.Primary.SubnetLocal, m.Primary.HopLimit = 0, 0, true, 1
		}},
		{"no header", func(p *ConnectParam) { p.Dst = netip.AddrPort{} }, func(m *REQ) {
			m.Primary.FlowLabel = 0
			m.Private = [92]byte{'h', 'e', 'l', 'l', 'o'}
		}},
		{"flags and path", func(p *ConnectParam) {
			p.SRQ, p.FlowControl, p.Transport = true, true, UC
			p.TrafficClass, p.SL, p.FlowLabel, p.PKey = 0x68, 3, 0xABCDE, 0x8001
			p.PacketLifeTime, p.ResponseTimeout, p.MaxCMRetries = 18, 21, 7
		}, func(m *REQ) {
			m.SRQ, m.FlowControl, m.Transport, m.PKey = true, true, UC, 0x8001
			m.Primary.TrafficClass, m.Primary.SL, m.Primary.FlowLabel = 0x68, 3, 0xABCDE
			m.Primary.AckTimeout, m.RemoteResponseTimeout, m.LocalResponseTimeout, m.MaxCMRetries = 19, 21, 21, 7
		}},
		{"v4-mapped", func(p *ConnectParam) {
			p.Src = netip.AddrPortFrom(netip.MustParseAddr("::ffff:10.0.0.1"), 40000)
		}, func(*REQ) {}},
		{"link-local", func(p *ConnectParam) {
			p.Src, p.Dst = netip.MustParseAddrPort("[fe80::1%eth0]:5"), netip.MustParseAddrPort("[fe80::2%eth0]:6")
		}, func(m *REQ) {
			m.Primary.FlowLabel = FlowLabel(5, 7174)
			m.Private = ipPrivate(netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::2"), 5, "hello")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDialogue(t)
			p := connectParam()
			tt.change(&p)
			_, err := d.m.Connect(0, p)
			d.must(err)
			want := ownREQ()
			tt.want(want)
			d.send(want)
		})
	}
}

func TestCommEstablished(t *testing.T) {
	for _, s := range []State{StateRepSent, StateMRARepRcvd} {
		d := newDialogue(t)
		c := d.passive(s)
		d.must(c.CommEstablished(d.now))
		d.state(c, StateEstablished)
		if e := d.event(Established); e.Conn != c || e.Private != nil {
			t.Errorf("event %v", e)
		}
		d.must(c.CommEstablished(d.now)) // a second call has no effect
		d.recv(peerRTU())                // neither has a late RTU
		d.advance(time.Hour)
		d.silent()
	}
}

func TestReject(t *testing.T) {
	everyState(t, func(d *dialogue, c *Conn, active bool, s State) {
		tid := c.tid
		if c.Reject(d.now, RejectNoQP, []byte("sorry")) != nil {
			return // see TestWrongState
		}
		rej := &REJ{Header: Header{TID: tid}, LocalID: ownID, RemoteID: c.RemoteID(), Of: OfOther, Reason: RejectNoQP}
		copy(rej.Private[:], "sorry")
		after := StateIdle
		switch s {
		case StateReqRcvd:
			rej.LocalID, rej.Of = 0, OfREQ
		case StateMRAReqSent:
			rej.Of = OfREQ
		case StateRepRcvd, StateMRARepSent:
			rej.Of = OfREP
		case StateRepSent, StateMRARepRcvd:
			after = StateTimewait
		}
		d.send(rej)
		d.state(c, after)
		d.finish(c)
	})
}

// TestSimultaneousDisconnect: both send DREQ, both answer.
func TestSimultaneousDisconnect(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateDreqSent)
	d.recv(peerDREQ())
	d.event(DisconnectRequest)
	d.must(c.Disconnect(d.now, nil))
	d.send(ownDREP(0x5555))
	d.recv(peerDREP())
	d.silent()
	d.advance(ms(512))
	d.event(TimewaitExit)
	d.forgotten()

	// The DREP may come before the owner has answered.
	d = newDialogue(t)
	c = d.active(StateDreqRcvd)
	d.recv(peerDREP())
	d.event(Disconnected)
	d.state(c, StateTimewait)
	wantErrno(t, c.Disconnect(d.now, nil), syscall.EINVAL)
	d.recv(peerDREQ()) // the peer repeats its DREQ
	d.send(ownDREP(0x5555))
}

func TestNewManagerErrors(t *testing.T) {
	_, err := NewManager(Config{Rand: func() uint32 { return 1 }})
	wantErrno(t, err, syscall.EINVAL)
	_, err = NewManager(Config{GUID: 1})
	wantErrno(t, err, syscall.EINVAL)
}

// TestBadRandom: with a source that always returns the same number, even zero, the Manager still
// chooses different IDs.
func TestBadRandom(t *testing.T) {
	for _, v := range []uint32{0, 7, ^uint32(0)} {
		d := newDialogue(t, func(c *Config) { c.Rand = func() uint32 { return v } })
		ids := map[CommID]bool{0: true}
		for range 100 {
			c, err := d.m.Connect(0, connectParam())
			d.must(err)
			if ids[c.LocalID()] {
				t.Fatalf("ID %v twice", c.LocalID())
			}
			ids[c.LocalID()] = true
		}
	}
}

func TestEventString(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateReqSent)
	for want, e := range map[string]Event{
		"CONNECT_RESPONSE id 00000020->00000000":                                             {Kind: ConnectResponse, Conn: c},
		"REJECTED id 00000020->00000000 reason 8 (invalid service ID)":                       {Kind: Rejected, Conn: c, Reason: 8},
		"RESOLVED id 00000000 status rejected by service provider":                           {Kind: Resolved, Query: &Query{}, Status: 2},
		"ALTERNATE_RESPONSE id 00000020->00000000 status 8 (alternate GID rejected)":         {Kind: AlternateResponse, Conn: c, AP: 8},
		"SERVICE_REQUEST id 00000000 svc tcp:7174":                                           {Kind: ServiceRequest, Inquiry: &Inquiry{ends: ends{service: service}}},
		"UNREACHABLE id 00000020->00000000: peer does not answer: " + "connection timed out": {Kind: Unreachable, Conn: c, Err: ErrTimeout},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var err error = &RejectError{Reason: RejectConsumer}
	wantErrno(t, fmt.Errorf("dial: %w", err), syscall.ECONNREFUSED)
	if got := err.Error(); got != "roce: connection rejected: reason 28 (consumer reject)" {
		t.Error(got)
	}
}

func TestCountersNames(t *testing.T) {
	d := newDialogue(t)
	d.active(StateTimewait)
	got := map[string]uint64{}
	n := d.m.Counters()
	n.Each(func(name string, v uint64) { got[name] = v })
	for name, want := range map[string]uint64{"cm_tx_msgs/req": 1, "cm_rx_msgs/rep": 1, "cm_tx_msgs/rtu": 1,
		"cm_rx_msgs/dreq": 1, "cm_tx_msgs/drep": 1, "cm_tx_retries/req": 0, "cm_rx_duplicates/rep": 0, "cm_rx_unmatched": 0} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %d, %v; want %d", name, v, ok, want)
		}
	}
}

func TestErrorText(t *testing.T) {
	d := newDialogue(t, func(c *Config) { c.MaxConns = 1 })
	p := connectParam()
	p.MTU = 9
	_, badMTU := d.m.Connect(0, p)
	p = connectParam()
	p.Private = make([]byte, 57)
	_, badPrivate := d.m.Connect(0, p)
	c := d.active(StateReqSent)
	_, full := d.m.Connect(0, connectParam())
	for want, err := range map[string]error{
		"roce: connect: MTU 9 is not a path MTU, set 1 (256) … 5 (4096): invalid argument": badMTU,
		"roce: connect: too much private data: 57 bytes, room for 56: invalid argument":    badPrivate,
		"roce: connect: too many connections: 1 of 1: cannot allocate memory":              full,
		"roce: disconnect: not possible in state REQ_SENT: invalid argument":               c.Disconnect(0, nil),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// TestOfferFlags: the flags and the path of a REQ and a REP.
func TestOfferFlags(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateReqSent)
	rep := peerREP()
	rep.FlowControl, rep.SRQ = true, true
	d.recv(rep)
	if o := c.Offer(); !o.FlowControl || !o.SRQ {
		t.Errorf("%+v", o)
	}
	d = newDialogue(t)
	d.m.Listen(ListenParam{ServiceID: service})
	req := peerREQ()
	req.FlowControl, req.SRQ, req.Primary.HopLimit, req.Primary.SL = true, true, 0, 3
	d.recv(req)
	c = d.event(ConnectRequest).Conn
	if o := c.Offer(); !o.FlowControl || !o.SRQ {
		t.Errorf("%+v", o)
	}
	if a, _ := c.QPAttr(); a.HopLimit != DefaultHopLimit || a.SL != 3 {
		t.Errorf("hop limit %d (with 0 nothing would arrive), SL %d", a.HopLimit, a.SL)
	}
}

// TestQPNAfterTimewait: the end of timewait does not remove the QPN of a newer connection
// with the same QPN.
func TestQPNAfterTimewait(t *testing.T) {
	d := newDialogue(t)
	d.passive(StateTimewait)
	req := peerREQ()
	req.LocalID++
	d.recv(req)
	d.event(ConnectRequest)
	d.advance(ms(1024))
	d.event(TimewaitExit)
	d.checkTables()
	req.LocalID++
	d.recv(req)
	d.send(&REJ{Header: Header{TID: peerTID}, RemoteID: req.LocalID, Of: OfREQ, Reason: RejectStaleConn})
}

// TestAnswersAreNotMixedUp: the private data of the RTU is not repeated in a DREP.
func TestAnswersAreNotMixedUp(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateMRARepSent)
	d.must(c.ReadyToUse(d.now, []byte("rtu")))
	d.m.NextMAD()
	d.must(c.Disconnect(d.now, nil))
	d.send(ownDREQ())
	d.recv(peerDREP())
	d.event(Disconnected)
	d.recv(peerDREQ())
	d.send(ownDREP(0x5555))
}
