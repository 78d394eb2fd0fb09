package qp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// incast is several senders behind a switch whose port to the receiver is as
// fast as one of them.
type incast struct {
	name    string
	typ     qp.Type
	op      qp.Opcode
	senders int
	apart   time.Duration // between their starts
	cc      *qp.DCQCN
}

// outcome of an incast.
type incastResult struct {
	queue          *pipe
	used           float64 // share of the port's capacity, after the last sender has started and its rate has settled
	fair           float64 // Jain's index over the same time
	cnps, timeouts uint64
}

const (
	portRate = 10 * qp.Gbps
	settle   = 40 * time.Millisecond
	measure  = 60 * time.Millisecond
)

// run simulates the incast.
func (c incast) run(t testing.TB) (r incastResult) {
	const message = 64 << 10
	f := newFabric(1)
	w := newNetwork(1, impairment{})
	r.queue = &pipe{rate: portRate, delay: us, room: 2 << 20, kmin: 100_000, kmax: 400_000, pmax: 0.05}
	back := &pipe{rate: portRate, delay: 2 * us}
	var sinks []*end
	var senders []*end
	for i := range c.senders {
		a, b := w.pair(t, pairConfig{typ: c.typ, cc: c.cc, timeout: 14, mtu: bth.MTU1024, window: 128}, i)
		card := &pipe{rate: portRate, delay: us}
		x, y := f.connect(a, b, []*pipe{card, r.queue}, []*pipe{back})
		_, from := a.region(t, message)
		_, to := b.region(t, message)
		begin := f.now.Add(time.Duration(i) * c.apart)
		poster, local, remote := x, from, to
		if c.op == qp.Read {
			poster, local, remote = y, to, from
		}
		wr := write(local, remote)
		wr.Opcode = c.op
		posted := 0
		poster.acts = func() {
			posted -= len(drain(poster.send))
			for ; posted < 4 && f.now >= begin; posted++ {
				must(0, poster.PostSend(&wr))
			}
		}
		if begin > f.now {
			poster.retry = begin
		}
		senders, sinks = append(senders, x), append(sinks, y)
	}
	start := f.now.Add(time.Duration(c.senders-1)*c.apart + settle)
	f.run(start, nil)
	before := make([]uint64, c.senders)
	for i, x := range senders {
		before[i] = x.cnt.SentPkts
	}
	passed := r.queue.passed - r.queue.waiting(f.now)
	f.run(start.Add(measure), nil)
	sum, squares := 0.0, 0.0
	for i, x := range senders {
		n := float64(x.cnt.SentPkts - before[i])
		sum, squares = sum+n, squares+n*n
		r.timeouts += x.cnt.LocalAckTimeout + sinks[i].cnt.LocalAckTimeout
		r.cnps += sinks[i].cnt.CNPsSent
	}
	r.used = float64(r.queue.passed-r.queue.waiting(f.now)-passed) * 8e9 / float64(measure) / float64(portRate)
	r.fair = sum * sum / float64(c.senders) / squares
	return r
}

// TestDCQCNBottleneck: with congestion control the queue at the bottleneck stays short, nothing is lost, the port is
// used, and every sender gets its share. The table must be exactly the golden one.
func TestDCQCNBottleneck(t *testing.T) {
	notUnderRace(t)
	on := &qp.DCQCN{LineRate: portRate}
	var table strings.Builder
	fmt.Fprintf(&table, "%-22s %8s %8s %11s %12s %7s %7s %7s\n", "incast", "used", "fairness", "queue max", "queue mean", "lost", "marked", "CNPs")
	for _, c := range []incast{
		{"WRITE 1", qp.RC, qp.Write, 1, 0, on},
		{"WRITE 2", qp.RC, qp.Write, 2, 5 * time.Millisecond, on},
		{"WRITE 4", qp.RC, qp.Write, 4, 5 * time.Millisecond, on},
		{"WRITE 8", qp.RC, qp.Write, 8, 2 * time.Millisecond, on},
		{"WRITE 16 at once", qp.RC, qp.Write, 16, 0, on},
		{"READ 4", qp.RC, qp.Read, 4, 5 * time.Millisecond, on},
		{"UC WRITE 4", qp.UC, qp.Write, 4, 5 * time.Millisecond, on},
		{"WRITE 4, off", qp.RC, qp.Write, 4, 5 * time.Millisecond, nil},
		{"WRITE 16 at once, off", qp.RC, qp.Write, 16, 0, nil},
	} {
		r := c.run(t)
		q := r.queue
		if c.cc != nil && (q.dropped > 0 || r.used < 0.88 || r.fair < 0.97 || q.waited/q.lookedAt > 400<<10 || r.timeouts > 0) {
			t.Errorf("%s: %d lost, %.3f used, fairness %.3f, %d bytes in the queue, %d timeouts", c.name, q.dropped, r.used, r.fair, q.waited/q.lookedAt, r.timeouts)
		}
		fmt.Fprintf(&table, "%-22s %7.1f%% %8.3f %7d KiB %8d KiB %7d %7d %7d\n", c.name, r.used*100, r.fair, q.most>>10, q.waited/q.lookedAt>>10, q.dropped, q.marked, r.cnps)
	}
	golden(t, "bottleneck.golden", table.String())
}
