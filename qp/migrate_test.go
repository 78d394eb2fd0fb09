package qp_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// altTimeout is the timeout code of alternate paths in these tests; the
// primary one has 8.
const altTimeout = 9

// over is a path between two nodes with other addresses than their primary
// ones: 10.net.x.
func over(n, peer *node, net byte) *frame.Path {
	gid := func(n *node) bth.GID { return bth.GIDFrom(netip.AddrFrom4([4]byte{10, net, 0, byte(n.Num())})) }
	return must(frame.NewPath(frame.PathConfig{Src: gid(n), Dst: gid(peer), SrcMAC: frame.MAC{2, net, 1}, DstMAC: frame.MAC{2, net, 2}, SrcPort: 0xC001}))
}

// load loads an alternate path and re-arms.
func load(t testing.TB, n *node, p *frame.Path) {
	t.Helper()
	a := qp.Attr{AltAV: qp.NewAH(p), AltPort: 1, AltTimeout: altTimeout, PathMigState: qp.Rearm}
	if err := n.Modify(&a, qp.AttrAltPath|qp.AttrPathMigState); err != nil {
		t.Fatal(err)
	}
}

// setMig asks for a migration state.
func (b *bench) setMig(s qp.MigState) error {
	err := b.Modify(&qp.Attr{PathMigState: s}, qp.AttrPathMigState)
	b.collect()
	return err
}

// injectOver is inject for a packet that comes over another path than the
// primary one. path is the peer's.
func (b *bench) injectOver(path *frame.Path, d packet) {
	b.t.Helper()
	b.HandlePacket(b.net.now, build(b.t, path, b.Num(), d))
	b.collect()
}

// wantMig checks the migration state and the events since the last look.
func (b *bench) wantMig(s qp.MigState, events ...qp.EventType) {
	b.t.Helper()
	if a, _ := b.Query(); b.MigState() != s || a.PathMigState != s {
		b.t.Fatalf("state %v, queried %v, want %v", b.MigState(), a.PathMigState, s)
	}
	if !slices.Equal(b.events, events) {
		b.t.Fatalf("events %v, want %v", b.events, events)
	}
	b.events = nil
}

// mover is an engine under test in a migration state, with some memory, over
// its primary path 77, with 78 as the alternate one. It expects e0 and sends
// from s0 on.
type mover struct {
	*bench
	m                    *mr.MR
	primary, alt         *frame.Path // its own
	peerPrimary, peerAlt *frame.Path // the peer's ends of them
	peerElsewhere        *frame.Path
	expect               bth.PSN // next PSN the peer sends
}

func newMover(t testing.TB, state qp.MigState, c pairConfig) *mover {
	t.Helper()
	c.psnA, c.psnB = s0, e0
	b := newBench(t, c)
	_, m := b.region(t, 4096)
	v := &mover{bench: b, m: m, primary: b.path, peerPrimary: b.peer.path, alt: over(b.node, b.peer, 78), peerAlt: over(b.peer, b.node, 78),
		peerElsewhere: over(b.peer, b.node, 79), expect: e0}
	for range 16 {
		must(0, b.PostRecv(&qp.RecvWR{SG: []mr.SGE{m.SGE(0, 64)}}))
	}
	v.take(v.peerPrimary, true) // something that duplicates can repeat
	if state == qp.Migrated {
		return v
	}
	load(t, b.node, v.alt)
	v.wantMig(qp.Rearm)
	if state == qp.Armed {
		v.take(v.peerPrimary, false)
		v.wantMig(qp.Armed)
	}
	return v
}

// op is the SEND of the service.
func (v *mover) op() bth.Opcode {
	if v.Type() == qp.UC {
		return bth.UCSendOnly
	}
	return bth.RCSendOnly
}

// next is the packet of the peer that is expected.
func (v *mover) next(moved bool) packet {
	return packet{op: v.op(), psn: v.expect, moved: moved, ack: v.Type() == qp.RC}
}

