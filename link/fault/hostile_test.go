package fault_test

import (
	"bytes"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/mono"
)

// TestReorderRulesDoNotWaitForEachOther: each rule has its own count and time. A packet that is held for long does not
// delay the packets that another rule releases earlier.
func TestReorderRulesDoNotWaitForEachOther(t *testing.T) {
	e := network(t, "reorder,psn=1,time=10s,by=1000", "reorder,psn=2,time=1ms,by=1")
	for psn := 1; psn <= 4; psn++ {
		e.Handle(0, fault.Tx, made(t, false, write(psn, "abcd")), uint64(psn))
	}
	now := mono.Time(2 * time.Millisecond)
	if r, ok := e.Next(now, fault.Tx); !ok || r.Tag != 2 {
		t.Errorf("after two packets and 2 ms Next gave (tag %d, %v), want packet 2; it is due at %v", r.Tag, ok, e.NextTimeout())
	}
}

// TestProbabilityZero: a rule that acts with probability 0 does not act, or is refused.
func TestProbabilityZero(t *testing.T) {
	r, err := fault.ParseRule("drop,p=0")
	if err != nil {
		return
	}
	e, err := fault.NewEngine(fault.Config{Rules: []fault.Rule{r}}, 0)
	if err != nil {
		return
	}
	if v := e.Handle(0, fault.Tx, made(t, false, write(1, "abcd")), 1); !v.Pass {
		t.Errorf("drop,p=0 dropped a packet")
	}
}

// TestLongestJitter: a jitter that flags and files accept does not panic.
func TestLongestJitter(t *testing.T) {
	e := network(t, "delay,jitter="+time.Duration(math.MaxInt64).String())
	e.Handle(0, fault.Tx, made(t, false, write(1, "abcd")), 1)
}

// TestLongestDelay: a delay that flags and files accept is not in the past.
func TestLongestDelay(t *testing.T) {
	e := network(t, "delay,time="+time.Duration(math.MaxInt64).String())
	now := mono.Time(time.Second)
	e.Handle(now, fault.Tx, made(t, false, write(1, "abcd")), 1)
	if _, ok := e.Next(now, fault.Tx); ok {
		t.Errorf("a packet that is to be held back for 292 years left at once")
	}
}

// BenchmarkStrangers: each packet goes to a queue pair that the engine has not seen before.
func BenchmarkStrangers(b *testing.B) {
	e := network(b)
	b.ReportAllocs()
	var frames [][]byte
	for i := range 4096 {
		f := write(1, "abcd")
		f.BTH.DestQPN = bth.QPN(0x1000 + i)
		frames = append(frames, made(b, false, f))
	}
	b.ResetTimer()
	for i := range b.N {
		e.Handle(0, fault.Tx, frames[i%len(frames)], 1)
	}
}

// TestRelativePSNOfLongConnection: a connection that has sent more packets than there are PSNs goes on counting.
func TestRelativePSNOfLongConnection(t *testing.T) {
	const psns, step = 1 << 24, 1 << 20
	for _, want := range []int{0, 5 * step, 12 * step, psns, psns + step, 40 * step} {
		e := network(t, "drop,rel="+strconv.Itoa(want))
		for rel := 0; rel <= 41*step; rel += step {
			f := write((rel+0xFFFFF0)%psns, "abcd")
			if v := e.Handle(0, fault.Tx, made(t, false, f), 1); v.Pass != (rel != want) || v.Place.Rel != rel {
				t.Errorf("rel=%d: packet %d passes: %v, the trace has rel=%d", want, rel, v.Pass, v.Place.Rel)
			}
		}
	}
}

// TestLastIteration: a rule for the highest iter acts on that transmission, not on all later ones.
func TestLastIteration(t *testing.T) {
	e := network(t, "drop,iter=255")
	for n := 1; n <= 300; n++ {
		if v := e.Handle(0, fault.Tx, made(t, false, write(1, "abcd")), 1); v.Pass != (n != 255) {
			t.Errorf("transmission %d passes: %v", n, v.Pass)
		}
	}
}

// TestStranger: packets of a third host to the same queue pair count neither as transmissions of the peer nor as
// packets of its connection.
func TestStranger(t *testing.T) {
	e := network(t, "drop,psn=2,iter=1,conn=1,rel=1")
	stranger := func(psn int) []byte {
		b := made(t, false, write(psn, "abcd"))
		b[14+15] = 99 // the source
		return b
	}
	e.Handle(0, fault.Tx, made(t, false, write(1, "abcd")), 1)
	for _, psn := range []int{2, 0x7FFFFF, 0xFFFFFE} {
		if v := e.Handle(0, fault.Tx, stranger(psn), 1); !v.Pass || v.Place.Conn == 1 {
			t.Errorf("the stranger's packet %#x: %+v", psn, v)
		}
	}
	if v := e.Handle(0, fault.Tx, made(t, false, write(2, "abcd")), 1); v.Pass {
		t.Errorf("the first transmission passed: %+v", v)
	}
}

// TestDamagedHeaders: a fault with a right ICRC is refused for a packet with wrong headers, and so does not make it
// valid.
func TestDamagedHeaders(t *testing.T) {
	for _, rule := range []string{"rewrite,set.psn=9", "corrupt,icrc=right"} {
		for name, at := range map[string]int{"IP checksum": 14 + 10, "IP length": 14 + 2} {
			e := network(t, rule)
			b := made(t, false, write(1, "abcd"))
			b[at] ^= 0x40
			before := bytes.Clone(b)
			if v := e.Handle(0, fault.Tx, b, 1); !v.Pass || v.Faults != 0 || v.Refused == "" || !bytes.Equal(b, before) {
				t.Errorf("%s, wrong %s: %+v, changed %v", rule, name, v, !bytes.Equal(b, before))
			}
		}
	}
}
