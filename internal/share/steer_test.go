package share

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/goroce/roce/bth"
)

// datagram makes a packet from the BTH on: a management datagram if the queue pair is QP 1.
func datagram(qpn bth.QPN, attribute uint16, first, second uint32, service uint64) []byte {
	b := make([]byte, bth.BTHLen+bth.DETHLen+madLen)
	binary.BigEndian.PutUint32(b[4:], uint32(qpn)|0xA5<<24)
	mad := b[bth.BTHLen+bth.DETHLen:]
	binary.BigEndian.PutUint16(mad[madAttribute:], attribute)
	binary.BigEndian.PutUint32(mad[madFirstID:], first)
	binary.BigEndian.PutUint32(mad[madSecondID:], second)
	if attribute == attrREQ || attribute == attrSIDRREQ {
		binary.BigEndian.PutUint64(mad[madService:], service)
	}
	return b
}

// anID makes a communication ID, which is sometimes 0.
func anID(rnd *rand.Rand) uint32 { return rnd.Uint32() * uint32(min(1, rnd.IntN(8))) }

// The program of the kernel and the function in Go send each packet to the same slot.
func TestProgram(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var services []Service
	for i := range 40 {
		services = append(services, Service{ID: 0x0000000001060000 | uint64(rnd.Uint32N(1<<16)), Slot: Slot(i)})
	}
	const keeper = Slot(17)
	vm, err := bpf.NewVM(Program(services, keeper))
	if err != nil {
		t.Fatal(err)
	}
	run := func(b []byte) int {
		t.Helper()
		n, err := vm.Run(b)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 2000 {
		qpn := bth.QPN(rnd.Uint32()) & bth.QPNMulticast
		if qpn == bth.QPNMulticast || qpn == bth.QPNGSI {
			continue
		}
		if got, want := run(datagram(qpn, 0, 0, 0, 0)), 2*int(SlotOf(qpn)); got != want {
			t.Fatalf("qp %v: socket %d, want %d", qpn, got, want)
		}
	}
	known := map[uint64]Slot{}
	for _, s := range services {
		if _, ok := known[s.ID]; !ok {
			known[s.ID] = s.Slot
		}
	}
	for range 4000 {
		id := services[rnd.IntN(len(services))].ID
		if rnd.IntN(4) == 0 {
			id ^= 1 << rnd.IntN(64)
		}
		attribute := 0x10 + uint16(rnd.IntN(11))
		b := datagram(bth.QPNGSI, attribute, anID(rnd), anID(rnd), id)
		a := addresseeOf(b[bth.BTHLen+bth.DETHLen:])
		slot := a.slot
		switch a.by {
		case byService:
			if a.service != id {
				t.Fatalf("attribute %#x: service %#x, want %#x", attribute, a.service, id)
			}
			var ok bool
			if slot, ok = known[id]; !ok {
				slot = keeper
			}
		case byNothing:
			slot = keeper
		}
		if got, want := run(b), 2*int(slot)+1; got != want {
			t.Fatalf("attribute %#x: socket %d, want %d", attribute, got, want)
		}
	}
	if got := run(datagram(bth.QPNMulticast, 0, 0, 0, 0)); got != 0 {
		t.Errorf("multicast: socket %d", got)
	}
	for _, short := range [][]byte{nil, make([]byte, 7), datagram(bth.QPNGSI, attrREQ, 0, 0, 0)[:40]} {
		if n, err := vm.Run(short); err == nil && n != 0 {
			t.Errorf("%d bytes: socket %d", len(short), n)
		}
	}
	if raw, err := bpf.Assemble(Program(make([]Service, 10*MaxRules), 0)); err != nil || len(raw) > 4096 {
		t.Errorf("a program of %d instructions, %v; the kernel takes 4096", len(raw), err)
	}
}

// MayDivide is true for the numbers that a process on a shared address chooses.
func TestMayDivide(t *testing.T) {
	for _, test := range []struct {
		qpn bth.QPN
		id  uint32
		may bool
	}{
		{0x123456, 0x9ABCDE16, true},
		{0x123456, 0x16, true},
		{0x123416, 0x9ABCDE56, true},
		{0x123456, 0x9ABCDE17, false},
		{64, 0, true},
		{65, 0x40, false},
		{65, 0x9ABCD145, true}, // of several slots, of which 5 is the first
	} {
		if may := MayDivide(test.qpn, test.id); may != test.may {
			t.Errorf("queue pair %v, communication ID %#x: %v", test.qpn, test.id, may)
		}
	}
}

// Apart separates packets for different parts of a peer while its queue pairs are in few parts. It
// always separates management datagrams.
func TestSpread(t *testing.T) {
	var s Spread
	for i := range uint8(fewParts - 1) {
		if s.Apart(0, 0) || !s.Apart(0, i+1) || !s.Apart(i+1, 0) || s.Apart(i, i) {
			t.Fatalf("part %d", i)
		}
	}
	if s.Apart(0, fewParts) || s.Apart(5, 6) {
		t.Error("packets of a peer with queue pairs in many parts are kept apart")
	}
	for _, b := range []uint8{0, ManagementPart} {
		if !s.Apart(ManagementPart, b) || !s.Apart(b, ManagementPart) {
			t.Error("a management datagram joins other packets")
		}
	}
}

// Is is true for a packet to the same queue pair, and false for every management datagram.
func TestDestIs(t *testing.T) {
	packet := func(n bth.QPN) []byte {
		b := make([]byte, bth.BTHLen)
		bth.PutBTH(b, bth.RCSendOnly, 0, 0, bth.DefaultPKey, n, 0)
		return b
	}
	for _, c := range []struct {
		a, b bth.QPN
		want bool
	}{{0x1234, 0x1234, true}, {0x1234, 0x1274, false}, {0x1234, 0x1235, false}, {bth.QPNGSI, bth.QPNGSI, false}, {0x1234, bth.QPNGSI, false}} {
		d := DestOf(packet(c.a))
		if got := d.Is(packet(c.b)); got != c.want || d.Part != Part(packet(c.a)) {
			t.Errorf("%v after %v: %v, part %d", c.b, c.a, got, d.Part)
		}
	}
	if d := DestOf([]byte{1}); d.Is([]byte{1}) {
		t.Error("a packet without a BTH has a queue pair")
	}
}