// take injects the expected packet and checks that it is executed.
func (v *mover) take(path *frame.Path, moved bool) {
	v.t.Helper()
	v.injectOver(path, v.next(moved))
	if n := len(drain(v.recv)); n != 1 {
		v.t.Fatalf("%d receives completed, want 1", n)
	}
	v.expect = v.expect.Add(1)
	v.sent()
}

// TestMigrationModify is the table of the states that a program may request: from every migration state, and in every
// state of the queue pair that accepts the attribute.
func TestMigrationModify(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC} {
		for _, c := range []struct {
			name  string
			from  qp.MigState
			ask   qp.MigState
			load  bool // an alternate path in the same call
			sqd   bool // in SQD instead of RTS
			bad   bool
			want  qp.MigState
			event bool // PATH_MIG
		}{
			{name: "stay MIGRATED", from: qp.Migrated, ask: qp.Migrated, want: qp.Migrated},
			{name: "REARM without an alternate path", from: qp.Migrated, ask: qp.Rearm, bad: true},
			{name: "REARM with an alternate path", from: qp.Migrated, ask: qp.Rearm, load: true, want: qp.Rearm},
			{name: "REARM in SQD", from: qp.Migrated, ask: qp.Rearm, load: true, sqd: true, bad: true},
			{name: "ARMED by the program", from: qp.Migrated, ask: qp.Armed, load: true, bad: true},
			{name: "REARM again", from: qp.Rearm, ask: qp.Rearm, want: qp.Rearm},
			{name: "REARM again with another path", from: qp.Rearm, ask: qp.Rearm, load: true, want: qp.Rearm},
			{name: "MIGRATED before the peer has re-armed", from: qp.Rearm, ask: qp.Migrated, bad: true},
			{name: "ARMED before the peer has re-armed", from: qp.Rearm, ask: qp.Armed, bad: true},
			{name: "manual migration", from: qp.Armed, ask: qp.Migrated, want: qp.Migrated, event: true},
			{name: "manual migration in SQD", from: qp.Armed, ask: qp.Migrated, sqd: true, want: qp.Migrated, event: true},
			{name: "REARM while ARMED", from: qp.Armed, ask: qp.Rearm, bad: true},
			{name: "ARMED while ARMED", from: qp.Armed, ask: qp.Armed, bad: true},
			{name: "no such state", from: qp.Armed, ask: 3, bad: true},
		} {
			t.Run(fmt.Sprintf("%v/%s", typ, c.name), func(t *testing.T) {
				v := newMover(t, c.from, pairConfig{typ: typ})
				if c.sqd {
					must(0, v.Modify(&qp.Attr{State: qp.SQD}, qp.AttrState))
				}
				a := qp.Attr{PathMigState: c.ask, AltAV: qp.NewAH(over(v.node, v.peer, 80)), AltPort: 1}
				mask := qp.AttrPathMigState
				if c.load {
					mask |= qp.AttrAltPath
				}
				before, _ := v.Query()
				err := v.Modify(&a, mask)
				if c.bad {
					if after, _ := v.Query(); !errors.Is(err, syscall.EINVAL) || after != before {
						t.Fatalf("error %v, attributes %+v, were %+v", err, after, before)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if c.event {
					v.wantMig(c.want, qp.EventPathMig)
				} else {
					v.wantMig(c.want)
				}
			})
		}
	}
}

// TestMigrationAttributes: bad values of an alternate path, and the services
// and transitions that take none.
func TestMigrationAttributes(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(*qp.Attr)
	}{
		{"no address vector", func(a *qp.Attr) { a.AltAV = nil }},
		{"port 0", func(a *qp.Attr) { a.AltPort = 0 }},
		{"port 2", func(a *qp.Attr) { a.AltPort = 2 }},
		{"P_Key index 1", func(a *qp.Attr) { a.AltPKeyIndex = 1 }},
		{"timeout 32", func(a *qp.Attr) { a.AltTimeout = 32 }},
		{"good", func(*qp.Attr) {}},
	} {
		v := newMover(t, qp.Migrated, pairConfig{})
		a := qp.Attr{AltAV: qp.NewAH(v.alt), AltPort: 1, AltTimeout: 31}
		c.bad(&a)
		if err := v.Modify(&a, qp.AttrAltPath); errors.Is(err, syscall.EINVAL) == (c.name == "good") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	n := fresh(t, qp.UD)
	walk(t, n, qp.RTS)
	for _, mask := range []qp.AttrMask{qp.AttrAltPath, qp.AttrPathMigState} {
		if err := n.Modify(&qp.Attr{AltAV: qp.NewAH(n.path), AltPort: 1}, mask); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("UD takes %v: %v", mask, err)
		}
	}
	n = fresh(t, qp.RC)
	walk(t, n, qp.Init)
	a := allAttrs(n)
	a.State, a.AltAV, a.AltPort = qp.RTR, qp.NewAH(n.path), 1
	mask := qp.AttrState | required[qp.RC][[2]qp.State{qp.Init, qp.RTR}]
	if err := n.Modify(&a, mask|qp.AttrPathMigState); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("PATH_MIG_STATE on the way to RTR: %v", err)
	}
	if err := n.Modify(&a, mask|qp.AttrAltPath); err != nil {
		t.Errorf("ALT_PATH on the way to RTR: %v", err)
	}
	a.State, a.PathMigState = qp.RTS, qp.Rearm
	if err := n.Modify(&a, qp.AttrState|qp.AttrPathMigState|required[qp.RC][[2]qp.State{qp.RTR, qp.RTS}]); err != nil || n.MigState() != qp.Rearm {
		t.Errorf("REARM on the way to RTS: %v, state %v", err, n.MigState())
	}
	must(0, n.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
	if a, _ := n.Query(); a.PathMigState != qp.Migrated || a.AltAV != nil {
		t.Errorf("after RESET: %+v", a)
	}
}

