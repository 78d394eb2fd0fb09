package fault_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/mono"
)

// rig is two connected Ports: f with faults, and plain without.
type rig struct {
	t     *testing.T
	f     *fault.Port
	plain link.Port
	out   *frame.Path // from f
	in    *frame.Path // to f
}

func newRig(t *testing.T, c fault.Config) *rig {
	t.Helper()
	a, b := mem.Pair(mem.Config{Queue: 1 << 14})
	f, err := fault.Wrap(a, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); b.Close() })
	return &rig{t, f, b,
		linktest.Path(t, false, a.Info().MAC, b.Info().MAC),
		linktest.Path(t, false, b.Info().MAC, a.Info().MAC)}
}

// send sends n packets, PSNs from first, out or in, in one batch.
func (r *rig) send(dir fault.Direction, first, n int) {
	r.t.Helper()
	p, path := link.Port(r.f), r.out
	if dir == fault.Rx {
		p, path = r.plain, r.in
	}
	for i := range n {
		linktest.Send(r.t, p, path, bth.PSN(first+i), []byte{byte(i), 1, 2, 3, 4, 5, 6, 7})
	}
	if err := p.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// arrived returns the PSNs that have come through in a direction. Packets with
// a wrong ICRC count as -1.
func (r *rig) arrived(dir fault.Direction) (psns []int) {
	r.t.Helper()
	p := r.plain
	if dir == fault.Rx {
		p = r.f
	}
	fr := make([]link.Frame, 16)
	for idle := 0; idle < 5; idle++ { // a batch may be lost as a whole
		n, err := p.Recv(fr)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, f := range fr[:n] {
			var q frame.Packet
			if q.Parse(f.Data, frame.LayoutEthernet) != nil || !q.CheckICRC() {
				psns = append(psns, -1)
			} else {
				psns = append(psns, int(q.PSN()))
			}
			idle = 0
		}
	}
	return psns
}

func upTo(n int) (s []int) {
	for i := range n {
		s = append(s, i)
	}
	return s
}

func both(t *testing.T, f func(t *testing.T, dir fault.Direction)) {
	for _, dir := range []fault.Direction{fault.Tx, fault.Rx} {
		t.Run(dir.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, dir) })
		})
	}
}

func rates(dir fault.Direction, r fault.Rates) (c fault.Config) {
	if dir == fault.Tx {
		c.Tx = r
	} else {
		c.Rx = r
	}
	c.Seed = 7
	return c
}

func (r *rig) counters(dir fault.Direction) fault.Counters {
	tx, rx := r.f.Counters()
	if dir == fault.Tx {
		return tx
	}
	return rx
}

func TestContract(t *testing.T) {
	// Ports without effective faults, and one that delays each received packet and
	// must keep the contract nevertheless. Delayed sending is not tested here: a shard
	// must call the Port to release the packets, and these tests have no shard.
	bare := func(p link.Port) link.Port { return linktest.Bare(p, false) }
	whole := func(p link.Port) link.Port { return p }
	for name, c := range map[string]fault.Config{
		"idle":  {},
		"rules": {Rules: []fault.Rule{{Action: fault.Drop, PSN: fault.Is(bth.PSN(0xABCDEF)), Iter: 1}}},
		"delay": {Rx: fault.Rates{Delay: 1}, DelayTime: 100 * time.Microsecond},
	} {
		for headers, as := range map[string]func(link.Port) link.Port{"": whole, " without headers": bare} {
			t.Run(name+headers, func(t *testing.T) {
				linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
					a, b := mem.Pair(mem.Config{})
					fa, err := fault.Wrap(as(a), c)
					if err != nil {
						t.Fatal(err)
					}
					fb, err := fault.Wrap(as(b), c)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { fa.Close(); fb.Close() })
					return fa, fb
				})
			})
		}
	}
}

