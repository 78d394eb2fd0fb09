package qp_test

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/qp"
)

// packet describes a packet a test sends by hand.
type packet struct {
	op       bth.Opcode
	psn      bth.PSN
	ack      bool // AckReq
	moved    bool // M bit
	ce       bool // marked by a switch
	va       uint64
	key      bth.RKey
	length   uint32
	swap     uint64
	compare  uint64
	imm      uint32
	syndrome bth.Syndrome
	msn      bth.MSN
	value    uint64
	payload  []byte
	qkey     bth.QKey
	place    bth.FlushType
	sel      bth.FlushSelectivity
	swapMask uint64
	cmpMask  uint64
	size     uint8
	srqn     bth.SRQN
}

// build encodes the packet for dest on path p and parses it again, as it would
// arrive.
func build(t testing.TB, path *frame.Path, dest bth.QPN, d packet) *frame.Packet {
	t.Helper()
	var p frame.Packet
	if err := p.Parse(buildFrame(path, dest, d), frame.LayoutEthernet); err != nil {
		t.Fatalf("%v: %v", d.op, err)
	}
	if !p.CheckICRC() {
		t.Fatalf("%v: wrong ICRC", d.op)
	}
	return &p
}

// buildFrame encodes the packet.
func buildFrame(path *frame.Path, dest bth.QPN, d packet) []byte {
	info := d.op.Info()
	pad := -len(d.payload) & 3
	n := int(info.HeaderLen) + len(d.payload) + pad + bth.ICRCLen
	if d.ce {
		path = path.WithTrafficClass(3)
	}
	buf := make([]byte, path.HeaderLen(frame.LayoutEthernet)+n, 4400) // room for any packet: the network uses it again
	body, crc := path.Put(buf, frame.LayoutEthernet, n, 7)
	var flags bth.BTHFlags
	if d.ack {
		flags |= bth.AckReq
	}
	if d.moved {
		flags |= bth.MigReq
	}
	bth.PutBTH(body, d.op, flags, pad, bth.DefaultPKey, dest, d.psn)
	at := bth.BTHLen
	has := func(h bth.HeaderSet) bool { return info.Headers&h != 0 }
	if has(bth.HasDETH) {
		bth.PutDETH(body[at:], d.qkey, 0x22)
		at += bth.DETHLen
	}
	if has(bth.HasXRCETH) {
		at += bth.PutXRCETH(body[at:], d.srqn)
	}
	if has(bth.HasFETH) {
		bth.PutFETH(body[at:], d.place, d.sel)
		at += bth.FETHLen
	}
	if has(bth.HasRETH) {
		bth.PutRETH(body[at:], d.va, d.key, d.length)
		at += bth.RETHLen
	}
	if has(bth.HasAtomicETH) {
		bth.PutAtomicETH(body[at:], d.va, d.key, d.swap, d.compare)
		at += bth.AtomicETHLen
	}
	if has(bth.HasMaskETH) {
		bth.PutMaskETH(body[at:], d.swapMask, d.cmpMask, d.size)
		at += bth.MaskETHLen
	}
	if has(bth.HasAETH) {
		bth.PutAETH(body[at:], d.syndrome, d.msn)
		at += bth.AETHLen
	}
	if has(bth.HasAtomicAckETH) {
		bth.PutAtomicAckETH(body[at:], d.value)
		at += bth.AtomicAckETHLen
	}
	if has(bth.HasImm) || has(bth.HasIETH) {
		bth.PutImm(body[at:], d.imm)
		at += bth.ImmLen
	}
	copy(body[at:], d.payload)
	bth.PutICRC(body[n-bth.ICRCLen:], crc.UpdateBTH(body).Update(body[bth.BTHLen:n-bth.ICRCLen]))
	return buf
}

// bench is one engine under test; the test plays its peer by hand.
type bench struct {
	*node
	t   testing.TB
	out []*frame.Packet
}

func newBench(t testing.TB, c pairConfig) *bench {
	a, _, _ := newPair(t, 1, impairment{}, c)
	return &bench{node: a, t: t}
}

// inject hands the engine a packet of its peer and collects what it sends.
func (b *bench) inject(d packet) {
	b.t.Helper()
	b.HandlePacket(b.net.now, build(b.t, b.peer.path, b.Num(), d))
	b.collect()
}

// collect lets the engine send.
func (b *bench) collect() {
	for b.Emit(b.net.now, b) {
	}
}

// Commit keeps what the engine sends instead of carrying it.
func (b *bench) Commit() {
	var p frame.Packet
	if err := p.Parse(b.buf, frame.LayoutEthernet); err != nil || !b.CheckICRC(&p) {
		b.t.Fatalf("engine built a bad packet: %v", err)
	}
	b.out = append(b.out, &p)
	b.buf = nil
}

// sent returns and forgets what the engine has sent.
func (b *bench) sent() []*frame.Packet {
	out := b.out
	b.out = nil
	return out
}

// want checks that exactly one packet was sent and returns it.
func (b *bench) want(op bth.Opcode, psn bth.PSN) *frame.Packet {
	b.t.Helper()
	out := b.sent()
	if len(out) != 1 || out[0].Op != op || out[0].PSN() != psn {
		b.t.Fatalf("sent %v, want one %v with PSN %#x", summary(out), op, uint32(psn))
	}
	return out[0]
}

// wantAck checks that exactly one ACKNOWLEDGE was sent.
func (b *bench) wantAck(s bth.Syndrome, psn bth.PSN) {
	b.t.Helper()
	if p := b.want(bth.RCAck, psn); p.Syndrome() != s {
		b.t.Fatalf("syndrome %#x, want %#x", uint8(p.Syndrome()), uint8(s))
	}
}

// wantSilence checks that nothing was sent.
func (b *bench) wantSilence() {
	b.t.Helper()
	if out := b.sent(); len(out) != 0 {
		b.t.Fatalf("sent %v, want nothing", summary(out))
	}
}

// wantState checks the state of the queue pair.
func (b *bench) wantState(s qp.State) {
	b.t.Helper()
	if b.State() != s {
		b.t.Fatalf("state %v, want %v", b.State(), s)
	}
}

type line struct {
	Op  bth.Opcode
	PSN bth.PSN
}

func summary(ps []*frame.Packet) (out []line) {
	for _, p := range ps {
		out = append(out, line{p.Op, p.PSN()})
	}
	return out
}