// TestMigrationPackets is the table of what an arriving packet does, by state,
// path, M bit and PSN.
func TestMigrationPackets(t *testing.T) {
	const (
		primary   = "primary"
		alternate = "alternate"
		elsewhere = "elsewhere"
	)
	const late, now, ahead = -1, 0, 1
	for _, c := range []struct {
		state qp.MigState
		path  string
		moved bool
		psn   int // relative to the expected one
		taken bool
		want  qp.MigState
		event qp.EventType
	}{
		// MIGRATED: the M bit means nothing, and there is only one path.
		{qp.Migrated, primary, false, now, true, qp.Migrated, 0},
		{qp.Migrated, primary, true, now, true, qp.Migrated, 0},
		{qp.Migrated, primary, false, late, true, qp.Migrated, 0},
		{qp.Migrated, primary, false, ahead, true, qp.Migrated, 0},
		{qp.Migrated, alternate, true, now, false, qp.Migrated, 0},
		{qp.Migrated, alternate, false, now, false, qp.Migrated, 0},
		{qp.Migrated, elsewhere, true, now, false, qp.Migrated, 0},

		// REARM: M=0 in order over the primary path is the peer's REARM.
		{qp.Rearm, primary, false, now, true, qp.Armed, 0},
		{qp.Rearm, primary, false, late, true, qp.Rearm, 0},
		{qp.Rearm, primary, false, ahead, true, qp.Rearm, 0},
		{qp.Rearm, primary, true, now, true, qp.Rearm, 0},
		{qp.Rearm, alternate, false, now, false, qp.Rearm, 0},
		{qp.Rearm, alternate, true, now, true, qp.Migrated, qp.EventPathMig}, // the peer was ARMED: its packet with M=0 was lost
		{qp.Rearm, alternate, true, ahead, false, qp.Rearm, 0},
		{qp.Rearm, alternate, true, late, false, qp.Rearm, 0},
		{qp.Rearm, elsewhere, true, now, false, qp.Rearm, 0},

		// ARMED: M=1 over the alternate path is the peer's migration, even in a
		// packet that it repeats because our answer was lost.
		{qp.Armed, primary, false, now, true, qp.Armed, 0},
		{qp.Armed, primary, false, late, true, qp.Armed, 0},
		{qp.Armed, primary, true, now, true, qp.Armed, qp.EventPathMigErr},
		{qp.Armed, primary, true, late, true, qp.Armed, 0},
		{qp.Armed, primary, true, ahead, true, qp.Armed, 0}, // a missing packet before it may come over the alternate path
		{qp.Armed, alternate, true, now, true, qp.Migrated, qp.EventPathMig},
		{qp.Armed, alternate, true, late, true, qp.Migrated, qp.EventPathMig},
		{qp.Armed, alternate, true, ahead, true, qp.Migrated, qp.EventPathMig},
		{qp.Armed, alternate, false, now, false, qp.Armed, 0},
		{qp.Armed, elsewhere, true, now, false, qp.Armed, qp.EventPathMigErr},
		{qp.Armed, elsewhere, false, now, false, qp.Armed, 0},
	} {
		for _, typ := range []qp.Type{qp.RC, qp.UC} {
			t.Run(fmt.Sprintf("%v/%v/%s/M=%v/%+d", typ, c.state, c.path, c.moved, c.psn), func(t *testing.T) {
				v := newMover(t, c.state, pairConfig{typ: typ})
				path := map[string]*frame.Path{primary: v.peerPrimary, alternate: v.peerAlt, elsewhere: v.peerElsewhere}[c.path]
				p := v.next(c.moved)
				p.psn = p.psn.Add(c.psn)
				wrong, rcvd := v.cnt.WrongPeer, v.cnt.RcvdPkts
				for range 2 { // a copy of it must not make a second event
					v.injectOver(path, p)
				}
				if c.event != 0 {
					v.wantMig(c.want, c.event)
				} else {
					v.wantMig(c.want)
				}
				if taken := v.cnt.RcvdPkts == rcvd+2 && v.cnt.WrongPeer == wrong; taken != c.taken {
					t.Errorf("taken %v, want %v", taken, c.taken)
				}
				if refused := v.cnt.WrongPeer == wrong+2 && v.cnt.RcvdPkts == rcvd; refused == c.taken {
					t.Errorf("refused %v, want %v", refused, !c.taken)
				}
				v.sent()
				v.wantState(qp.RTS)
			})
		}
	}
}

