package cm

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/deadline"
	"github.com/goroce/roce/mono"
)

// The two ends of every dialogue. The random numbers of this side are 0x10, 0x20, …: the
// first is the high half of transaction IDs, the next two are the ID and the PSN of
// the first connection.
var (
	ownGID, peerGID, strangerGID = gid("10.0.0.1"), gid("10.0.0.2"), gid("10.0.0.3")
	ownAddr, peerAddr            = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	service                      = Service(PortSpaceTCP, 7174)
)

const (
	ownGUID, peerGUID = GUID(0xA1), GUID(0xB2)
	ownID, peerID     = CommID(0x20), CommID(0xBEEF)
	ownQPN, peerQPN   = bth.QPN(0x11), bth.QPN(0x22)
	ownPSN, peerPSN   = bth.PSN(0x30), bth.PSN(0x222222)
	ownTID            = uint64(0x10_00000020)
	peerTID           = uint64(0x7777)
)

// dialogue tests one Manager with hand-made messages of a peer.
type dialogue struct {
	testing.TB
	m   *Manager
	l   *Listener
	now mono.Time
}

func newDialogue(t testing.TB, change ...func(*Config)) *dialogue {
	t.Helper()
	var n uint32
	cfg := Config{GUID: ownGUID, Rand: func() uint32 { n += 0x10; return n }}
	for _, f := range change {
		f(&cfg)
	}
	m, err := NewManager(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &dialogue{TB: t, m: m}
}

// recv passes a message of the peer to the Manager.
func (d *dialogue) recv(msg Message) { d.recvFrom(peerGID, msg) }

func (d *dialogue) recvFrom(from bth.GID, msg Message) { d.recvAt(from, ownGID, msg) }

func (d *dialogue) recvAt(from, to bth.GID, msg Message) {
	d.m.HandleMAD(d.now, from, to, encode(msg))
}

// send checks that msg is the next message that the Manager sends.
func (d *dialogue) send(msg Message) {
	d.Helper()
	o, ok := d.m.NextMAD()
	if !ok {
		d.Fatalf("nothing sent, want %v", msg)
	}
	if o.From != ownGID || o.To != peerGID {
		d.Errorf("sent %v -> %v", o.From, o.To)
	}
	got, err := DecodeMAD(o.MAD[:])
	if err != nil {
		d.Fatal(err)
	}
	if diff := cmp.Diff(msg, got); diff != "" {
		d.Fatalf("sent %v (-want +got):\n%s", got, diff)
	}
}

// silent checks that the Manager has no message to send and no event.
func (d *dialogue) silent() {
	d.Helper()
	if o, ok := d.m.NextMAD(); ok {
		got, _ := DecodeMAD(o.MAD[:])
		d.Fatalf("unexpected %v", got)
	}
	if e, ok := d.m.NextEvent(); ok {
		d.Fatalf("unexpected event %v", e)
	}
}

// event checks that the next event is of a kind, and returns it.
func (d *dialogue) event(kind EventKind) Event {
	d.Helper()
	e, ok := d.m.NextEvent()
	if !ok || e.Kind != kind {
		d.Fatalf("event %v, want %v", e, kind)
	}
	return e
}

func (d *dialogue) state(c *Conn, want State) {
	d.Helper()
	if c.State() != want {
		d.Fatalf("state %v, want %v", c.State(), want)
	}
	d.checkTables()
}

// advance lets time pass, stopping for each timer on the way.
func (d *dialogue) advance(by time.Duration) {
	end := d.now.Add(by)
	for t := d.m.NextTimeout(); !end.Before(t); t = d.m.NextTimeout() {
		d.now = t
		d.m.HandleTimeout(t)
	}
	d.now = end
	d.m.HandleTimeout(end) // no timer is due: must do nothing
}

// forgotten checks that the Manager keeps nothing.
func (d *dialogue) forgotten() {
	d.Helper()
	d.checkTables()
	if n := d.m.Len() + len(d.m.byRemote) + len(d.m.byQPN) + len(d.m.timers) + d.m.halfOpen.n; n != 0 {
		d.Errorf("left over: %d local, %d remote, %d qpn, %d timers, %d half-open", d.m.Len(),
			len(d.m.byRemote), len(d.m.byQPN), len(d.m.timers), d.m.halfOpen.n)
	}
}

// checkTables checks the invariants that hold between any two calls.
func (d *dialogue) checkTables() {
	d.Helper()
	if err := d.m.check(); err != nil {
		d.Error(err)
	}
}

// check verifies the invariants of the tables, the counts and the heap.
func (m *Manager) check() error {
	half, remotes, qpns, leaving, pending := len(m.inquiries), 0, 0, 0, map[*Listener]int{}
	known, began := map[bth.GID]int{}, map[bth.GID]int{}
	for id, c := range m.byLocal {
		remotes += one(m.byRemote[c.remoteKey()] == c)
		qpns += one(m.byQPN[c.qpnKey()] == c)
		if id != c.localID || c.state == StateIdle {
			return fmt.Errorf("byLocal[%v] = %v in %v", id, c.localID, c.state)
		}
		half += one(c.state.halfOpen())
		if !c.active {
			began[SourceOf(c.peer)]++
		}
		if c.state.confirmed() {
			known[SourceOf(c.peer)]++
		}
		leaving += one(c.state == StateDreqSent)
		if c.alt != nil && c.alt.lap != lapIdle && c.state != StateEstablished {
			return fmt.Errorf("LAP state %d in %v", c.alt.lap, c.state)
		}
		pending[c.listener] += one(c.state.pendingRequest())
		waits := c.timer != (deadline.Timer{})
		switch c.state {
		case StateReqSent, StateMRAReqRcvd, StateReqRcvd, StateMRAReqSent, StateRepSent, StateMRARepRcvd, StateDreqSent, StateTimewait:
			if !waits {
				return fmt.Errorf("%v without timer", c.state)
			}
		case StateEstablished:
			if waits != (c.alt != nil && c.alt.lap.waits()) {
				return fmt.Errorf("%v: timer %v, alternate path %+v", c.state, waits, c.alt)
			}
		default:
			if waits {
				return fmt.Errorf("%v with timer", c.state)
			}
		}
	}
	if half != m.halfOpen.n || leaving != m.leaving {
		return fmt.Errorf("half-open %d, counted %d; leaving %d, counted %d", m.halfOpen.n, half, m.leaving, leaving)
	}
	if len(known) != len(m.confirmed) {
		return fmt.Errorf("%d sources have confirmed connections, counted %d", len(known), len(m.confirmed))
	}
	for source, n := range known {
		if a := m.confirmed[source]; a == nil || a.conns != n {
			return fmt.Errorf("%v has %d confirmed connections, counted %+v", source, n, a)
		}
	}
	if !maps.Equal(began, m.passive) {
		return fmt.Errorf("sources have begun %v connections, counted %v", began, m.passive)
	}
	if err := m.halfOpen.check(); err != nil {
		return err
	}
	if remotes != len(m.byRemote) || qpns != len(m.byQPN) {
		return fmt.Errorf("tables of %d and %d, %d and %d connections in them", len(m.byRemote), len(m.byQPN), remotes, qpns)
	}
	for _, q := range m.inquiries {
		pending[q.listener]++
	}
	for _, ls := range m.listeners {
		for _, l := range ls {
			if l.requests.n != pending[l] {
				return fmt.Errorf("pending %d, counted %d", l.requests.n, pending[l])
			}
			if err := l.requests.check(); err != nil {
				return err
			}
		}
	}
	for k, c := range m.byRemote {
		if m.byLocal[c.localID] != c || k != c.remoteKey() {
			return fmt.Errorf("byRemote[%v] is stale", k)
		}
	}
	for k, c := range m.byQPN {
		if m.byLocal[c.localID] != c || k != c.qpnKey() {
			return fmt.Errorf("byQPN[%v] is stale", k)
		}
	}
	earliest, running := mono.Never, 0
	note := func(t deadline.Timer) {
		if t != (deadline.Timer{}) {
			earliest, running = min(earliest, t.At), running+1
		}
	}
	for _, c := range m.byLocal {
		note(c.timer)
	}
	for _, q := range m.queries {
		note(q.timer)
	}
	for _, q := range m.inquiries {
		note(q.timer)
	}
	if m.timers.Next() != earliest || len(m.timers) != running {
		return fmt.Errorf("%d timers, the first at %v; want %d and %v", len(m.timers), m.timers.Next(), running, earliest)
	}
	return nil
}

// check verifies the counts, the lists and the heap.
func (q *fairQueue) check() error {
	n := 0
	for i, s := range q.order {
		held := 0
		for p := s.first; p != nil; p = p.next {
			if p.share != s || p.next != nil && p.next.prev != p || p.next == nil && s.last != p {
				return fmt.Errorf("the list of %v is broken", s.source)
			}
			held++
		}
		if n += held; held != s.n || held == 0 || s.pos != i || q.sources[s.source] != s || i > 0 && q.order.Less(i, (i-1)/2) {
			return fmt.Errorf("source %v: %d held, counted %d, place %d in the heap", s.source, held, s.n, i)
		}
	}
	if n != q.n || len(q.sources) != len(q.order) {
		return fmt.Errorf("%d entries of %d sources, counted %d of %d", n, len(q.order), q.n, len(q.sources))
	}
	return nil
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// ---- the messages of each side ----

func connectParam() ConnectParam {
	return ConnectParam{
		ServiceID: service, Local: ownGID, Remote: peerGID,
		Src: netip.AddrPortFrom(ownAddr, 40000), Dst: netip.AddrPortFrom(peerAddr, 7174),
		QPN: ownQPN, ResponderResources: 4, InitiatorDepth: 8, RetryCount: 9, RNRRetryCount: 6, MTU: bth.MTU1024,
		Private: []byte("hello"),
	}
}

func ipPrivate(src, dst netip.Addr, port uint16, user string) (p [92]byte) {
	h := IPHeader{port, src, dst}
	if err := h.Put(p[:]); err != nil {
		panic(err)
	}
	copy(p[IPHeaderLen:], user)
	return p
}

func ownREQ() *REQ {
	return &REQ{
		Header: Header{TID: ownTID}, LocalID: ownID, ServiceID: service, LocalGUID: ownGUID, QPN: ownQPN,
		ResponderResources: 4, InitiatorDepth: 8, RemoteResponseTimeout: 20, LocalResponseTimeout: 20,
		StartingPSN: ownPSN, MaxCMRetries: 15, RetryCount: 7, RNRRetryCount: 6, PKey: 0xFFFF, MTU: bth.MTU1024,
		Primary: Path{LocalLID: 0xFFFF, RemoteLID: 0xFFFF, LocalGID: ownGID, RemoteGID: peerGID,
			FlowLabel: FlowLabel(40000, 7174), HopLimit: 64, AckTimeout: 17},
		Private: ipPrivate(ownAddr, peerAddr, 40000, "hello"),
	}
}

func peerREP() *REP {
	return &REP{Header: Header{TID: ownTID}, LocalID: peerID, RemoteID: ownID, QPN: peerQPN, StartingPSN: peerPSN,
		ResponderResources: 5, InitiatorDepth: 3, TargetAckDelay: 15, RNRRetryCount: 2, LocalGUID: peerGUID,
		Private: [196]byte{'y', 'e', 's'}}
}

func ownRTU() *RTU { return &RTU{Header: Header{TID: ownTID}, LocalID: ownID, RemoteID: peerID} }

func peerREQ() *REQ {
	return &REQ{
		Header: Header{TID: peerTID}, LocalID: peerID, ServiceID: service, LocalGUID: peerGUID, QPN: peerQPN,
		ResponderResources: 4, InitiatorDepth: 8, RemoteResponseTimeout: 20, LocalResponseTimeout: 19,
		StartingPSN: peerPSN, MaxCMRetries: 3, RetryCount: 5, RNRRetryCount: 6, PKey: 0xFFFF, MTU: bth.MTU2048,
		Primary: Path{LocalLID: 0xFFFF, RemoteLID: 0xFFFF, LocalGID: peerGID, RemoteGID: ownGID,
			FlowLabel: 0x12345, TrafficClass: 0x60, HopLimit: 63, AckTimeout: 18},
		Private: ipPrivate(peerAddr, ownAddr, 40001, "please"),
	}
}

func acceptParam() AcceptParam {
	return AcceptParam{QPN: ownQPN, ResponderResources: 6, InitiatorDepth: 200, RNRRetryCount: 12, FlowControl: true,
		Private: []byte("welcome")}
}

func ownREP() *REP {
	return &REP{Header: Header{TID: peerTID}, LocalID: ownID, RemoteID: peerID, QPN: ownQPN, StartingPSN: ownPSN,
		ResponderResources: 6, InitiatorDepth: 4, TargetAckDelay: 15, RNRRetryCount: 7, FlowControl: true,
		LocalGUID: ownGUID, Private: [196]byte{'w', 'e', 'l', 'c', 'o', 'm', 'e'}}
}

func peerRTU() *RTU { return &RTU{Header: Header{TID: peerTID}, LocalID: peerID, RemoteID: ownID} }

func peerDREQ() *DREQ {
	return &DREQ{Header: Header{TID: 0x5555}, LocalID: peerID, RemoteID: ownID, RemoteQPN: ownQPN,
		Private: [220]byte{'b', 'y', 'e'}}
}

func peerDREP() *DREP {
	return &DREP{Header: Header{TID: ownTID}, LocalID: peerID, RemoteID: ownID, Private: [224]byte{'o', 'k'}}
}

func ownDREQ() *DREQ {
	return &DREQ{Header: Header{TID: ownTID}, LocalID: ownID, RemoteID: peerID, RemoteQPN: peerQPN}
}

func ownDREP(tid uint64) *DREP {
	return &DREP{Header: Header{TID: tid}, LocalID: ownID, RemoteID: peerID}
}

func timeoutREJ(tid uint64, remote CommID) *REJ {
	return &REJ{Header: Header{TID: tid}, LocalID: ownID, RemoteID: remote, Of: OfOther, Reason: RejectTimeout,
		InfoLen: 8, Info: [72]byte{7: byte(ownGUID)}}
}

// ---- the way to each state ----

// active brings a connection that this side begins to a state. It has read all messages and events
// on the way.
func (d *dialogue) active(want State) *Conn {
	d.Helper()
	c, err := d.m.Connect(d.now, connectParam())
	if err != nil {
		d.Fatal(err)
	}
	d.send(ownREQ())
	steps := []struct {
		reaches State
		do      func()
	}{
		{StateReqSent, func() {}},
		{StateMRAReqRcvd, func() {
			d.recv(&MRA{Header: Header{TID: ownTID}, LocalID: peerID, RemoteID: ownID, Of: OfREQ, ServiceTimeout: 24})
		}},
		{StateRepRcvd, func() { d.recv(peerREP()) }},
		{StateMRARepSent, func() { d.event(ConnectResponse) }},
		{StateEstablished, func() { d.must(c.ReadyToUse(d.now, nil)); d.send(ownRTU()) }},
		{StateDreqSent, func() { d.must(c.Disconnect(d.now, nil)); d.send(ownDREQ()) }},
		{StateDreqRcvd, func() { d.recv(peerDREQ()); d.event(DisconnectRequest) }},
		{StateTimewait, func() { d.must(c.Disconnect(d.now, nil)); d.send(ownDREP(0x5555)) }},
	}
	for _, s := range steps {
		if s.reaches == StateMRAReqRcvd && want != StateMRAReqRcvd || s.reaches == StateDreqSent && want == StateDreqRcvd {
			continue // not a step on the way to want
		}
		s.do()
		d.state(c, s.reaches)
		if s.reaches == want {
			return c
		}
	}
	d.Fatalf("no way to %v", want)
	return nil
}

// passive brings a connection that the peer begins to a state. It has read all messages and events
// on the way.
func (d *dialogue) passive(want State) *Conn {
	d.Helper()
	if d.l == nil {
		l, err := d.m.Listen(ListenParam{ServiceID: service})
		d.must(err)
		d.l = l
	}
	d.recv(peerREQ())
	c := d.m.byRemote[remoteKey{peerID, peerGUID, peerGID}]
	steps := []struct {
		reaches State
		do      func()
	}{
		{StateReqRcvd, func() {}},
		{StateMRAReqSent, func() { d.event(ConnectRequest) }},
		{StateRepSent, func() { d.must(c.Accept(d.now, acceptParam())); d.send(ownREP()) }},
		{StateMRARepRcvd, func() {
			d.recv(&MRA{Header: Header{TID: peerTID}, LocalID: peerID, RemoteID: ownID, Of: OfREP, ServiceTimeout: 24})
		}},
		{StateEstablished, func() { d.recv(peerRTU()); d.event(Established) }},
		{StateDreqSent, func() { d.must(c.Disconnect(d.now, nil)); d.send(ownDREQ()) }},
		{StateDreqRcvd, func() { d.recv(peerDREQ()); d.event(DisconnectRequest) }},
		{StateTimewait, func() { d.must(c.Disconnect(d.now, nil)); d.send(ownDREP(0x5555)) }},
	}
	for _, s := range steps {
		if s.reaches == StateMRARepRcvd && want != StateMRARepRcvd || s.reaches == StateDreqSent && want == StateDreqRcvd {
			continue
		}
		s.do()
		d.state(c, s.reaches)
		if s.reaches == want {
			return c
		}
	}
	d.Fatalf("no way to %v", want)
	return nil
}

// reach brings a connection to a state on either side.
func (d *dialogue) reach(active bool, s State) *Conn {
	d.Helper()
	if active {
		return d.active(s)
	}
	return d.passive(s)
}

func (d *dialogue) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

var activeStates = []State{StateReqSent, StateMRAReqRcvd, StateRepRcvd, StateMRARepSent, StateEstablished,
	StateDreqSent, StateDreqRcvd, StateTimewait}

var passiveStates = []State{StateReqRcvd, StateMRAReqSent, StateRepSent, StateMRARepRcvd, StateEstablished,
	StateDreqSent, StateDreqRcvd, StateTimewait}

// everyState runs f on a fresh connection in each state of each side.
func everyState(t *testing.T, f func(d *dialogue, c *Conn, active bool, s State)) {
	for _, active := range []bool{true, false} {
		states, side := passiveStates, "passive"
		if active {
			states, side = activeStates, "active"
		}
		for _, s := range states {
			t.Run(fmt.Sprintf("%s/%v", side, s), func(t *testing.T) {
				d := newDialogue(t)
				c := d.reach(active, s)
				f(d, c, active, s)
				d.checkTables()
			})
		}
	}
}

// finish ends a connection in any state, and advances the time until the Manager keeps nothing of
// it.
func (d *dialogue) finish(c *Conn) {
	d.Helper()
	c.Destroy(d.now)
	d.advance(time.Hour)
	d.forgotten()
	for more := true; more; {
		_, more = d.m.NextMAD()
	}
	for {
		e, ok := d.m.NextEvent()
		if !ok {
			return
		}
		d.Errorf("event %v after Destroy", e)
	}
}

func wantErrno(t testing.TB, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want one that is %v", err, want)
	}
}

// TestWrongState: every operation in every state either is legal, or returns
// ErrState and changes nothing.
func TestWrongState(t *testing.T) {
	ops := []struct {
		name  string
		do    func(*Conn, mono.Time) error
		legal []State
	}{
		{"accept", func(c *Conn, now mono.Time) error { return c.Accept(now, acceptParam()) },
			[]State{StateReqRcvd, StateMRAReqSent}},
		{"ready to use", func(c *Conn, now mono.Time) error { return c.ReadyToUse(now, nil) },
			[]State{StateRepRcvd, StateMRARepSent}},
		{"reject", func(c *Conn, now mono.Time) error { return c.Reject(now, RejectConsumer, nil) },
			[]State{StateReqSent, StateMRAReqRcvd, StateReqRcvd, StateMRAReqSent, StateRepRcvd, StateMRARepSent,
				StateRepSent, StateMRARepRcvd}},
		{"communication established", func(c *Conn, now mono.Time) error { return c.CommEstablished(now) },
			[]State{StateRepSent, StateMRARepRcvd, StateEstablished}},
		{"disconnect", func(c *Conn, now mono.Time) error { return c.Disconnect(now, nil) },
			[]State{StateEstablished, StateDreqRcvd}},
		{"QP attributes", func(c *Conn, now mono.Time) error { _, err := c.QPAttr(); return err },
			[]State{StateReqRcvd, StateMRAReqSent, StateRepRcvd, StateMRARepSent, StateRepSent, StateMRARepRcvd,
				StateEstablished}},
		{"accept attributes", func(c *Conn, now mono.Time) error { _, err := c.AcceptAttr(acceptParam()); return err },
			[]State{StateReqRcvd, StateMRAReqSent}},
		{"load alternate path", func(c *Conn, now mono.Time) error { return c.LoadAlternate(now, altPath(), nil) },
			[]State{StateEstablished}},
		{"answer alternate path", func(c *Conn, now mono.Time) error { return c.AnswerAlternate(now, AlternateAnswer{}) },
			nil}, // the peer has sent no LAP
		{"migrated", func(c *Conn, now mono.Time) error { return c.Migrated(now) }, nil}, // there is no alternate path
	}
	check := func(d *dialogue, c *Conn, s State, op int) {
		o := ops[op]
		err := o.do(c, d.now)
		for _, l := range o.legal {
			if l == s {
				d.must(err)
				return
			}
		}
		var se *errs.Error
		if !errors.As(err, &se) || !errors.Is(err, ErrState) || !strings.HasSuffix(se.Detail, s.String()) || se.Op != o.name {
			d.Errorf("%s in %v: %v", o.name, s, err)
		}
		wantErrno(d, err, syscall.EINVAL)
		d.state(c, s)
		if s != StateReqRcvd && s != StateRepRcvd { // in these states the owner has not taken the first event
			d.silent()
		}
	}
	for op := range ops {
		t.Run(ops[op].name, func(t *testing.T) {
			everyState(t, func(d *dialogue, c *Conn, _ bool, s State) {
				check(d, c, s, op)
				d.finish(c)
				check(d, c, StateIdle, op)
			})
		})
	}
}

// TestDestroy: the message to the peer in each state. Afterwards the Manager keeps nothing.
func TestDestroy(t *testing.T) {
	everyState(t, func(d *dialogue, c *Conn, active bool, s State) {
		tid := c.tid
		c.Destroy(d.now)
		rej := func(local CommID, of Subject) {
			d.send(&REJ{Header: Header{TID: tid}, LocalID: local, RemoteID: peerID, Of: of, Reason: RejectConsumer})
		}
		switch s {
		case StateReqSent, StateMRAReqRcvd:
			d.send(timeoutREJ(ownTID, 0))
		case StateReqRcvd:
			rej(0, OfREQ)
		case StateMRAReqSent:
			rej(ownID, OfREQ)
		case StateRepRcvd, StateMRARepSent:
			rej(ownID, OfREP)
		case StateRepSent, StateMRARepRcvd:
			rej(ownID, OfOther)
			d.state(c, StateTimewait)
		case StateEstablished:
			d.send(ownDREQ())
			d.state(c, StateDreqSent)
		case StateDreqRcvd:
			d.send(ownDREP(0x5555))
			d.state(c, StateTimewait)
		case StateDreqSent, StateTimewait:
		}
		d.silent()
		c.Destroy(d.now)
		d.silent()
		d.finish(c)
	})
}

// TestDestroyedDisconnects: the Manager repeats the DREQ of a destroyed connection, and answers the
// peer's messages.
func TestDestroyedDisconnects(t *testing.T) {
	d := newDialogue(t)
	c := d.active(StateEstablished)
	c.Destroy(d.now)
	d.send(ownDREQ())
	d.advance(ms(100))
	d.send(ownDREQ())
	d.recv(peerDREQ()) // both sides disconnect at once
	d.send(ownDREP(0x5555))
	d.state(c, StateTimewait)
	d.advance(ms(512))
	d.silent()
	d.forgotten()
}

// TestCloseRepeatsDREP: Close repeats a DREP, because after Close the Manager cannot answer a DREQ
// of a peer that has not received it.
func TestCloseRepeatsDREP(t *testing.T) {
	for _, answered := range []int{0, 1} {
		d := newDialogue(t)
		c := d.active(StateEstablished)
		d.recv(peerDREQ())
		d.event(DisconnectRequest)
		for range answered {
			d.must(c.Disconnect(d.now, nil))
			d.send(ownDREP(0x5555))
		}
		d.silent()
		d.m.Close(d.now)
		for range 3 - answered {
			d.send(ownDREP(0x5555))
		}
		d.silent()
	}

	// If this side has ended the connection, Close repeats nothing.
	d := newDialogue(t)
	c := d.active(StateEstablished)
	d.must(c.Disconnect(d.now, nil))
	d.send(ownDREQ())
	d.recv(peerDREP())
	d.state(c, StateTimewait)
	d.m.Close(d.now)
	d.silent()
}
