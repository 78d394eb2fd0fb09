package nic

import (
	"bytes"
	"io"
	"runtime/trace"
	"testing"

	"github.com/goroce/roce/qp"
)

// Without a trace a region allocates nothing and looks at no counter.
func TestTraceOff(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		p := begin(regionReceive, nil)
		p.end(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if p := begin(regionReceive, nil); p.traced != nil {
		t.Error("a region has begun although no trace is taken")
	}
}

// A trace has the region, and the counters that changed in the region.
func TestTraceOn(t *testing.T) {
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skipf("another trace is taken: %v", err)
	}
	c := qp.Counters{SentPkts: 10, RetransPkts: 1}
	p := begin(regionBuild, &c)
	c.SentPkts, c.RcvdSeqErr = 26, 1
	p.end(&c)
	w := begin(regionWait, nil)
	w.end(nil)
	trace.Stop()
	for _, text := range []string{regionBuild, "sent_pkts+16 rcvd_seq_err+1", regionWait} {
		if !bytes.Contains(out.Bytes(), []byte(text)) {
			t.Errorf("the trace has no %q", text)
		}
	}
	if bytes.Contains(out.Bytes(), []byte("retrans_pkts+")) {
		t.Error("the trace has a counter that did not change")
	}
}

// BenchmarkTrace measures the cost of a region without and with a trace.
func BenchmarkTrace(b *testing.B) {
	var c qp.Counters
	region := func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p := begin(regionReceive, &c)
			c.SentPkts++
			p.end(&c)
		}
	}
	b.Run("none", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.SentPkts++
		}
	})
	b.Run("off", region)
	b.Run("on", func(b *testing.B) {
		if err := trace.Start(io.Discard); err != nil {
			b.Skipf("another trace is taken: %v", err)
		}
		defer trace.Stop()
		region(b)
	})
}