// TestMigrationAnswers: acknowledgements have the M bit, too. They arm and migrate a requester that gets no other
// packets of its peer.
func TestMigrationAnswers(t *testing.T) {
	answer := func(psn bth.PSN, moved bool) packet {
		return packet{op: bth.RCAck, psn: psn, syndrome: bth.AckNoCredits, moved: moved}
	}
	v := newMover(t, qp.Rearm, pairConfig{})
	for range 4 {
		v.post(send(v.m, 1))
	}
	v.injectOver(v.peerPrimary, answer(s0.Add(9), false)) // to nothing we sent
	v.wantMig(qp.Rearm)
	v.injectOver(v.peerPrimary, answer(s0, false))
	v.wantMig(qp.Armed)
	v.injectOver(v.peerPrimary, answer(s0, true)) // late
	v.wantMig(qp.Armed)
	v.injectOver(v.peerAlt, answer(s0.Add(1), true))
	v.wantMig(qp.Migrated, qp.EventPathMig)
	v.wantDone(cq.Success, cq.Success)
	v.injectOver(v.peerPrimary, answer(s0.Add(2), false)) // sent before the peer changed over
	v.injectOver(v.peerAlt, answer(s0.Add(3), true))
	v.wantDone(cq.Success, cq.Success)
	if v.cnt.LatePath != 1 || v.cnt.PathMigrations != 1 {
		t.Errorf("counters %+v", v.cnt)
	}
}

