package qp_test

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// dcPacket is a packet of an initiator that has no engine.
func (w *dcWorld) dcPacket(t testing.TB, from netip.Addr, d *node, f bth.Fields) *frame.Packet {
	t.Helper()
	return w.dcPacketVia(t, dcMAC, from, d, f)
}

// dcPacketVia is dcPacket with a source Ethernet address.
func (w *dcWorld) dcPacketVia(t testing.TB, mac frame.MAC, from netip.Addr, d *node, f bth.Fields) *frame.Packet {
	t.Helper()
	f.BTH.PKey, f.BTH.DestQPN = bth.DefaultPKey, d.Num()
	payload := f.Append(nil)
	path := must(frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(from), Dst: bth.GIDFrom(d.addr), SrcMAC: mac, DstMAC: dcNext, SrcPort: 0xC000, HopLimit: 64}))
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+len(payload)+bth.ICRCLen)
	body, crc := path.Put(b, frame.LayoutEthernet, len(payload)+bth.ICRCLen, 1)
	copy(body, payload)
	bth.PutICRC(body[len(payload):], crc.UpdateBody(payload))
	p := new(frame.Packet)
	if err := p.Parse(b, frame.LayoutEthernet); err != nil || !d.CheckICRC(p) {
		t.Fatal("made a bad packet:", err)
	}
	return p
}

// dcConnect is a CONNECT with a key, of initiator qpn.
func (w *dcWorld) dcConnect(t testing.TB, from netip.Addr, d *node, qpn bth.QPN, connection uint32, key uint64) *frame.Packet {
	return w.dcPacket(t, from, d, bth.Fields{BTH: bth.BTHFields{Op: bth.DCConnect, PSN: 100}, DCETH: &bth.DCETHFields{QPN: qpn},
		DCCETH: &bth.DCCETHFields{Key: key, Connection: connection, Depth: 4, MTU: uint8(bth.MTU1024)}})
}

// answers emits all packets that a target has to send, and returns them decoded.
func answers(t testing.TB, now mono.Time, d *node) (out []bth.Fields) {
	t.Helper()
	s := &catcher{}
	for d.Emit(now, s) {
	}
	for _, b := range s.frames {
		var p frame.Packet
		if err := p.Parse(b, frame.LayoutEthernet); err != nil {
			t.Fatal(err)
		}
		out = append(out, bth.Decode(&p.Packet))
	}
	return out
}

// catcher is a sink that keeps the frames.
type catcher struct {
	frames [][]byte
	buf    []byte
}

func (s *catcher) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	s.buf = make([]byte, p.HeaderLen(frame.LayoutEthernet)+n)
	body, crc := p.Put(s.buf, frame.LayoutEthernet, n, 0)
	return body, crc, true
}

func (s *catcher) Commit() { s.frames = append(s.frames, s.buf) }

