package scenario_test

import (
	"bytes"
	"fmt"
	"hash/crc64"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/qp"
)

// The forms in which a device may get the same packets.
const (
	oneByOne   = iota // each in a batch of its own and parsed anew: no fast path applies
	wholeFrame        // in batches, as frames
	super             // in batches, those of one flow as the datagrams of one envelope
	unseenOne         // as oneByOne, by a socket that hides the Identification
	unseen            // as super, by such a socket
	relayed           // as frames, by a shard that their queue pairs do not belong to
	relayedRun        // as super, by such a shard
	deliveries
)

var deliveryNames = [deliveries]string{"one by one", "frames", "super-packets", "one by one, unseen", "super-packets, unseen", "relayed frames", "relayed super-packets"}

// FuzzBatches: any packets, in any batches, give the same state, counters and answers as one by one.
func FuzzBatches(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range 8 {
		script := make([]byte, 100*(n+1))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(compareDeliveries)
}

// TestBatches runs FuzzBatches with scripts of its own.
func TestBatches(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		script := make([]byte, 50+rng.IntN(600))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		compareDeliveries(t, script)
		if t.Failed() {
			t.Fatalf("script %q", script)
		}
	}
}

func compareDeliveries(t *testing.T, script []byte) {
	bubble(t, func(t *testing.T) {
		var worlds [deliveries]*world
		for delivery := range worlds {
			worlds[delivery] = newWorld(t, delivery)
			for i, e := range worlds[delivery].ends {
				same := worlds[0].ends[i]
				if e.qp.Num() != same.qp.Num() || e.srqn != same.srqn || e.mr.RKey() != same.mr.RKey() || e.mr.Addr() != same.mr.Addr() {
					t.Fatalf("queue pair %d has other numbers or keys in another world", i)
				}
			}
		}
		s := scribe{world: worlds[0], script: script}
		for len(s.script) > 0 {
			act := s.actions()
			frames := s.frames()
			var before [deliveries]string
			for delivery, w := range worlds {
				for _, a := range act {
					a(w)
				}
				w.deliver(frames)
				before[delivery] = w.outcome()
			}
			// Over a socket the GRHs differ, since they contain the Identification.
			for delivery, against := range [deliveries]int{unseenOne: unseenOne, unseen: unseenOne} {
				if before[delivery] != before[against] {
					t.Fatalf("%s differs from %s:\n%s\nwant\n%s", deliveryNames[delivery], deliveryNames[against], before[delivery], before[against])
				}
			}
		}
	})
}

var crcTable = crc64.MakeTable(crc64.ECMA)

// world is a device with queue pairs of all kinds, whose peers the test plays.
type world struct {
	t        *testing.T
	delivery int
	dev      *roce.Device
	ports    [2]*feeder
	ends     []*worldEnd
	loop     [2]*worldEnd // connected to each other
	envs     []frame.Envelope
}

// worldEnd is one queue pair with its memory and completion queues.
type worldEnd struct {
	typ    qp.Type
	qp     *roce.QP
	cqs    []*roce.CQ
	mr     *roce.MR
	buf    []byte
	post   func(*roce.RecvWR) error
	srqn   bth.SRQN
	opcode []bth.Opcode // that it may expect
}

const (
	worldAddr, otherAddr = "10.0.0.1", "10.0.0.3"
	peerAddr             = "10.0.0.2"
	strangeAddr          = "10.0.0.66" // of a stranger, or where alternate paths lead
	peerQPN              = 0x1234
	firstPSN             = bth.PSN(0xFFFFFA) // wraps soon
	worldMTU             = bth.MTU256
)

