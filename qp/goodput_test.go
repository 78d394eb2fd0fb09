package qp_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// lossyLink is a link that loses packets in both directions: of 10 Gb/s, with a round trip of 10 µs,
// unless rate and delay say otherwise.
type lossyLink struct {
	op      qp.Opcode
	message int
	total   int // bytes
	mtu     bth.MTU
	loss    float64
	seed    uint64
	rate    qp.Rate
	delay   time.Duration // one way

	repair, repairB bool            // at the requester, at the responder
	lanes           []time.Duration // in both directions
}

type goodputResult struct {
	rate      qp.Rate // of payload
	lost      int
	requester qp.Counters
	responder qp.Counters
	status    cq.Status
	longest   time.Duration // between two completions
}

func (c lossyLink) run(t testing.TB) (r goodputResult) {
	const depth = 16
	rate, delay := cmp.Or(c.rate, 10*qp.Gbps), cmp.Or(c.delay, 5*us)
	f := newFabric(c.seed)
	w := newNetwork(c.seed, impairment{})
	a, b := w.pair(t, pairConfig{timeout: 14, mtu: c.mtu, rd: 16, repair: c.repair, repairB: c.repairB}, 0)
	there := &pipe{rate: rate, delay: delay, loss: c.loss, lanes: c.lanes}
	back := &pipe{rate: rate, delay: delay, loss: c.loss, lanes: c.lanes}
	x, y := f.connect(a, b, []*pipe{there}, []*pipe{back})
	_, local := a.region(t, c.message)
	_, remote := b.region(t, c.message)
	wr := write(local, remote)
	wr.Opcode = c.op
	recv := qp.RecvWR{SG: []mr.SGE{remote.SGE(0, c.message)}}
	want, posted, done := c.total/c.message, 0, 0
	last := f.now
	x.acts = func() {
		for _, wc := range drain(a.send) {
			done++
			r.longest, last = max(r.longest, f.now.Sub(last)), f.now
			if wc.Status != cq.Success {
				r.status = wc.Status
			}
		}
		for ; posted < want && posted < done+depth && a.State() == qp.RTS; posted++ {
			must(0, a.PostSend(&wr))
		}
	}
	if c.op == qp.Send {
		received := 0
		y.acts = func() {
			for received -= len(drain(b.recv)); received < 2*depth; received++ {
				must(0, b.PostRecv(&recv))
			}
		}
		y.advance()
	}
	start := f.now
	f.run(mono.Never, func() bool { return done >= want || r.status != cq.Success })
	elapsed := f.now.Sub(start)
	r.rate = qp.Rate(uint64(done) * uint64(c.message) * 8e9 / uint64(elapsed))
	r.lost = there.lost + back.lost
	r.requester, r.responder = a.cnt, b.cnt
	return r
}

// pairings say which ends repair losses one by one. An end without repair stands for an older version of this stack,
// or for another stack.
var pairings = []struct {
	name            string
	repair, repairB bool
}{
	{"repair at neither end", false, false},
	{"repair at both ends", true, true},
	{"repair at the requester", true, false},
	{"repair at the responder", false, true},
}

// TestGoodput measures what is left of a connection's speed when packets are
// lost at random. The table is exact: it shows what a change to windows or
// retransmission does.
func TestGoodput(t *testing.T) {
	notUnderRace(t)
	var table strings.Builder
	for _, ends := range pairings {
		fmt.Fprintf(&table, "%s\n%-14s %6s %12s %9s %6s %6s %8s %9s %9s %12s\n", ends.name, "message", "loss", "goodput", "lossless", "lost", "NAKs", "implied", "timeouts", "repeated", "longest gap")
		for _, op := range []struct {
			name    string
			op      qp.Opcode
			message int
			mtu     bth.MTU
		}{
			{"WRITE 1 MiB", qp.Write, 1 << 20, bth.MTU1024},
			{"SEND 1 MiB", qp.Send, 1 << 20, bth.MTU1024},
			{"READ 1 MiB", qp.Read, 1 << 20, bth.MTU1024},
			{"WRITE/4096", qp.Write, 1 << 20, bth.MTU4096},
			{"READ/4096", qp.Read, 1 << 20, bth.MTU4096},
			{"SEND 4 KiB", qp.Send, 4 << 10, bth.MTU1024},
			{"READ 4 KiB", qp.Read, 4 << 10, bth.MTU1024},
		} {
			var lossless qp.Rate
			for _, loss := range []float64{0, 0.001, 0.01, 0.05} {
				total := 32 << 20
				if loss == 0 {
					total = 8 << 20
				}
				r := lossyLink{op: op.op, message: op.message, total: total, mtu: op.mtu, loss: loss, seed: 1, repair: ends.repair, repairB: ends.repairB}.run(t)
				if loss == 0 {
					lossless = r.rate
				}
				note := ""
				if r.status != cq.Success {
					note = "  " + r.status.String()
				}
				fmt.Fprintf(&table, "%-14s %5.1f%% %12s %9.3f %6d %6d %8d %9d %9d %12v%s\n", op.name, loss*100, r.rate.String(), float64(r.rate)/float64(lossless), r.lost,
					r.requester.RcvdSeqErr, r.requester.ImpliedNAK, r.requester.LocalAckTimeout, r.requester.RetransPkts, r.longest.Round(us), note)
			}
		}
	}
	golden(t, "goodput.golden", table.String())
}