// TestRates: each random fault occurs about as often as configured, has its
// effect, and is counted.
func TestRates(t *testing.T) {
	const n = 4000
	for _, test := range []struct {
		name  string
		rates fault.Rates
		count func(fault.Counters) uint64
		check func(t *testing.T, hit int, psns []int)
	}{
		{"loss", fault.Rates{Loss: 0.1}, func(c fault.Counters) uint64 { return c.Dropped }, func(t *testing.T, hit int, psns []int) {
			if len(psns) != n-hit {
				t.Errorf("%d packets arrived, want %d", len(psns), n-hit)
			}
		}},
		{"dup", fault.Rates{Dup: 0.1}, func(c fault.Counters) uint64 { return c.Duplicated }, func(t *testing.T, hit int, psns []int) {
			if len(psns) != n+hit {
				t.Errorf("%d packets arrived, want %d", len(psns), n+hit)
			}
		}},
		{"reorder", fault.Rates{Reorder: 0.1}, func(c fault.Counters) uint64 { return c.Reordered }, func(t *testing.T, hit int, psns []int) {
			late := 0
			for i := 1; i < len(psns); i++ {
				if psns[i] < psns[i-1] {
					late++
				}
			}
			if len(psns) != n || late < hit/2 {
				t.Errorf("%d packets arrived, %d of them late, want %d and about %d", len(psns), late, n, hit)
			}
		}},
		{"delay", fault.Rates{Delay: 0.1}, func(c fault.Counters) uint64 { return c.Delayed }, func(t *testing.T, hit int, psns []int) {
			if len(psns) != n {
				t.Errorf("%d packets arrived, want %d", len(psns), n)
			}
		}},
		{"corrupt", fault.Rates{Corrupt: 0.1}, func(c fault.Counters) uint64 { return c.Corrupted }, func(t *testing.T, hit int, psns []int) {
			bad := 0
			for _, psn := range psns {
				if psn < 0 {
					bad++
				}
			}
			// A bit of the one byte that the ICRC leaves out goes unnoticed.
			if len(psns) != n || bad > hit || bad < hit*8/10 {
				t.Errorf("%d packets arrived, %d with a wrong ICRC, want %d and %d", len(psns), bad, n, hit)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			both(t, func(t *testing.T, dir fault.Direction) {
				r := newRig(t, rates(dir, test.rates))
				var psns []int
				for i := 0; i < n; i += 40 {
					r.send(dir, i, 40)
					psns = append(psns, r.arrived(dir)...)
				}
				time.Sleep(time.Second) // all held packets are due
				if err := r.f.Flush(); err != nil {
					t.Fatal(err)
				}
				psns = append(psns, r.arrived(dir)...)
				c := r.counters(dir)
				hit := int(test.count(c))
				if c.Packets != n || hit < n/10*7/10 || hit > n/10*13/10 || c.Held != 0 || c.Overflow != 0 {
					t.Errorf("counters %+v, want about %d of %d packets hit", c, n/10, n)
				}
				other := r.counters(fault.Both - dir)
				if other != (fault.Counters{}) {
					t.Errorf("the other direction has %+v", other)
				}
				test.check(t, hit, psns)
			})
		})
	}
}

// TestSeed: the same seed gives the same faults, another one others.
func TestSeed(t *testing.T) {
	run := func(t *testing.T, dir fault.Direction, seed uint64) []int {
		c := rates(dir, fault.Rates{Loss: 0.05, Dup: 0.05, Reorder: 0.05})
		c.Seed = seed
		r := newRig(t, c)
		r.send(dir, 0, 500)
		return r.arrived(dir)
	}
	both(t, func(t *testing.T, dir fault.Direction) {
		one := run(t, dir, 1)
		if again := run(t, dir, 1); !reflect.DeepEqual(one, again) {
			t.Errorf("seed 1 gave two sequences")
		}
		if two := run(t, dir, 2); reflect.DeepEqual(one, two) {
			t.Errorf("seeds 1 and 2 gave the same sequence")
		}
	})
}

// TestRules: a rule acts on exactly the packets that it names.
func TestRules(t *testing.T) {
	for _, test := range []struct {
		rule string
		want []int // of PSNs 0 to 5 sent twice
	}{
		{"drop,psn=3", []int{0, 1, 2, 4, 5, 0, 1, 2, 4, 5}},
		{"drop,psn=3,iter=1", []int{0, 1, 2, 4, 5, 0, 1, 2, 3, 4, 5}},
		{"drop,psn=3,iter=2", []int{0, 1, 2, 3, 4, 5, 0, 1, 2, 4, 5}},
		{"drop,iter=2", []int{0, 1, 2, 3, 4, 5}},
		{"drop,nth=4", []int{0, 1, 2, 4, 5, 0, 1, 2, 3, 4, 5}},
		{"drop,nth=4,count=3", []int{0, 1, 2, 0, 1, 2, 3, 4, 5}},
		{"drop,count=2", []int{2, 3, 4, 5, 0, 1, 2, 3, 4, 5}},
		{"drop,qpn=0x12,psn=0", []int{1, 2, 3, 4, 5, 1, 2, 3, 4, 5}},
		{"drop,qpn=0x13", append(upTo(6), upTo(6)...)},
		{"drop,op=SEND_ONLY", nil},
		{"drop,op=RC_WRITE_ONLY", append(upTo(6), upTo(6)...)},
		{"dup,psn=2,nth=1", []int{0, 1, 2, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}},
		{"reorder,psn=1,iter=1", []int{0, 2, 3, 4, 1, 5, 0, 1, 2, 3, 4, 5}},
		{"drop,addr=10.0.0.1", nil}, // either end of the path
		{"drop,addr=10.0.0.2", nil},
		{"drop,addr=10.0.0.3", append(upTo(6), upTo(6)...)},
		{"drop,addr=fd00::1", append(upTo(6), upTo(6)...)},
		{"pass", append(upTo(6), upTo(6)...)},
	} {
		t.Run(test.rule, func(t *testing.T) {
			both(t, func(t *testing.T, dir fault.Direction) {
				rule, err := fault.ParseRule(test.rule)
				if err != nil {
					t.Fatal(err)
				}
				rule.Dir = dir
				r := newRig(t, fault.Config{Rules: []fault.Rule{rule}})
				r.send(dir, 0, 6)
				r.send(dir, 0, 6)
				got := r.arrived(dir)
				if !reflect.DeepEqual(got, test.want) {
					t.Errorf("arrived %v, want %v", got, test.want)
				}
				// The rule has no effect in the other direction.
				other := fault.Both - dir
				r.send(other, 0, 6)
				if got := r.arrived(other); !reflect.DeepEqual(got, upTo(6)) {
					t.Errorf("the other way %v arrived", got)
				}
			})
		})
	}
}

// TestRuleAddrIPv6: addresses are found in IPv6 headers too.
func TestRuleAddrIPv6(t *testing.T) {
	for addr, want := range map[string][]int{"fd00::1": nil, "fd00::2": nil, "fd00::3": upTo(3), "10.0.0.1": upTo(3)} {
		rule, err := fault.ParseRule("drop,addr=" + addr)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, fault.Config{Rules: []fault.Rule{rule}})
		r.out = linktest.Path(t, true, r.f.Info().MAC, r.plain.Info().MAC)
		r.send(fault.Tx, 0, 3)
		if got := r.arrived(fault.Tx); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: arrived %v, want %v", addr, got, want)
		}
	}
}