// TestMigrationBit: M is set in MIGRATED and clear in the other states, in
// requests and answers, for RC and UC.
func TestMigrationBit(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC} {
		for _, s := range []qp.MigState{qp.Migrated, qp.Rearm, qp.Armed} {
			v := newMover(t, s, pairConfig{typ: typ})
			v.post(send(v.m, 1))
			if typ == qp.RC {
				v.post(read(v.m, 8))
				v.post(qp.SendWR{Opcode: qp.FetchAdd, SG: []mr.SGE{v.m.SGE(0, 8)}})
				v.inject(v.next(s == qp.Migrated)) // answered by an ACK
				v.inject(packet{op: bth.RCReadRequest, psn: v.expect.Add(1), va: v.m.Addr(), key: v.m.RKey(), length: 3000})
				v.inject(packet{op: bth.RCFetchAdd, psn: v.expect.Add(4), va: v.m.Addr(), key: v.m.RKey()})
			}
			out := v.sent()
			if want := map[qp.Type]int{qp.RC: 8, qp.UC: 1}[typ]; len(out) != want {
				t.Fatalf("sent %v, want %d packets", summary(out), want)
			}
			for _, p := range out {
				if p.MigReq() != (s == qp.Migrated) {
					t.Errorf("%v %v: %v with M=%v", typ, s, p.Op, p.MigReq())
				}
			}
		}
	}
}

// TestMigrationAutomatic: an armed queue pair that has used up its retries
// sends over the alternate path, with new retries and the timeout of that path.
// Without an alternate path left it fails.
func TestMigrationAutomatic(t *testing.T) {
	v := newMover(t, qp.Armed, pairConfig{retry: 2})
	v.post(send(v.m, 1))
	v.want(bth.RCSendOnly, s0)
	for range 2 {
		v.expire()
		if p := v.want(bth.RCSendOnly, s0); p.MigReq() || p.Dst != v.primary.Config().Dst {
			t.Fatalf("retried to %v with M=%v", p.Dst.Addr(), p.MigReq())
		}
	}
	v.wantMig(qp.Armed)
	v.expire() // the third time
	v.wantMig(qp.Migrated, qp.EventPathMig)
	for range 3 { // as often as on a new queue pair
		if p := v.want(bth.RCSendOnly, s0); !p.MigReq() || p.Dst != v.alt.Config().Dst || p.Src != v.alt.Config().Src {
			t.Fatalf("sent from %v to %v with M=%v", p.Src.Addr(), p.Dst.Addr(), p.MigReq())
		}
		if d := v.NextTimeout().Sub(v.net.now); d != bth.AckTimeout(altTimeout) {
			t.Fatalf("waits %v on the alternate path", d)
		}
		v.expire()
	}
	v.wantSilence()
	v.wantDone(cq.RetryExcErr)
	v.wantState(qp.Err)
	if v.cnt.PathMigrations != 1 || v.cnt.RetryExceededErr != 1 {
		t.Errorf("counters %+v", v.cnt)
	}
}

// TestMigrationCauses: sequence NAKs and missing answers use up retries like the timer does, and lead to the
// alternate path. RNR NAKs do not, because they show that the path works. A queue pair that is not ARMED fails.
func TestMigrationCauses(t *testing.T) {
	for _, c := range []struct {
		name  string
		state qp.MigState
		cause func(*mover)
		want  qp.MigState
		done  []cq.Status
	}{
		{"sequence NAK", qp.Armed, func(v *mover) { v.inject(nak(bth.NAKSequence, s0)) }, qp.Migrated, nil},
		{"missing READ response", qp.Armed, func(v *mover) { v.inject(ack(s0.Add(1))) }, qp.Migrated, nil},
		{"timer", qp.Armed, func(v *mover) { v.expire() }, qp.Migrated, nil},
		{"RNR NAK", qp.Armed, func(v *mover) {
			v.inject(nak(bth.RNR(1), s0))
			v.expire()
			v.inject(nak(bth.RNR(1), s0))
		}, qp.Armed, []cq.Status{cq.RNRRetryExcErr, cq.WRFlushErr}},
		{"fatal NAK", qp.Armed, func(v *mover) { v.inject(nak(bth.NAKRemoteAccess, s0)) }, qp.Armed, []cq.Status{cq.RemAccessErr, cq.WRFlushErr}},
		{"timer in REARM", qp.Rearm, func(v *mover) { v.expire() }, qp.Rearm, []cq.Status{cq.RetryExcErr, cq.WRFlushErr}},
		{"timer in MIGRATED", qp.Migrated, func(v *mover) { v.expire() }, qp.Migrated, []cq.Status{cq.RetryExcErr, cq.WRFlushErr}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newMover(t, c.state, pairConfig{retry: none, rnr: 1})
			v.post(read(v.m, 8))
			v.post(send(v.m, 1))
			v.sent()
			c.cause(v)
			v.wantDone(c.done...)
			if c.want == qp.Migrated && c.state == qp.Armed {
				v.wantMig(c.want, qp.EventPathMig)
				v.wantSent(line{bth.RCReadRequest, s0}, line{bth.RCSendOnly, s0.Add(1)})
			} else {
				v.wantMig(c.want)
			}
		})
	}
}