func newWorld(t *testing.T, delivery int) *world {
	n := newNetwork(t)
	w := &world{t: t, delivery: delivery}
	c := n.multi(worldAddr, 2, func([]byte) int { return 0 })
	for i := range w.ports {
		w.ports[i] = &feeder{Port: c.Ports[i]}
		c.Ports[i] = w.ports[i]
	}
	c.Addrs = append(c.Addrs, netip.MustParseAddr(otherAddr))
	c.Polled = true
	c.Rand = rand.New(rand.NewPCG(5, 6)).Uint64
	w.dev = n.open(c)
	requests := []bth.Opcode{bth.RCSendOnly, bth.RCSendOnlyImm, bth.RCSendFirst, bth.RCSendMiddle, bth.RCSendLast, bth.RCWriteOnly,
		bth.RCWriteFirst, bth.RCWriteLast, bth.RCWriteOnlyImm, bth.RCReadRequest, bth.RCFetchAdd, bth.RCFlush, bth.RCAtomicWrite}
	answers := []bth.Opcode{bth.RCAck, bth.RCReadResponseOnly, bth.RCReadResponseFirst, bth.RCReadResponseLast, bth.RCAtomicAck}
	for range 2 {
		w.add(&worldEnd{typ: qp.RC, opcode: append(requests, answers...)})
	}
	unconfirm(w.add(&worldEnd{typ: qp.RC, opcode: append(requests, bth.RCReadResponseOnly)}).qp)
	w.add(&worldEnd{typ: qp.UC, opcode: []bth.Opcode{0x20, 0x21, 0x22, 0x24, 0x26, 0x28, 0x2A}})
	w.add(&worldEnd{typ: qp.UD, opcode: []bth.Opcode{bth.UDSendOnly, bth.UDSendOnlyImm}})
	w.addXRC(append(requests, answers...))
	for i := range w.loop {
		w.loop[i] = w.add(&worldEnd{typ: qp.RC, opcode: requests})
	}
	for i, e := range w.loop {
		e.connect(w, worldAddr, w.loop[1-i].qp.Num())
	}
	for i, e := range w.ends {
		e.connect(w, peerAddr, peerQPN+bth.QPN(i))
	}
	return w
}

// worldAccess also permits FLUSH.
const worldAccess = roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead | roce.RemoteAtomic | roce.FlushGlobal

// add makes a queue pair on the first shard.
func (w *world) add(e *worldEnd) *worldEnd {
	t := w.t
	pd := w.dev.AllocPD()
	e.buf = make([]byte, 8192)
	e.mr = ok(pd.RegMR(e.buf, worldAccess|roce.ZeroBased))(t)
	e.cqs = []*roce.CQ{ok(w.dev.CreateCQ(255))(t)}
	e.qp = ok(pd.CreateQP(roce.QPConfig{Type: e.typ, SendCQ: e.cqs[0], Caps: deepCaps}))(t)
	e.post = e.qp.PostRecv
	access, qkey := worldAccess&^roce.LocalWrite, bth.QKey(0)
	if e.typ == qp.UD {
		access, qkey = 0, testQKey
	}
	check(t, e.qp.Init(access, qkey))
	for id := range uint64(16) {
		if e.typ != qp.XRCSend {
			check(t, e.post(&roce.RecvWR{ID: id, SG: []roce.SGE{e.mr.SGE(4096+64*int(id), 520)}}))
		}
	}
	w.ends = append(w.ends, e)
	return e
}

// addXRC makes a target and an initiator.
func (w *world) addXRC(opcodes []bth.Opcode) {
	t := w.t
	s := newXRCServer(t, w.dev, 0, 1, 7, 1024)
	v := s.services[0]
	v.mr = ok(v.PD().RegMR(v.buf, worldAccess|roce.ZeroBased))(t)
	target := &worldEnd{typ: qp.XRCRecv, mr: v.mr, buf: v.buf, post: v.PostRecv, srqn: v.Num()}
	target.qp = ok(s.xrcd.CreateQP(roce.QPConfig{}))(t)
	check(t, target.qp.Init(worldAccess&^roce.LocalWrite, 0))
	initiator := w.add(&worldEnd{typ: qp.XRCSend})
	initiator.post = nil
	for _, op := range opcodes {
		op |= bth.Opcode(bth.XRC) << 5
		initiator.opcode, target.opcode = append(initiator.opcode, op), append(target.opcode, op)
	}
	w.ends = append(w.ends, target)
}

// connect brings a queue pair to RTS. No timer of it ever runs.
func (e *worldEnd) connect(w *world, peer string, qpn bth.QPN) {
	switch {
	case e.qp.State() == qp.RTS:
	case e.typ == qp.UD:
		check(w.t, e.qp.Ready(firstPSN))
	default:
		check(w.t, e.qp.Connect(w.t.Context(), roce.Peer{AHAttr: roce.AHAttr{DGID: bth.GIDFrom(netip.MustParseAddr(peer))}, QPN: qpn,
			PSN: firstPSN, MTU: worldMTU, RdAtomic: 4, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1}, firstPSN))
	}
}

