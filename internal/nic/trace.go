package nic

import (
	"context"
	"fmt"
	"runtime/trace"
	"strings"

	"github.com/goroce/roce/qp"
)

// The names of the regions in a trace of the Go runtime (runtime/trace). A region belongs to the goroutine that
// does the work: that of a post, of a poll, or the background goroutine. docs/watching.md describes them.
const (
	regionReceive = "roce receive" // a batch of received packets
	regionTimers  = "roce timers"  // expired deadlines
	regionBuild   = "roce build"   // ready queue pairs build packets
	regionFlush   = "roce flush"   // packets to the driver: the system call
	regionWait    = "roce wait"    // sleep at the port
)

// span is a region that has begun. Without a trace it is nil, and costs a load and a comparison at its
// start and end.
type span struct{ *traced }

// traced is a region of an active trace.
type traced struct {
	name   string
	region *trace.Region
	before qp.Counters
}

// begin begins a region if a trace is active.
func begin(name string, c *qp.Counters) span {
	if !trace.IsEnabled() {
		return span{}
	}
	return beginTraced(name, c)
}

// end ends a region.
func (p span) end(c *qp.Counters) {
	if p.traced != nil {
		p.endTraced(c)
	}
}

func beginTraced(name string, c *qp.Counters) span {
	t := &traced{name: name, region: trace.StartRegion(context.Background(), name)}
	if c != nil {
		t.before = *c
	}
	return span{t}
}

// endTraced logs which counters have changed, in the category of the region's name.
func (t *traced) endTraced(c *qp.Counters) {
	if c != nil {
		var b strings.Builder
		before, now := t.before.Fields(), c.Fields()
		for i, f := range now {
			if d := *f.V - *before[i].V; d != 0 {
				fmt.Fprintf(&b, "%s+%d ", f.Name, d)
			}
		}
		if b.Len() > 0 {
			trace.Log(context.Background(), t.name, strings.TrimSuffix(b.String(), " "))
		}
	}
	t.region.End()
}
