package share

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
)

// Only one of the processes that share an address answers a message about an unknown connection:
// the source of the message may be forged, and several answers would amplify a flood to it.
func TestOneAnswer(t *testing.T) {
	peer, own := bth.GIDFrom(netip.MustParseAddr("192.0.2.7")), bth.GIDFrom(netip.MustParseAddr("192.0.2.1"))
	r := new(hearingMedium)
	k := key(t)
	type process struct {
		place *Place
		cm    *cm.Manager
	}
	var all []process
	for i := range 8 {
		m, err := cm.NewManager(cm.Config{GUID: cm.GUID(i + 1), Rand: rand.New(rand.NewPCG(1, uint64(i))).Uint32})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, process{join(t, k, 1, r), m})
	}
	for _, msg := range []cm.Message{
		&cm.DREQ{Header: cm.Header{TID: 1}, LocalID: 5},
		&cm.LAP{Header: cm.Header{TID: 1}, LocalID: 5},
	} {
		var mad [cm.MADLen]byte
		msg.Put(&mad)
		b := append(datagram(bth.QPNGSI, 0, 0, 0, 0)[:bth.BTHLen+bth.DETHLen], mad[:]...)
		answers := 0
		for _, p := range all {
			vm, err := bpf.NewVM(append(Filter(0, p.place.Slots(), true, true), bpf.RetConstant{Val: 1}))
			if err != nil {
				t.Fatal(err)
			}
			if hears, _ := vm.Run(b); hears == 0 {
				continue
			}
			if _, other := p.place.Whose(b); other {
				continue
			}
			p.cm.HandleMAD(mono.Time(1), peer, own, mad[:])
			for _, ok := p.cm.NextMAD(); ok; _, ok = p.cm.NextMAD() {
				answers++
			}
		}
		if answers > 1 {
			t.Errorf("%v: %d processes answer a stranger's datagram", msg, answers)
		}
	}
}
