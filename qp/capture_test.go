package qp_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Frames of testdata/pcaps in which rxe of Linux 6.12, 10.77.0.1, answers a
// program with a raw socket, 10.77.0.2.
const (
	// rxe612_run3_flush, frames 88, 90, 91: a FLUSH with the ICRC of the standard, which rxe drops; the same FLUSH
	// with the ICRC of rxe; and the answer to the second.
	rxeFlush       = "52540000000a52540000000b08004500004011114000401115000a4d00020a4d0001c12312b7002c00001c00ffff0000001b80fffff00000000100007f5558df200000000c99000000407975b2f9"
	rxeFlushQuirk  = "52540000000a52540000000b08004500004022224000401103ef0a4d00020a4d0001c12312b7002c00001c00ffff0000001b80fffff00000000100007f5558df200000000c99000000409fe5339c"
	rxeFlushAnswer = "52540000000b52540000000a080045000030a0c240004011855e0a4d00010a4d0002c1cb12b7001c00001000ffff0000001100fffff01f0000013df22b96"

	// rxe612_run1, frames 1734 to 1740: a FETCH_ADD, its answer, both again, and
	// an ATOMIC_WRITE with its answer.
	rxeAdd               = "52540000000a52540000000b080045000048600140004011c6070a4d00020a4d0001c12312b7003400001400ffff0000003a80fffff000007f2324be50100000332400000000000000010000000000000000a8e826a1"
	rxeAddAnswer         = "52540000000b52540000000a080045000038671540004011bf030a4d00010a4d0002cd5e12b7002400001200ffff0000003b00fffff01f000001a19a938c857e777095f78869"
	rxeAddAgain          = "52540000000a52540000000b080045000048600240004011c6060a4d00020a4d0001c12312b7003400001400ffff0000003a80fffff000007f2324be50100000332400000000000000010000000000000000cc57f350"
	rxeAddAgainAnswer    = "52540000000b52540000000a080045000038672240004011bef60a4d00010a4d0002cd5e12b7002400001200ffff0000003b00fffff01f000001a19a938c857e7770d03af8cf"
	rxeAtomicWrite       = "52540000000a52540000000b080045000044600340004011c6090a4d00020a4d0001c12312b7003000001d00ffff0000003a80fffff100007f2324be50200000332400000008313233343536373881186d58"
	rxeAtomicWriteAnswer = "52540000000b52540000000a080045000030672d40004011bef30a4d00010a4d0002cd5e12b7001c00001000ffff0000003b00fffff11f00000249d6869e"
)

func unhex(t testing.TB, s string) []byte { return must(hex.DecodeString(s)) }

// captured parses a captured frame.
func captured(t testing.TB, s string) *frame.Packet {
	t.Helper()
	var p frame.Packet
	if err := p.Parse(unhex(t, s), frame.LayoutEthernet); err != nil {
		t.Fatal(err)
	}
	return &p
}

// dice returns the numbers in next first, and random numbers afterwards.
type dice struct {
	rand.PCG
	next []uint64
}

func (d *dice) Uint64() uint64 {
	if len(d.next) == 0 {
		return d.PCG.Uint64()
	}
	x := d.next[0]
	d.next = d.next[1:]
	return x
}

// standIn is a queue pair that takes the place of one end of a captured
// conversation: it has its number, addresses, port and PSN, and a region with
// its key and address.
func standIn(t *testing.T, sent, received string, key bth.RKey, va uint64) (*bench, []byte, *mr.MR) {
	t.Helper()
	out, in := captured(t, sent), captured(t, received)
	d := new(dice)
	w := &network{rng: rand.New(d), now: 1}
	c := pairConfig{mtu: bth.MTU1024}.withDefaults()
	b := &bench{node: newNode(t, w, c, nil, in.DestQPN(), "10.77.0.1", "::"), t: t}
	b.path = must(frame.NewPath(frame.PathConfig{Src: out.Src, Dst: out.Dst, SrcMAC: out.SrcMAC, DstMAC: out.DstMAC,
		SrcPort: out.SrcPort, HopLimit: out.HopLimit}))
	peer := newNode(t, w, c, nil, out.DestQPN(), "10.77.0.2", "::")
	connect(t, b.node, peer, c, 0xFFFFF0, 0xFFFFF0)
	d.next = []uint64{uint64(key >> 8), uint64(key)} // the number of the key is drawn first
	mem := make([]byte, 4096)
	m := must(b.mem.Register(b.pd, mem, mr.LocalWrite|mr.RemoteWrite|mr.RemoteAtomic|mr.FlushGlobal, mr.Options{IOVA: va, HasIOVA: true}))
	if m.RKey() != key {
		t.Fatalf("the key is %v, must be %v", m.RKey(), key)
	}
	return b, mem, m
}

// asCaptured returns a packet the engine sent as the other stack would have: with
// its IPv4 identification, and without the M bit, which rxe never sets. Nothing
// else may differ.
func asCaptured(p *frame.Packet, path *frame.Path, id uint16, quirk bool) []byte {
	body := bytes.Clone(p.Data)
	body[1] &^= 0x40
	n := len(body)
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+n)
	to, crc := path.Put(b, frame.LayoutEthernet, n, id)
	copy(to, body)
	crc = crc.UpdateBTH(to).Update(to[bth.BTHLen : n-bth.ICRCLen])
	if quirk {
		crc = crc.UpdateFlushQuirk(to)
	}
	bth.PutICRC(to[n-bth.ICRCLen:], crc)
	return b
}