// TestLongPath measures what losses cost where a window is in flight for hardly longer than a round trip, as on fast
// networks, and between busy ends.
func TestLongPath(t *testing.T) {
	notUnderRace(t)
	var table strings.Builder
	for _, op := range []struct {
		name string
		op   qp.Opcode
	}{{"WRITE", qp.Write}, {"READ", qp.Read}} {
		for _, rtt := range []time.Duration{30 * us, 60 * us} {
			fmt.Fprintf(&table, "%-5s %v", op.name, rtt)
			for _, loss := range []float64{0, 0.001, 0.01, 0.05} {
				r := lossyLink{op: op.op, message: 1 << 20, total: 32 << 20, mtu: bth.MTU4096, loss: loss, seed: 1, rate: 25 * qp.Gbps, delay: rtt / 2, repair: true, repairB: true}.run(t)
				fmt.Fprintf(&table, "  %.1f%% %s", loss*100, r.rate.String())
				if r.status != cq.Success {
					fmt.Fprintf(&table, " (%v)", r.status)
				}
			}
			fmt.Fprintln(&table)
		}
	}
	golden(t, "longpath.golden", table.String())
}

// TestReordering measures what is left of a connection's speed when the network sprays its packets
// over paths of different lengths.
func TestReordering(t *testing.T) {
	notUnderRace(t)
	skew := func(d time.Duration) []time.Duration { return []time.Duration{0, d / 3, 2 * d / 3, d} }
	var table strings.Builder
	for _, ends := range pairings {
		fmt.Fprintf(&table, "%s\n%-24s %12s %12s %12s %9s %9s\n", ends.name, "network", "WRITE 1 MiB", "SEND 4 KiB", "READ 1 MiB", "repeated", "premature")
		for _, n := range []struct {
			name  string
			lanes []time.Duration
			loss  float64
		}{
			{"4 paths", skew(0), 0},
			{"4 paths, skew 5 µs", skew(5 * us), 0},
			{"4 paths, skew 15 µs", skew(15 * us), 0},
			{"4 paths, skew 60 µs", skew(60 * us), 0},
			{"the same with 1 % loss", skew(60 * us), 0.01},
		} {
			fmt.Fprintf(&table, "%-24s", n.name)
			total := 8 << 20
			if !ends.repair || !ends.repairB {
				total = 1 << 20
			}
			var repeated, premature uint64
			for _, op := range []struct {
				op      qp.Opcode
				message int
			}{{qp.Write, 1 << 20}, {qp.Send, 4 << 10}, {qp.Read, 1 << 20}} {
				r := lossyLink{op: op.op, message: op.message, total: total, mtu: bth.MTU1024, loss: n.loss, seed: 1, repair: ends.repair, repairB: ends.repairB, lanes: n.lanes}.run(t)
				fmt.Fprintf(&table, " %12s", r.rate.String())
				repeated += r.requester.RetransPkts
				premature += r.responder.PrematureNAK
				if r.status != cq.Success {
					fmt.Fprintf(&table, " (%v)", r.status)
				}
			}
			fmt.Fprintf(&table, " %9d %9d\n", repeated, premature)
		}
	}
	golden(t, "reordering.golden", table.String())
}