func TestRuleFunc(t *testing.T) {
	r := newRig(t, fault.Config{})
	err := r.f.AddRule(fault.Rule{Action: fault.Drop, Func: func(dir fault.Direction, p *bth.Packet) bool {
		return dir == fault.Tx && p.PSN()%2 == 0
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.send(fault.Tx, 0, 6)
	if got := r.arrived(fault.Tx); !reflect.DeepEqual(got, []int{1, 3, 5}) {
		t.Errorf("arrived %v, want the odd ones", got)
	}
	if err := r.f.AddRule(fault.Rule{}); err == nil {
		t.Errorf("a rule without an action was accepted")
	}
}

func TestPassExemptsFromRates(t *testing.T) {
	c := rates(fault.Tx, fault.Rates{Loss: 1})
	c.Rules = []fault.Rule{{Action: fault.Pass, PSN: fault.Is(bth.PSN(2))}}
	r := newRig(t, c)
	r.send(fault.Tx, 0, 6)
	if got := r.arrived(fault.Tx); !reflect.DeepEqual(got, []int{2}) {
		t.Errorf("arrived %v, want 2 only", got)
	}
}

// TestNothingIsHeldForever: a delayed or reordered packet with nothing behind it
// comes out when its time is up, and Wait returns then, to the nanosecond.
func TestNothingIsHeldForever(t *testing.T) {
	for _, action := range []fault.Action{fault.Reorder, fault.Delay} {
		t.Run(action.String(), func(t *testing.T) {
			both(t, func(t *testing.T, dir fault.Direction) {
				r := newRig(t, fault.Config{
					Rules:       []fault.Rule{{Action: action}},
					ReorderTime: 5 * time.Millisecond, DelayTime: 5 * time.Millisecond,
				})
				r.send(dir, 1, 1)
				start := time.Now()
				fr := make([]link.Frame, 1)
				if n, err := r.f.Recv(fr); n != 0 || err != nil {
					t.Fatalf("Recv = %d, %v", n, err)
				}
				// A shard's turn: wait, receive, and nothing else.
				if err := r.f.Wait(-1); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start); got != 5*time.Millisecond {
					t.Errorf("Wait returned after %v, want 5ms", got)
				}
				var got []int
				if dir == fault.Rx {
					got = r.arrived(dir)
				} else {
					r.f.Recv(fr) // releases it without a Flush
					got = r.arrived(dir)
				}
				if !reflect.DeepEqual(got, []int{1}) {
					t.Errorf("arrived %v, want 1", got)
				}
			})
		})
	}
}

// TestHoldDuringWait: if a packet is held back while the shard sleeps in Wait, Wait
// returns earlier, so that the packet leaves in time.
func TestHoldDuringWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fault.Config{Tx: fault.Rates{Delay: 1}, DelayTime: 2 * time.Millisecond})
		start := time.Now()
		done := make(chan time.Duration)
		var shard sync.Mutex
		go func() { // the shard, without timers of its own
			fr := make([]link.Frame, 1)
			for r.plain.Stats().RxPackets == 0 {
				if n, _ := r.plain.Recv(fr); n > 0 {
					break
				}
				if err := r.f.Wait(-1); err != nil {
					t.Error(err)
				}
				shard.Lock()
				r.f.Recv(fr)
				shard.Unlock()
			}
			done <- time.Since(start)
		}()
		time.Sleep(time.Millisecond)
		synctest.Wait() // it sleeps without limit
		shard.Lock()
		r.send(fault.Tx, 1, 1)
		shard.Unlock()
		if got := <-done; got != 3*time.Millisecond {
			t.Errorf("the packet arrived after %v, want 3ms", got)
		}
	})
}

