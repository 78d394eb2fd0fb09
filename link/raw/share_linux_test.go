package raw

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// startShared opens n queues on an interface that is shared.
func startShared(t *testing.T, s *netlab.Side, n int) (ports []*Port) {
	t.Helper()
	s.Do(t, func() {
		list, err := OpenQueues(Config{Interface: s.Interface, Shared: true}, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			t.Cleanup(func() { p.Close() })
			ports = append(ports, p.(*Port))
		}
	})
	return ports
}

// sendNumbers sends a packet to each queue pair, in super-packets if possible.
func sendNumbers(t *testing.T, p *Port, path *frame.Path, numbers []bth.QPN) {
	t.Helper()
	for i, to := range numbers {
		const n = 64
		body, crc, ok := p.Begin(path, bth.BTHLen+n+bth.ICRCLen)
		if !ok {
			t.Fatal("no room")
		}
		clear(body)
		bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, to, bth.PSN(i))
		bth.PutICRC(body[bth.BTHLen+n:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:bth.BTHLen+n]))
		p.Commit()
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
}

// arrived receives packets until no more arrive, and counts them by queue pair. It waits longer
// while fewer than want have arrived.
func arrived(t *testing.T, p *Port, want int) (numbers map[bth.QPN]int) {
	t.Helper()
	numbers = map[bth.QPN]int{}
	fr := make([]link.Frame, link.Batch)
	for got := 0; ; {
		patience := 50 * time.Millisecond
		if got < want {
			patience = linktest.Patience
		}
		if err := p.Wait(patience); err != nil {
			t.Fatal(err)
		}
		n, err := p.Recv(fr)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return numbers
		}
		got += n
		for i := range fr[:n] {
			var q frame.Packet
			if err := fr[i].Parse(&q, frame.LayoutEthernet); err != nil || !q.CheckICRC() {
				t.Errorf("packet for %v: %v, or the ICRC is wrong", q.DestQPN(), err)
			}
			numbers[q.DestQPN()]++
		}
	}
}

// TestShared: two devices share an interface. Each receives the packets for its slots, at
// the queue of the slot, and no others. During a flood it receives only some of these.
func TestShared(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from := start(t, b, Config{})
	for _, n := range []int{1, 3} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d queues, v6 %v", n, v6), func(t *testing.T) {
				devices := [][]*Port{startShared(t, a, n), startShared(t, a, n)}
				way := path(t, b, a, v6, 0)
				rnd := rand.New(rand.NewPCG(9, uint64(n)))
				var numbers []bth.QPN
				for range 400 {
					d := devices[rnd.IntN(2)]
					q := bth.QPN(rnd.Uint32N(1<<17))<<6 + 64 | bth.QPN(d[0].slots[rnd.IntN(n)])
					for range 1 + rnd.IntN(4) {
						numbers = append(numbers, q)
					}
				}
				check := func(takes func(device, queue int, q bth.QPN) bool) {
					t.Helper()
					sendNumbers(t, from, way, numbers)
					for i, d := range devices {
						for k, p := range d {
							want, count := map[bth.QPN]int{}, 0
							for _, q := range numbers {
								if share.SlotOf(q) == p.slots[k] && takes(i, k, q) {
									want[q]++
									count++
								}
							}
							got := arrived(t, p, count)
							if fmt.Sprint(got) != fmt.Sprint(want) {
								t.Errorf("device %d, queue %d: packets for %d queue pairs, want %d", i, k, len(got), len(want))
							}
						}
					}
				}
				check(func(int, int, bth.QPN) bool { return true })
				f, err := devices[0][0].Filter(link.MADLimit{})
				if err != nil {
					t.Fatal(err)
				}
				known := numbers[0]
				for share.SlotOf(known) != devices[0][0].slots[0] {
					known = numbers[rnd.IntN(len(numbers))]
				}
				f.Admit(known, bth.GID{}) // from every address
				f.(link.FloodFilter).Flooded()
				check(func(device, _ int, q bth.QPN) bool { return device == 1 || q == known })
				peer := bth.GIDFrom(b.IP4)
				if v6 {
					peer = bth.GIDFrom(b.IP6)
				}
				f.Admit(known+64<<1, peer) // a queue pair with that peer: accept all packets from its address
				check(func(int, int, bth.QPN) bool { return true })
				for _, d := range devices {
					for _, p := range d {
						p.Close()
					}
				}
			})
		}
	}
}

// TestSharedClaim: the UDP port is taken until the last device that shares the interface is closed,
// in any order.
func TestSharedClaim(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	taken := func() bool {
		var err error
		a.Do(t, func() {
			var p link.Port
			if p, err = Open(Config{Interface: a.Interface}); err == nil {
				p.Close()
			}
		})
		return err != nil
	}
	one, two := startShared(t, a, 1), startShared(t, a, 2)
	for i, p := range append(one, two...) {
		if !taken() {
			t.Errorf("the port is free, %d of 3 are closed", i)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if i == 1 {
			break
		}
	}
	two[1].Close()
	if taken() {
		t.Error("the port is taken after all are closed")
	}
}