// TestDCTStrangers sends forged packets, and late and duplicated packets of a peer.
func TestDCTStrangers(t *testing.T) {
	w := newDCWorld(1, impairment{})
	d := w.target(t, qp.DCTConfig{}, 64)
	d.post(t, 8)
	peer, stranger := netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.1.2")
	send := func(from netip.Addr, context uint32, psn bth.PSN) *frame.Packet {
		return w.dcPacket(t, from, d.node, bth.Fields{BTH: bth.BTHFields{Op: 0xC0 | bth.RCSendOnly, PSN: psn, Flags: bth.AckReq}, DCETH: &bth.DCETHFields{QPN: 7, Context: context}})
	}
	leave := func(context uint32) *frame.Packet {
		return w.dcPacket(t, peer, d.node, bth.Fields{BTH: bth.BTHFields{Op: bth.DCDisconnect}, DCETH: &bth.DCETHFields{QPN: 7, Context: context}})
	}
	give := func(p *frame.Packet) []bth.Fields {
		d.HandlePacket(w.now, p)
		return answers(t, w.now, d.node)
	}
	one := func(what string, got []bth.Fields, op bth.Opcode) bth.Fields {
		t.Helper()
		if len(got) != 1 || got[0].BTH.Op != op || got[0].BTH.DestQPN != 7 {
			t.Fatalf("%s: answers %v, want one %v", what, got, op)
		}
		return got[0]
	}
	silent := func(what string, got []bth.Fields) {
		t.Helper()
		if len(got) != 0 {
			t.Fatalf("%s: answers %v", what, got)
		}
	}
	silent("data before a connection", give(send(peer, 0, 100)))
	if r := one("wrong key", give(w.dcConnect(t, stranger, d.node, 7, 1, 1)), bth.DCReject); r.DCCETH.Reason != bth.DCKeyViolation || r.DCCETH.Key != 0 || r.DCCETH.Connection != 1 {
		t.Error(r.DCCETH)
	}
	if s := d.DCTStatus(); s.Initiators != 0 || s.Sources != 0 || s.KeyViolations != 1 {
		t.Fatalf("%+v", s)
	}
	first := one("connect", give(w.dcConnect(t, peer, d.node, 7, 5, dcKey)), bth.DCAccept).DCETH.Context
	if again := one("doubled connect", give(w.dcConnect(t, peer, d.node, 7, 5, dcKey)), bth.DCAccept).DCETH.Context; again != first {
		t.Errorf("another context: %#x, %#x", first, again)
	}
	stray := one("late connect, or a stranger's", give(w.dcConnect(t, peer, d.node, 7, 4, dcKey)), bth.DCAccept).DCETH.Context
	silent("data of a stranger", give(send(stranger, first, 100)))
	silent("data with another context", give(send(peer, first+1, 100)))
	one("data", give(send(peer, first, 100)), 0xC0|bth.RCAck)
	silent("data of an earlier attempt", give(send(peer, stray, 100)))
	if n := d.DCTStatus().Initiators; n != 1 {
		t.Errorf("%d contexts, want 1", n)
	}
	one("doubled data", give(send(peer, first, 100)), 0xC0|bth.RCAck)
	silent("late connect", give(w.dcConnect(t, peer, d.node, 7, 3, dcKey)))
	silent("disconnect with another context", give(leave(first+1)))
	second := one("next connect", give(w.dcConnect(t, peer, d.node, 7, 6, dcKey)), bth.DCAccept).DCETH.Context
	one("doubled data before the next data", give(send(peer, first, 100)), 0xC0|bth.RCAck)
	one("data", give(send(peer, second, 100)), 0xC0|bth.RCAck)
	silent("late data", give(send(peer, first, 100)))
	silent("late disconnect", give(leave(first)))
	silent("disconnect", give(leave(second)))
	silent("doubled disconnect", give(leave(second)))
	third := one("doubled connect after disconnect", give(w.dcConnect(t, peer, d.node, 7, 6, dcKey)), bth.DCAccept).DCETH.Context
	silent("doubled data after disconnect", give(send(peer, second, 100)))
	if third == second || third == first {
		t.Error("a context number came again")
	}
	if got := len(drain(d.node.recv)); got != 2 {
		t.Errorf("%d messages, want 2", got)
	}
	silent("an answer", give(w.dcPacket(t, peer, d.node, bth.Fields{BTH: bth.BTHFields{Op: 0xC0 | bth.RCAck}, AETH: &bth.AETHFields{}})))
}

// TestDCTFlood: a flood of CONNECTs fills neither the queue of answers nor the table. The target keeps nothing about
// CONNECTs with a wrong key.
func TestDCTFlood(t *testing.T) {
	w := newDCWorld(2, impairment{})
	d := w.target(t, qp.DCTConfig{MaxInitiators: 100}, 64)
	a, b := netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.1.2")
	for i := range bth.QPN(5000) {
		d.HandlePacket(w.now, w.dcConnect(t, a, d.node, i, 1, dcKey))
		d.HandlePacket(w.now, w.dcConnect(t, b, d.node, i, 1, dcKey))
	}
	if got := len(answers(t, w.now, d.node)); got != 256 {
		t.Errorf("%d answers", got)
	}
	for i := range bth.QPN(200) {
		d.HandlePacket(w.now, w.dcConnect(t, a, d.node, i, 1, dcKey))
		answers(t, w.now, d.node)
	}
	if s := d.DCTStatus(); s.Initiators != 100 || s.Sources != 2 {
		t.Errorf("%+v", s)
	}
	d.HandlePacket(w.now, w.dcConnect(t, netip.MustParseAddr("10.1.1.3"), d.node, 1, 1, dcKey))
	if got := answers(t, w.now, d.node); len(got) != 1 || got[0].DCCETH.Reason != bth.DCNoResources {
		t.Error(got)
	}
	w.now = w.now.Add(10 * time.Second)
	d.HandlePacket(w.now, w.dcConnect(t, netip.MustParseAddr("10.1.1.3"), d.node, 1, 1, dcKey))
	if got := answers(t, w.now, d.node); len(got) != 1 || got[0].BTH.Op != bth.DCAccept {
		t.Error(got)
	}
}

