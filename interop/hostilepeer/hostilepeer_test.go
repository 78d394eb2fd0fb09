package hostilepeer

import (
	"flag"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
)

var (
	packets = flag.Float64("hostile.packets", 60_000, "packets that TestHostilePeer sends in all; 0: none")
	seed    = flag.Uint64("hostile.seed", 1, "seed of the packets of TestHostilePeer")
)

// TestHostilePeer sends packets in each form.
func TestHostilePeer(t *testing.T) {
	if *packets == 0 {
		t.Skip("-hostile.packets says how many packets, for instance 1e6")
	}
	for f := range forms {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			var sum total
			synctest.Test(t, func(t *testing.T) { sum = attack(t, f, *seed, int(*packets)/int(forms)) })
			t.Logf("seed %d: %v; %.2f million packets a second", *seed, sum, float64(sum.packets)/1e6/time.Since(began).Seconds())
		})
	}
}

// FuzzHostilePeer looks for a seed.
func FuzzHostilePeer(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64, form byte) {
		synctest.Test(t, func(t *testing.T) { attack(t, Form(form)%forms, seed, 2000) })
	})
}

// total has the results of all packets.
type total struct {
	packets, strangers, executed, dropped uint64
	fatal, received, transfers            int
	connected                             uint64
	heap                                  uint64
}

func (s total) String() string {
	return fmt.Sprintf("%d packets, %d of them of strangers; %d executed, %d dropped and counted, %d receives taken, %d queue pairs ended by their peer, "+
		"%d connection requests; %d transfers of the honest connection; %d MiB at most", s.packets, s.strangers, s.executed, s.dropped, s.received, s.fatal, s.connected, s.transfers, s.heap>>20)
}

// How often the test checks, and the limits.
const (
	transferEach = 64       // batches
	measureEach  = 4096     // batches
	maxHeap      = 64 << 20 // more than at the beginning
	maxRoutines  = 64
)

// attack sends n packets to a new device, and checks the device after each batch.
func attack(t *testing.T, f Form, seed uint64, n int) (sum total) {
	r, err := newRig(f)
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGenerator(r, seed)
	if err != nil {
		t.Fatal(err)
	}
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("form %v, seed %d, after %d packets: %s", f, seed, sum.packets, fmt.Sprintf(format, args...))
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			fail("%v", err)
		}
	}
	idle := heap()
	measure := func() {
		t.Helper()
		now := heap()
		sum.heap = max(sum.heap, now)
		if now > idle+maxHeap {
			fail("%d MiB of memory are used, %d before", now>>20, idle>>20)
		}
		if n := runtime.NumGoroutine(); n > maxRoutines {
			fail("%d goroutines run", n)
		}
	}
	for i := 0; sum.packets < uint64(n); i++ {
		synctest.Wait()
		_, err := r.drain()
		check(err)
		check(r.mend())
		from, others, stranger := g.hostile, g.strangers, false
		switch i % 4 {
		case 0, 1:
			others = nil
		case 2:
			from, others, stranger = g.strangers, nil, true
		}
		for range g.IntN(4) {
			check(r.ask(pick(g, r.ends), g.IntN(4)))
		}
		synctest.Wait()
		before := r.victim.Counters()
		_, passedBefore := r.gate.counts()
		open := g.fill(1+g.IntN(link.Batch), from, others)
		r.gate.inject(g.batch.frames)
		synctest.Wait()
		after := r.victim.Counters()
		count := uint64(len(g.batch.frames))
		left, passed := r.gate.counts()
		if left > 0 {
			fail("the device does not take its packets: %d of %d are left", left, count)
		}
		honest := uint64(passed - passedBefore)
		if got := accounted(after) - accounted(before) - honest; got != count {
			fail("%d packets were counted %d times: %s", count, got, changes(before, after))
		}
		taken := after.RcvdPkts - before.RcvdPkts - min(honest, after.RcvdPkts-before.RcvdPkts)
		received, err := r.drain()
		check(err)
		if stranger {
			if taken > uint64(open) || received > 0 || after.GhostAck != before.GhostAck {
				fail("of %d packets of strangers %d were executed, where %d may be; %d receives were taken: %s", count, taken, open, received, changes(before, after))
			}
			sum.strangers += count
		}
		sum.packets += count
		sum.executed += taken
		sum.dropped += count - taken
		if i%16 == 0 {
			time.Sleep(time.Duration(g.IntN(20_000)) * time.Microsecond)
		}
		for _, a := range r.areas {
			check(a.check())
		}
		if i%transferEach == 0 {
			check(r.transfer())
		}
		if i%measureEach == 0 {
			measure()
		}
	}
	check(r.transfer())
	measure()
	sum.fatal, sum.received, sum.transfers = r.fatal, r.taken, r.rounds
	sum.connected = r.victim.Counters().CM.Received[0]
	return sum
}

// heap is the memory in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// changes lists the counters that have changed.
func changes(before, after roce.Counters) string {
	var out []string
	note := func(name string, a, b uint64) {
		if a != b {
			out = append(out, fmt.Sprintf("%s +%d", name, b-a))
		}
	}
	was, now := before.Fields(), after.Fields()
	for i := range was {
		note(was[i].Name, *was[i].V, *now[i].V)
	}
	a, b := reflect.ValueOf(before.Drops), reflect.ValueOf(after.Drops)
	for i := range a.NumField() {
		note(a.Type().Field(i).Name, a.Field(i).Uint(), b.Field(i).Uint())
	}
	return strings.Join(out, ", ")
}

// accounted returns how many packets a device has counted. Exactly one of
// these counters counts each packet.
func accounted(c roce.Counters) uint64 {
	return c.Drops.Malformed + c.Drops.NotForUs + c.Drops.NoQP + c.Drops.PKey + c.Drops.NoMAD + c.Drops.MADFlood + c.Drops.Overrun +
		c.ICRCErr + c.RcvdPkts + c.WrongPeer + c.WrongState + c.WrongTransport + c.QKeyViolation + c.GhostAck + c.CNPsIgnored
}