// TestMigrationQuery: the paths that Query returns while ARMED and after the migration, when there is no alternate
// path any more.
func TestMigrationQuery(t *testing.T) {
	v := newMover(t, qp.Armed, pairConfig{})
	a, _ := v.Query()
	if a.AV != qp.NewAH(v.primary) || a.AltAV != qp.NewAH(v.alt) || a.AltPort != 1 || a.AltTimeout != altTimeout || a.Timeout != 8 {
		t.Errorf("armed: %+v", a)
	}
	must(0, v.setMig(qp.Migrated))
	v.wantMig(qp.Migrated, qp.EventPathMig)
	a, _ = v.Query()
	if a.AV != qp.NewAH(v.alt) || a.AltAV != nil || a.AltPort != 0 || a.Timeout != altTimeout {
		t.Errorf("migrated: %+v", a)
	}
	if err := v.setMig(qp.Rearm); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("REARM without a new alternate path: %v", err)
	}
	v = newMover(t, qp.Armed, pairConfig{typ: qp.UC})
	must(0, v.setMig(qp.Migrated))
	if a, _ = v.Query(); a.AV != qp.NewAH(v.alt) || a.Timeout != 0 {
		t.Errorf("UC migrated: %+v", a)
	}
}

// TestMigrationRearm: a queue pair migrates to the alternate path and back, several times.
func TestMigrationRearm(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC} {
		v := newMover(t, qp.Armed, pairConfig{typ: typ})
		primary, alt := v.peerPrimary, v.peerAlt
		mine, myAlt := v.primary, v.alt
		for range 4 {
			v.take(alt, true)
			v.wantMig(qp.Migrated, qp.EventPathMig)
			v.take(alt, true)
			v.post(send(v.m, 1))
			if p := v.sent()[0]; !p.MigReq() || p.Dst != myAlt.Config().Dst {
				t.Fatalf("sent to %v with M=%v", p.Dst.Addr(), p.MigReq())
			}
			v.take(primary, false) // late
			load(t, v.node, mine)
			v.take(primary, false) // later still; it does not come over the primary path any more
			v.wantMig(qp.Rearm)
			v.take(alt, true)
			v.wantMig(qp.Rearm)
			v.take(alt, false)
			v.wantMig(qp.Armed)
			v.injectOver(primary, v.next(false)) // refused: the old path is the alternate one now
			if n := len(drain(v.recv)); n != 0 {
				t.Fatalf("%d receives", n)
			}
			primary, alt, mine, myAlt = alt, primary, myAlt, mine
			for range 6 {
				must(0, v.PostRecv(&qp.RecvWR{SG: []mr.SGE{v.m.SGE(0, 64)}}))
			}
		}
	}
}