// TestDCTReconnects: an initiator whose DISCONNECT was lost can connect again, also if its address has more than half
// of the contexts by now.
func TestDCTReconnects(t *testing.T) {
	w := newDCWorld(7, impairment{})
	d := w.target(t, qp.DCTConfig{MaxInitiators: 4}, 64)
	connect := func(from string, n bth.QPN, connection uint32) bth.Opcode {
		d.HandlePacket(w.now, w.dcConnect(t, netip.MustParseAddr(from), d.node, n, connection, dcKey))
		return answers(t, w.now, d.node)[0].BTH.Op
	}
	for n := range bth.QPN(4) {
		connect("10.1.1.1", n, 1)
	}
	w.now = w.now.Add(10 * time.Second)
	if got := connect("10.1.1.2", 9, 1); got != bth.DCAccept {
		t.Fatalf("the second address gets %v", got)
	}
	if got := connect("10.1.1.1", 3, 2); got != bth.DCAccept {
		t.Errorf("the next connection of an initiator gets %v", got)
	}
	if got := connect("10.1.1.1", 8, 1); got != bth.DCReject {
		t.Errorf("another initiator of the first address gets %v", got)
	}
}

// TestDCTForgedReject: a forged CONNECT with a wrong key makes the target neither learn a path to the forged address
// nor forget that path.
func TestDCTForgedReject(t *testing.T) {
	w := newDCWorld(6, impairment{})
	c := qp.DCTConfig{}
	var released int
	c.PathBackReleased = func(*frame.Path) { released++ }
	d := w.target(t, c, 64)
	peer := netip.MustParseAddr("10.1.1.1")
	forged := func() { d.HandlePacket(w.now, w.dcConnect(t, peer, d.node, 8, 1, 1)) }
	reject := func(learned int) {
		t.Helper()
		if got := answers(t, w.now, d.node); got[0].BTH.Op != bth.DCReject || w.learned != learned || released != 0 {
			t.Errorf("answers %v, %d paths learned and %d forgotten, want %d and none", got, w.learned, released, learned)
		}
	}
	forged()
	reject(0)
	forged() // its answer waits while the true one connects
	d.HandlePacket(w.now, w.dcConnect(t, peer, d.node, 7, 1, dcKey))
	reject(1)
	forged()
	reject(1)
	if err := d.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState); err != nil || released != 1 {
		t.Errorf("%d paths forgotten with the target, %v", released, err)
	}
}

// TestDCTLongRead: an initiator is silent while it gets the data of a READ. However long that takes, it
// neither counts as idle nor gives way to another.
func TestDCTLongRead(t *testing.T) {
	const packets = 40
	w := newDCWorld(5, impairment{})
	d := w.target(t, qp.DCTConfig{MaxInitiators: 1}, packets*1024)
	peer := netip.MustParseAddr("10.1.1.1")
	d.HandlePacket(w.now, w.dcConnect(t, peer, d.node, 7, 1, dcKey))
	context := answers(t, w.now, d.node)[0].DCETH.Context
	d.HandlePacket(w.now, w.dcPacket(t, peer, d.node, bth.Fields{BTH: bth.BTHFields{Op: 0xC0 | bth.RCReadRequest, PSN: 100},
		DCETH: &bth.DCETHFields{QPN: 7, Context: context}, RETH: &bth.RETHFields{VA: d.mr.Addr(), RKey: d.mr.RKey(), DMALen: packets * 1024}}))
	slow := &slowSink{}
	for i := range packets {
		slow.room = 1
		d.Emit(w.now, slow)
		if len(slow.frames) != i+1 {
			t.Fatalf("%d responses after %v, want %d", len(slow.frames), time.Duration(i)*2*time.Second, i+1)
		}
		d.HandlePacket(w.now, w.dcConnect(t, netip.MustParseAddr("10.1.1.2"), d.node, 7, 1, dcKey)) // wants the only place
		d.Emit(w.now, &slowSink{room: 1})                                                           // the answer to that
		w.now = w.now.Add(2 * time.Second)
		d.HandleTimeout(w.now)
	}
}

// slowSink is a sink with room for a few frames.
type slowSink struct {
	catcher
	room int
}

func (s *slowSink) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	if s.room == 0 {
		return nil, 0, false
	}
	s.room--
	return s.catcher.Begin(p, n)
}

