package nic

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/mono"
)

// crowd stands for the processes of all other slots; every management datagram is for each of them.
type crowd struct {
	neighbours
	passed int
}

func (*crowd) Whose([]byte) (share.Slot, bool) { return 0, false }
func (*crowd) Heard([]byte) bool               { return false }
func (*crowd) Anybodys([]byte) bool            { return true }
func (c *crowd) NewOut() share.Outlet          { return c }
func (*crowd) Flush()                          {}
func (*crowd) Crowded(share.Slot) bool         { return false }

func (*crowd) Others() (all []share.Slot) {
	for s := range share.Slot(share.Slots) {
		if s != 5 {
			all = append(all, s)
		}
	}
	return all
}

func (c *crowd) Add(share.Slot, *link.Frame, bool) { c.passed++ }

// budget is a QP 1 that admits a limited number of datagrams.
type budget struct {
	QP1
	left, got int
}

func (b *budget) Admit(_, _ mono.Time, _ *bth.GID) bool {
	b.left--
	return b.left >= 0
}

func (b *budget) Receive(mono.Time, *frame.Packet) { b.got++ }

// Admit also limits the work for a flood of datagrams that are for all processes: each copy to
// another process counts against the limit, and a datagram with a wrong ICRC is not copied.
func TestFloodForEverybody(t *testing.T) {
	port, err := mem.NewHub(mem.Config{}).Port("p", frame.MAC{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	own, peer := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	routes := route.New(route.Config{MAC: port.Info().MAC, GIDs: []bth.GID{bth.GIDFrom(own)}})
	c := new(crowd)
	n, err := New(Config{Ports: []link.Port{port}, Routes: routes, Polled: true, Rand: rand.Uint64, Notify: func(Event) {}, Shared: c})
	if err != nil {
		t.Fatal(err)
	}
	q := &budget{left: 1000}
	n.qp1 = q
	path, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(peer), Dst: bth.GIDFrom(own), SrcMAC: frame.MAC{2, 2}, DstMAC: port.Info().MAC, SrcPort: 50000})
	if err != nil {
		t.Fatal(err)
	}
	layout := n.info.Layout
	size := bth.BTHLen + bth.DETHLen + 256 + bth.ICRCLen
	datagram := func(spoil byte) link.Frame {
		b := make([]byte, path.HeaderLen(layout)+size)
		body, crc := path.Put(b, layout, size, 1)
		at := bth.PutBTH(body, bth.UDSendOnly, 0, 0, bth.DefaultPKey, bth.QPNGSI, 0)
		bth.PutDETH(body[at:], bth.QKeyGSI, bth.QPNGSI)
		n := len(body) - bth.ICRCLen
		bth.PutICRC(body[n:], crc.UpdateBody(body[:n]))
		b[len(b)-1] ^= spoil
		return link.Frame{Data: b}
	}
	good, spoiled := datagram(0), datagram(1)
	n.shards[0].receiveAll(0, []link.Frame{spoiled})
	if q.got != 0 || c.passed != 0 {
		t.Errorf("a datagram with a wrong ICRC: %d handled, %d passed on", q.got, c.passed)
	}
	q.left, q.got, c.passed = 1000, 0, 0
	for range 1000 {
		n.shards[0].receiveAll(0, []link.Frame{good})
	}
	if q.got == 0 || c.passed == 0 {
		t.Fatalf("%d handled, %d passed on: the test is wrong", q.got, c.passed)
	}
	if q.got+c.passed > 1000 {
		t.Errorf("1000 datagrams are admitted: %d are handled here and %d passed to other processes", q.got, c.passed)
	}
}