// TestMigrationUnheard: a program may set REARM at once after a migration. M stays set until a packet has come over
// the new path, so the peer learns of the migration.
func TestMigrationUnheard(t *testing.T) {
	v := newMover(t, qp.Armed, pairConfig{})
	must(0, v.setMig(qp.Migrated))
	load(t, v.node, v.primary)
	v.wantMig(qp.Rearm, qp.EventPathMig)
	wantBit := func(moved bool) {
		t.Helper()
		v.post(send(v.m, 1))
		if p := v.sent()[0]; p.MigReq() != moved || p.Dst != v.alt.Config().Dst {
			t.Fatalf("sent to %v with M=%v, want %v", p.Dst.Addr(), p.MigReq(), moved)
		}
	}
	wantBit(true)
	v.take(v.peerPrimary, false) // the peer does not know yet
	v.wantMig(qp.Rearm)
	wantBit(true)
	old := v.next(true)
	old.psn = old.psn.Add(-1)
	v.injectOver(v.peerAlt, old) // proves nothing
	wantBit(true)
	v.take(v.peerAlt, true) // now it does
	v.wantMig(qp.Rearm)
	wantBit(false)
	v.take(v.peerAlt, false)
	v.wantMig(qp.Armed)
}

// TestMigrationLateUC: UC takes the next packet over the old path too, but none
// that was overtaken: messages would change their order.
func TestMigrationLateUC(t *testing.T) {
	v := newMover(t, qp.Armed, pairConfig{typ: qp.UC})
	v.expect = v.expect.Add(1) // what comes first over the new path
	v.take(v.peerAlt, true)
	v.wantMig(qp.Migrated, qp.EventPathMig)
	late := v.next(false)
	late.psn = late.psn.Add(-2)
	v.injectOver(v.peerPrimary, late)
	if n := len(drain(v.recv)); n != 0 || v.cnt.WrongPeer != 1 {
		t.Errorf("%d receives, %d packets refused", n, v.cnt.WrongPeer)
	}
	v.take(v.peerPrimary, false)
}

// TestMigrationSameAddresses: an alternate path may differ only in the UDP source port. A network that balances by
// ports then uses another route.
func TestMigrationSameAddresses(t *testing.T) {
	v := newMover(t, qp.Migrated, pairConfig{})
	c := v.primary.Config()
	c.SrcPort = 0xDEAD
	load(t, v.node, must(frame.NewPath(c)))
	v.take(v.peerPrimary, true)
	v.wantMig(qp.Rearm)
	v.take(v.peerPrimary, false)
	v.wantMig(qp.Armed)
	v.take(v.peerPrimary, true)
	v.wantMig(qp.Migrated, qp.EventPathMig)
	if p := v.Path().Config(); p.SrcPort != 0xDEAD {
		t.Errorf("sends from port %#x", p.SrcPort)
	}
}

// TestMigrationErr: in state ERR nothing migrates and no event is raised.
func TestMigrationErr(t *testing.T) {
	v := newMover(t, qp.Armed, pairConfig{})
	must(0, v.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
	for _, path := range []*frame.Path{v.peerPrimary, v.peerAlt, v.peerElsewhere} {
		v.injectOver(path, v.next(true))
	}
	v.wantSilence()
	v.wantMig(qp.Armed)
}

// TestMigrationNewPrimary: after a new primary path was set in SQD, packets over the paths of an earlier migration
// are refused.
func TestMigrationNewPrimary(t *testing.T) {
	v := newMover(t, qp.Armed, pairConfig{})
	must(0, v.setMig(qp.Migrated))
	must(0, v.Modify(&qp.Attr{State: qp.SQD}, qp.AttrState))
	must(0, v.Modify(&qp.Attr{AV: qp.NewAH(over(v.node, v.peer, 79))}, qp.AttrAV))
	wrong := v.cnt.WrongPeer
	v.injectOver(v.peerPrimary, v.next(false))
	v.injectOver(v.peerAlt, v.next(true))
	if v.cnt.WrongPeer != wrong+2 {
		t.Errorf("%d packets refused, want 2", v.cnt.WrongPeer-wrong)
	}
	v.take(v.peerElsewhere, true)
}