// TestDCTMemory has 10 000 initiators, each of an address of its own, on one target.
func TestDCTMemory(t *testing.T) {
	const n, limit, activeLimit = 10000, 512, 1664
	w := newDCWorld(3, impairment{})
	d := w.target(t, qp.DCTConfig{}, 64)
	d.post(t, 8)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}) }
	before := heap()
	var contexts [n]uint32
	for i := range n {
		d.HandlePacket(w.now, w.dcConnect(t, addr(i), d.node, 7, 1, dcKey))
		contexts[i] = answers(t, w.now, d.node)[0].DCETH.Context
	}
	if s := d.DCTStatus(); s.Initiators != n || s.Sources != n {
		t.Fatalf("%+v", s)
	}
	accepted := (heap() - before) / n
	for i := range n {
		f := bth.Fields{BTH: bth.BTHFields{Op: 0xC0 | bth.RCWriteOnly, PSN: 100, Flags: bth.AckReq}, DCETH: &bth.DCETHFields{QPN: 7, Context: contexts[i]},
			RETH: &bth.RETHFields{VA: d.mr.Addr(), RKey: d.mr.RKey(), DMALen: 0}}
		d.HandlePacket(w.now, w.dcPacket(t, addr(i), d.node, f))
		if got := answers(t, w.now, d.node); len(got) != 1 || got[0].AETH == nil || got[0].AETH.Syndrome != bth.AckNoCredits {
			t.Fatal(got)
		}
	}
	active := (heap() - before) / n
	for i := range n {
		d.HandlePacket(w.now, w.dcPacket(t, addr(i), d.node, bth.Fields{BTH: bth.BTHFields{Op: bth.DCDisconnect}, DCETH: &bth.DCETHFields{QPN: 7, Context: contexts[i]}}))
	}
	left := (heap() - before) / n
	t.Logf("bytes for each initiator: accepted %d, after a WRITE %d, idle %d", accepted, active, left)
	if accepted > limit || active > activeLimit || left > limit {
		t.Errorf("bytes for each initiator: accepted %d, after a WRITE %d, idle %d; the limits are %d, %d, %d", accepted, active, left, limit, activeLimit, limit)
	}
	runtime.KeepAlive(d)
}

// FuzzDC hands packets made of the input to a target and an initiator, between packets of true peers. Neither may
// crash. The initiator completes each of its messages once, in order.
func FuzzDC(f *testing.F) {
	f.Add(uint64(1), []byte{0xD8, 0, 1, 2, 3, 0xC4, 1, 1, 1, 1})
	f.Add(uint64(2), []byte{0xD9, 1, 0, 0, 1, 0xDA, 2, 0, 0, 0, 0xDB, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, seed uint64, in []byte) {
		w := newDCWorld(seed, impairment{})
		d := w.target(t, qp.DCTConfig{MaxInitiators: 3}, 64)
		d.post(t, 8)
		n := w.initiator(t, func(a *qp.Attr) { a.RNRRetry = 3 })
		for i := range 4 {
			if err := n.PostSend(w.to(n, d, qp.SendWR{ID: uint64(i), Opcode: qp.Send})); err != nil {
				t.Fatal(err)
			}
		}
		for len(in) >= 5 {
			op, who, k := bth.Opcode(in[0]), in[1], binary.BigEndian.Uint16(in[3:])
			to, from := d.node, netip.AddrFrom4([4]byte{10, 9, 9, who & 3})
			if who&4 != 0 {
				from = n.addr
			}
			if who&8 != 0 { // in the name of the target
				to, from = n, d.addr
			}
			in = in[5:]
			x := bth.Fields{BTH: bth.BTHFields{Op: op, PSN: bth.PSN(k), Flags: bth.AckReq}}
			if op.Info().Name == "" || op.Info().Transport != bth.DC {
				continue
			}
			has := func(h bth.HeaderSet) bool { return op.Info().Headers&h != 0 }
			if has(bth.HasDCETH) {
				x.DCETH = &bth.DCETHFields{QPN: bth.QPN(k & 0x1FF), Context: uint32(k)}
			}
			if has(bth.HasDCCETH) {
				x.DCCETH = &bth.DCCETHFields{Key: dcKey + uint64(who>>6), Connection: uint32(k), Depth: who, MTU: who >> 5, Reason: bth.DCReason(who >> 4)}
			}
			if has(bth.HasRETH) {
				x.RETH = &bth.RETHFields{VA: d.mr.Addr(), RKey: d.mr.RKey(), DMALen: uint32(k)}
			}
			if has(bth.HasAtomicETH) {
				x.AtomicETH = &bth.AtomicETHFields{VA: d.mr.Addr(), RKey: d.mr.RKey()}
			}
			if has(bth.HasAETH) {
				x.AETH = &bth.AETHFields{Syndrome: bth.Syndrome(who), MSN: bth.MSN(k)}
			}
			to.HandlePacket(w.now, w.dcPacket(t, from, to, x))
			w.step(w.nodes...)
		}
		w.idle(2 * time.Minute)
		if s := d.DCTStatus(); s.Initiators != 0 || s.Sources != 0 {
			t.Errorf("%+v after a long time", s)
		}
		wcs := drain(n.send)
		for i, wc := range wcs {
			if wc.ID != uint64(i) {
				t.Fatalf("completion %d is of %d", i, wc.ID)
			}
		}
		if len(wcs) != 4 {
			t.Errorf("%d completions", len(wcs))
		}
	})
}
