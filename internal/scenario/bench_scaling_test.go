package scenario_test

import (
	"fmt"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/link/mem"
)

// BenchmarkScaling sends messages of 64 bytes in lists of 16, each over the next of many
// queue pairs, with 128 lists in flight; both ends are on this goroutine.
func BenchmarkScaling(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchScaling(b, n) })
	}
}

func benchScaling(b *testing.B, qps int) {
	const burst, lists = 16, 128
	net := newNetworkOf(b, mem.Config{MTU: 1500, Queue: 2 * burst * lists, Backpressure: true})
	open := func(addr string) *peer {
		c := net.config(addr)
		c.Polled = true
		return newPeer(b, net.open(c), 64)
	}
	from, to := open("10.0.0.1"), open("10.0.0.2")
	srq := ok(to.pd.CreateSRQ(roce.SRQConfig{MaxWR: 2 * burst * lists, MaxSGE: 1}))(b)
	all := make([]*roce.QP, qps)
	depth := burst * max(2, lists/qps)
	for i := range all {
		a := *from
		a.qp = ok(a.pd.CreateQP(roce.QPConfig{SendCQ: a.cq, Caps: roce.Caps{MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(b)
		z := *to
		z.qp = ok(z.pd.CreateQP(roce.QPConfig{SendCQ: z.cq, SRQ: srq, Caps: roce.Caps{MaxSendWR: 1, MaxSendSGE: 1}}))(b)
		check(b, a.qp.Init(roce.DefaultQPAccess, 0))
		check(b, z.qp.Init(roce.DefaultQPAccess, 0))
		connect(b, &a, &z)
		all[i] = a.qp
	}
	send, recv := make([]roce.SendWR, burst), make([]roce.RecvWR, burst)
	for i := range send {
		send[i] = roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{from.mr.SGE(0, 64)}}
		recv[i] = roce.RecvWR{SG: []roce.SGE{to.mr.SGE(0, 64)}}
	}
	send[burst-1].Flags = roce.Signaled
	for range 2 * lists {
		must(srq.PostRecvs(recv))
	}
	var wcs [256]roce.WC
	poll := func(q *roce.CQ) int {
		n := q.Poll(wcs[:])
		for _, wc := range wcs[:n] {
			if wc.Status != cq.Success {
				b.Fatal(wc)
			}
		}
		return n
	}
	posted, done, received := 0, 0, 0
	run := func(count int) {
		for end := posted + count; done < end; {
			for ; posted < end && posted < done+lists; posted++ {
				must(all[posted%qps].PostSends(send))
			}
			done += poll(from.cq)
			for received += poll(to.cq); received >= burst; received -= burst {
				must(srq.PostRecvs(recv))
			}
		}
	}
	run(3 * max(qps, lists)) // afterwards each queue pair has allocated its queues
	b.ReportAllocs()
	b.ResetTimer()
	run((b.N + burst - 1) / burst)
}
