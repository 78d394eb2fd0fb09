package fault_test

import (
	"math"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/mono"
)

// TestReorderRulesDoNotWaitForEachOther: each rule has its own count and time; a packet that waits long does not hold back
// those that another rule lets go earlier.
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

// BenchmarkStrangers: packets to queue pairs of which nothing is known.
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