// reconnect resets a queue pair and connects it with a peer.
func (e *worldEnd) reconnect(w *world, peer string, qpn bth.QPN) {
	check(w.t, e.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
	check(w.t, e.qp.Init(worldAccess&^roce.LocalWrite, 0))
	for id := range uint64(4) {
		check(w.t, e.post(&roce.RecvWR{ID: id, SG: []roce.SGE{e.mr.SGE(4096, 520)}}))
	}
	e.connect(w, peer, qpn)
}

// arm loads an alternate path and asks the peer to re-arm, in a state that allows it.
func (e *worldEnd) arm(w *world, to string) {
	e.qp.LoadAlternate(w.t.Context(), roce.AHAttr{DGID: bth.GIDFrom(netip.MustParseAddr(to))})
	e.qp.Rearm()
}

// deliver gives the device the frames of an epoch. The device sends nothing before it has all of them, so that
// acknowledgements merge in the same way.
func (w *world) deliver(frames [][]byte) {
	for _, p := range w.ports {
		p.full = true
	}
	to := w.ports[0]
	if w.delivery == relayed || w.delivery == relayedRun {
		to = w.ports[1]
	}
	w.envs = make([]frame.Envelope, 0, len(frames))
	var batch []link.Frame
	for i, b := range frames {
		b = bytes.Clone(b)
		f := link.Frame{Data: b}
		var before *link.Frame
		if len(batch) > 0 {
			before = &batch[len(batch)-1]
		}
		switch w.delivery {
		case super, relayedRun:
			f = w.segment(before, b, true)
		case unseen, unseenOne:
			f = w.segment(before, b, false)
		}
		batch = append(batch, f)
		alone := w.delivery == oneByOne || w.delivery == unseenOne
		if alone || len(batch) == link.Batch || i == len(frames)-1 {
			if alone {
				inside.NIC(w.dev).ForgetFlows()
			}
			to.frames, batch = batch, nil
			for len(to.frames) > 0 {
				w.dev.Progress()
			}
		}
	}
	for _, p := range w.ports {
		p.full = false
	}
	for range 1000 {
		if !w.dev.Progress() {
			return
		}
	}
	w.t.Fatal("the device does not come to rest")
}

// segment turns a frame into a datagram with an envelope: that of the frame before, if it is the same, or a
// new one. A frame that is no RoCEv2 packet stays a frame.
func (w *world) segment(before *link.Frame, b []byte, idSeen bool) link.Frame {
	var p frame.Packet
	switch p.Parse(b, frame.LayoutEthernet).(type) {
	case frame.ParseError:
		return link.Frame{Data: b}
	case bth.ParseError:
		if p.Data == nil {
			return link.Frame{Data: b}
		}
	}
	id := uint16(b[18])<<8 | uint16(b[19])
	env := frame.Envelope{Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
		SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, VLAN: p.VLAN, ID: id, IDSeen: idSeen}
	if !idSeen {
		env.ID = 0
	}
	env.Seal()
	if before != nil && before.Env != nil {
		same := *before.Env
		if idSeen && same.ID+before.Segment+1 != id {
			same.Src = bth.GID{}
		}
		same.ID = env.ID
		if reflect.DeepEqual(same, env) {
			return link.Frame{Data: p.Data, Env: before.Env, Segment: before.Segment + 1}
		}
	}
	w.envs = append(w.envs, env)
	return link.Frame{Data: p.Data, Env: &w.envs[len(w.envs)-1]}
}

// outcome describes the observable state of the device.
func (w *world) outcome() string {
	var out bytes.Buffer
	for i, e := range w.ends {
		a, _ := e.qp.Query()
		fmt.Fprintf(&out, "%d %v: %v expects %v, sends %v, %v, unconfirmed %v, memory %x\n", i, e.typ, a.State, a.RQPSN, a.SQPSN, a.PathMigState,
			inside.QP(e.qp).WaitsForData(), crc64.Checksum(e.buf, crcTable))
		for _, c := range e.cqs {
			var wcs [300]roce.WC
			for _, wc := range wcs[:c.Poll(wcs[:])] {
				fmt.Fprintf(&out, "  %+v\n", wc)
			}
		}
	}
	got := w.dev.Counters()
	for _, f := range got.Counters.Fields() {
		if *f.V != 0 {
			fmt.Fprintf(&out, "%s %d ", f.Name, *f.V)
		}
	}
	fmt.Fprintf(&out, "\n%+v\n", got.Drops)
	for i, p := range w.ports {
		answers := map[bth.QPN][]string{}
		for _, b := range p.sent {
			var q frame.Packet
			if err := q.Parse(b, frame.LayoutEthernet); err != nil {
				w.t.Fatalf("sent % x: %v", b, err)
			}
			answers[q.DestQPN()] = append(answers[q.DestQPN()], fmt.Sprintf("%v %x", q.Dst, q.Data[:len(q.Data)-bth.ICRCLen]))
		}
		p.sent = nil
		for _, n := range slices.Sorted(maps.Keys(answers)) {
			fmt.Fprintf(&out, "port %d to %v: %v\n", i, n, answers[n])
		}
	}
	return out.String()
}