// wantCaptured checks that the engine sent one packet, that of the capture.
func (b *bench) wantCaptured(want string, quirk bool) {
	b.t.Helper()
	frame := unhex(b.t, want)
	id := binary.BigEndian.Uint16(frame[18:])
	out := b.sent()
	if len(out) != 1 {
		b.t.Fatalf("sent %v", summary(out))
	}
	if got := asCaptured(out[0], b.path, id, quirk); !bytes.Equal(got, frame) {
		b.t.Fatalf("sent %x\nwant %x", got, frame)
	}
}

// receive hands the engine a captured frame if its ICRC is right.
func (b *bench) receive(s string) {
	b.t.Helper()
	if p := captured(b.t, s); b.CheckICRC(p) {
		b.HandlePacket(b.net.now, p)
	}
	b.collect()
}

// TestCapturedResponder gives the requests of a capture to our responder, which
// must answer byte for byte as rxe did.
func TestCapturedResponder(t *testing.T) {
	t.Run("FLUSH", func(t *testing.T) {
		b, _, m := standIn(t, rxeFlushAnswer, rxeFlush, 0xc99, 0x7f5558df2000)
		b.quirk(t)
		b.receive(rxeFlush)
		b.wantSilence()
		b.receive(rxeFlushQuirk)
		b.wantCaptured(rxeFlushAnswer, false)
		if m.Flushes() != 1 {
			t.Errorf("%d FLUSHes", m.Flushes())
		}
	})
	t.Run("FLUSH without the quirk", func(t *testing.T) {
		b, _, _ := standIn(t, rxeFlushAnswer, rxeFlush, 0xc99, 0x7f5558df2000)
		b.receive(rxeFlushQuirk)
		b.wantSilence()
		b.receive(rxeFlush)
		b.wantCaptured(rxeFlushAnswer, false)
	})
	t.Run("ATOMIC_WRITE", func(t *testing.T) {
		b, mem, _ := standIn(t, rxeAddAnswer, rxeAdd, 0x3324, 0x7f2324be5000)
		binary.NativeEndian.PutUint64(mem[0x10:], 0xa19a938c857e7770)
		b.receive(rxeAdd)
		b.wantCaptured(rxeAddAnswer, false)
		b.receive(rxeAddAgain)
		b.wantCaptured(rxeAddAgainAnswer, false)
		b.receive(rxeAtomicWrite)
		b.wantCaptured(rxeAtomicWriteAnswer, false)
		if v := binary.NativeEndian.Uint64(mem[0x10:]); v != 0xa19a938c857e7771 || string(mem[0x20:0x28]) != "12345678" {
			t.Errorf("memory %#x %q", v, mem[0x20:0x28])
		}
	})
}

// TestCapturedRequester posts the work requests of a capture: the engine must send the captured packets, and rxe's
// answers complete them.
func TestCapturedRequester(t *testing.T) {
	done := func(t *testing.T, b *bench, want cq.Opcode) {
		t.Helper()
		if wcs := drain(b.send); len(wcs) != 1 || wcs[0].Status != cq.Success || wcs[0].Opcode != want {
			t.Errorf("completions %+v, want %v", wcs, want)
		}
	}
	flush := qp.SendWR{Opcode: qp.Flush, RemoteAddr: 0x7f5558df2000, RKey: 0xc99, Length: 64, FlushType: bth.FlushGlobal}
	t.Run("FLUSH", func(t *testing.T) {
		b, _, _ := standIn(t, rxeFlush, rxeFlushAnswer, 0x101, 0)
		b.post(flush)
		b.wantCaptured(rxeFlush, false)
	})
	t.Run("FLUSH with the quirk", func(t *testing.T) {
		b, _, _ := standIn(t, rxeFlush, rxeFlushAnswer, 0x101, 0)
		b.quirk(t)
		b.post(flush)
		b.wantCaptured(rxeFlushQuirk, true)
		b.receive(rxeFlushAnswer)
		done(t, b, cq.OpFlush)
	})
	t.Run("ATOMIC_WRITE", func(t *testing.T) {
		b, mem, m := standIn(t, rxeAdd, rxeAddAnswer, 0x101, 0)
		b.post(qp.SendWR{Opcode: qp.FetchAdd, SG: []mr.SGE{m.SGE(0, 8)}, RemoteAddr: 0x7f2324be5010, RKey: 0x3324, CompareAdd: 1})
		b.wantCaptured(rxeAdd, false)
		b.receive(rxeAddAnswer)
		done(t, b, cq.OpFetchAdd)
		if v := binary.NativeEndian.Uint64(mem); v != 0xa19a938c857e7770 {
			t.Errorf("found %#x", v)
		}
		b.post(qp.SendWR{Opcode: qp.AtomicWrite, Inline: []byte("12345678"), RemoteAddr: 0x7f2324be5020, RKey: 0x3324})
		b.wantCaptured(rxeAtomicWrite, false)
		b.receive(rxeAddAgainAnswer) // late
		b.receive(rxeAtomicWriteAnswer)
		done(t, b, cq.OpAtomicWrite)
	})
}
