//go:build linux

package verbs

import (
	"runtime"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
)

// meter measures from the first completions after the warm-up to the first ones after the duration. The counted work was
// done between the two, except for messages that were in flight at either moment, equally many at both.
type meter struct {
	dev        device
	start, end time.Time     // when warm-up and duration are over
	length     time.Duration // of the measured part
	running    bool
	over       bool

	began    time.Time
	messages uint64
	counters roce.Counters
	mem      runtime.MemStats
	measure  harness.Measure
}

func newMeter(d device, s harness.Spec) *meter {
	return &meter{dev: d, start: time.Now().Add(s.Warmup), length: s.Duration}
}

// at notes how many messages of the given size are done by now.
func (m *meter) at(messages, size uint64) {
	now := time.Now()
	switch {
	case m.over || !m.running && now.Before(m.start):
	case !m.running:
		m.counters = m.dev.Counters()
		runtime.ReadMemStats(&m.mem)
		m.running, m.messages = true, messages
		m.began = time.Now()
		m.end = m.began.Add(m.length)
	case now.After(m.end):
		var after runtime.MemStats
		runtime.ReadMemStats(&after)
		c := m.dev.Counters()
		n := messages - m.messages
		m.measure = harness.Measure{Seconds: now.Sub(m.began).Seconds(), Messages: n, Bytes: n * size,
			Packets: c.Link.TxPackets + c.Link.RxPackets - m.counters.Link.TxPackets - m.counters.Link.RxPackets,
			Mallocs: after.Mallocs - m.mem.Mallocs, Retrans: c.RetransPkts - m.counters.RetransPkts, Drops: c.Link.RxDrops - m.counters.Link.RxDrops}
		m.over = true
	}
}