func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fault.Config{Tx: fault.Rates{Delay: 1}, DelayTime: time.Second})
		r.send(fault.Tx, 1, 1)
		start := time.Now()
		r.f.Wait(0)
		r.f.Wake()
		r.f.Wait(-1)
		if got := time.Since(start); got != 0 {
			t.Errorf("Wait returned %v after Wake", got)
		}
		r.f.Wait(100 * time.Millisecond)
		if got := time.Since(start); got != 100*time.Millisecond {
			t.Errorf("Wait(100ms) returned after %v", got)
		}
	})
}

// TestJitterKeepsEverything: random delays reorder packets, but lose none.
func TestJitterKeepsEverything(t *testing.T) {
	both(t, func(t *testing.T, dir fault.Direction) {
		c := rates(dir, fault.Rates{Delay: 1})
		c.DelayTime, c.DelayJitter = time.Millisecond, time.Millisecond
		r := newRig(t, c)
		r.send(dir, 0, 300)
		var got []int
		start := time.Now()
		for len(got) < 300 && time.Since(start) < time.Second {
			r.f.Wait(10 * time.Millisecond)
			r.f.Recv(nil)
			r.f.Flush()
			got = append(got, r.arrived(dir)...)
		}
		if took := time.Since(start); took < time.Millisecond || took > 2*time.Millisecond {
			t.Errorf("took %v, want 1 to 2 ms", took)
		}
		seen := map[int]bool{}
		ordered := true
		for i, psn := range got {
			seen[psn] = true
			ordered = ordered && i == psn
		}
		if len(seen) != 300 || len(got) != 300 || ordered {
			t.Errorf("%d packets arrived, %d different, in order: %v", len(got), len(seen), ordered)
		}
	})
}

func TestECN(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, dir := range []fault.Direction{fault.Tx, fault.Rx} {
			r := newRig(t, rates(dir, fault.Rates{ECN: 1}))
			from, to := link.Port(r.f), r.plain
			if dir == fault.Rx {
				from, to = to, from
			}
			linktest.Send(t, from, linktest.Path(t, v6, from.Info().MAC, to.Info().MAC), 1, nil)
			from.Flush()
			fr := make([]link.Frame, 1)
			if n, _ := to.Recv(fr); n != 1 {
				t.Fatalf("%d frames arrived", n)
			}
			var p frame.Packet
			if err := p.Parse(fr[0].Data, frame.LayoutEthernet); err != nil {
				t.Fatalf("v6=%v: %v", v6, err) // checks the IPv4 checksum
			}
			if p.TrafficClass&3 != 3 || !p.CheckICRC() {
				t.Errorf("v6=%v: traffic class %#x, ICRC right: %v", v6, p.TrafficClass, p.CheckICRC())
			}
			if c := r.counters(dir); c.Marked != 1 {
				t.Errorf("counters %+v", c)
			}
		}
	}
}

// TestBare: ECN marks and rules with an address also work on a Port that shows no headers, as far
// as that is possible. A mark on one packet does not change the other packets that share its
// envelope.
func TestBare(t *testing.T) {
	a, b := mem.Pair(mem.Config{})
	path := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
	dst := netip.AddrFrom16(path.Config().Dst).Unmap()
	f, err := fault.Wrap(linktest.Bare(b, true), fault.Config{Now: func() mono.Time { return 0 }, Rules: []fault.Rule{
		{Action: fault.Drop, Addr: fault.Is(dst), PSN: fault.Is(bth.PSN(1))},
		{Action: fault.ECN, Addr: fault.Is(dst), PSN: fault.Is(bth.PSN(3))},
		{Action: fault.Drop, Addr: fault.Is(netip.MustParseAddr("10.9.9.9"))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for psn := range bth.PSN(5) {
		linktest.Send(t, a, path, psn, nil)
	}
	a.Flush()
	var got []string
	fr := make([]link.Frame, link.Batch)
	n, _ := f.Recv(fr)
	for i := range fr[:n] {
		psn, _ := linktest.Check(t, f.Info().Layout, fr[i])
		got = append(got, fmt.Sprintf("%d ce=%v", psn, fr[i].Env.TrafficClass&3 == 3))
	}
	if want := "[0 ce=false 2 ce=false 3 ce=true 4 ce=false]"; fmt.Sprint(got) != want {
		t.Errorf("received %v, want %v", got, want)
	}
	if _, rx := f.Counters(); rx.Marked != 1 || rx.Dropped != 1 {
		t.Errorf("counters %+v", rx)
	}

	// A rule finds a sent packet by its address; its headers are written by the kernel, so it
	// cannot be marked.
	if err := f.AddRule(fault.Rule{Action: fault.Drop, Dir: fault.Tx, Addr: fault.Is(dst)}); err != nil {
		t.Fatal(err)
	}
	linktest.Send(t, f, linktest.Path(t, false, b.Info().MAC, a.Info().MAC), 9, nil)
	if tx, _ := f.Counters(); tx.Dropped != 1 {
		t.Errorf("counters of what was sent %+v", tx)
	}
}

// TestHoldLimit: memory is bounded, and a packet without room is not lost.
func TestHoldLimit(t *testing.T) {
	both(t, func(t *testing.T, dir fault.Direction) {
		c := rates(dir, fault.Rates{Delay: 1})
		c.Hold = 10
		r := newRig(t, c)
		r.send(dir, 0, 30)
		if got := r.arrived(dir); len(got) != 20 {
			t.Errorf("%d packets passed at once, want 20", len(got))
		}
		if c := r.counters(dir); c.Overflow != 20 || c.Held != 10 {
			t.Errorf("counters %+v", c)
		}
		r.f.Close()
		if c := r.counters(dir); c.Held != 0 || c.Lost != 10 {
			t.Errorf("after Close: counters %+v", c)
		}
	})
}

// TestHeldMeetsNoRoom: held packets that the inner Port refuses stay due, and
// Wait sleeps until there is room for them.
func TestHeldMeetsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := mem.Pair(mem.Config{Queue: 1, Backpressure: true})
		f, err := fault.Wrap(a, fault.Config{Tx: fault.Rates{Delay: 1}})
		if err != nil {
			t.Fatal(err)
		}
		path := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
		const n = 3 * link.Batch
		for i := range n {
			linktest.Send(t, f, path, bth.PSN(i), nil)
		}
		time.Sleep(time.Second)
		stop := make(chan bool)
		turns := 0
		go func() { // the shard
			defer close(stop)
			for f.Flush() == nil && f.Wait(-1) == nil {
				turns++
			}
		}()
		psns, _ := linktest.Collect(t, b, n)
		f.Close()
		<-stop
		if turns > 3*n {
			t.Errorf("%d turns for %d packets: Wait did not wait", turns, n)
		}
		if len(psns) != n {
			t.Fatalf("%d of %d packets arrived", len(psns), n)
		}
		for i, psn := range psns {
			if psn != bth.PSN(i) {
				t.Fatalf("packet %d has PSN %v", i, psn)
			}
		}
	})
}

func TestSetRates(t *testing.T) {
	r := newRig(t, fault.Config{})
	if err := r.f.SetRates(fault.Rates{Loss: 1}, fault.Rates{}); err != nil {
		t.Fatal(err)
	}
	r.send(fault.Tx, 0, 3)
	if err := r.f.SetRates(fault.Rates{}, fault.Rates{}); err != nil {
		t.Fatal(err)
	}
	r.send(fault.Tx, 3, 3)
	if got := r.arrived(fault.Tx); !reflect.DeepEqual(got, []int{3, 4, 5}) {
		t.Errorf("arrived %v, want 3 to 5", got)
	}
	if err := r.f.SetRates(fault.Rates{Loss: 2}, fault.Rates{}); err == nil {
		t.Errorf("a loss rate of 2 was accepted")
	}
}

func BenchmarkPort(b *testing.B) {
	linktest.BenchmarkPort(b, func(b *testing.B) (link.Port, link.Port) {
		from, to := mem.Pair(mem.Config{MTU: 4200, Backpressure: true})
		f, err := fault.Wrap(from, fault.Config{Tx: fault.Rates{Loss: 1e-9, Reorder: 0.01}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { f.Close(); to.Close() })
		return f, to
	})
}
