package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// The tests of this file have the names of the programs of ibverbs-tests, directory
// tests/cross-channel. Cases of create_cq, post_send_wait, post_task, and of post_send_en up to
// ti_7, are those of the programs; ti_8 of post_send_en and the cases of post_recv_en and
// query_device are our own under those names. Where a program checks what an adapter drops, a
// comment says so.

// crossRig has the objects of the tests of ibverbs-tests: a queue pair that is connected to itself, with receives, and a
// master queue pair.
type crossRig struct {
	t             testing.TB
	dev           *roce.Device
	pd            *roce.PD
	qp, master    *roce.QP
	scq, rcq, mcq *roce.CQ
}

// crossConfig are the parameters of a crossRig.
type crossConfig struct {
	qp       roce.QPConfig
	scq, rcq roce.CQConfig
	recvs    int
}

func newCrossRig(t testing.TB, c crossConfig) *crossRig {
	t.Helper()
	return newCrossRigOn(t, newNetwork(t).device("10.0.0.1"), c)
}

func newCrossRigOn(t testing.TB, d *roce.Device, c crossConfig) *crossRig {
	t.Helper()
	r := &crossRig{t: t, dev: d, pd: d.AllocPD()}
	create := func(c roce.CQConfig) *roce.CQ {
		if c.Entries == 0 {
			c = roce.CQConfig{Entries: 255, CrossChannel: true}
		}
		return ok(d.CreateCQWith(c))(t)
	}
	r.scq, r.rcq, r.mcq = create(c.scq), create(c.rcq), create(roce.CQConfig{})
	c.qp.SendCQ, c.qp.RecvCQ, c.qp.Caps = r.scq, r.rcq, deepCaps
	r.qp = r.queuePair(c.qp)
	r.master = r.queuePair(roce.QPConfig{SendCQ: r.mcq, RecvCQ: r.mcq, Caps: deepCaps, CrossChannel: true})
	if c.recvs == 0 {
		c.recvs = 64
	}
	for i := range c.recvs {
		check(t, r.qp.PostRecv(&roce.RecvWR{ID: uint64(i)}))
	}
	return r
}

// queuePair makes a queue pair that is connected to itself.
func (r *crossRig) queuePair(c roce.QPConfig) *roce.QP {
	r.t.Helper()
	q := ok(r.pd.CreateQP(c))(r.t)
	check(r.t, q.Init(roce.DefaultQPAccess, 0))
	p := &peer{t: r.t, dev: r.dev, qp: q, psn: 7}
	connectOne(r.t, p, p)
	return q
}

// emptySends are n empty messages.
func emptySends(n int) (wrs []roce.SendWR) {
	for i := range n {
		wrs = append(wrs, roce.SendWR{ID: uint64(i), Opcode: roce.Send, Flags: roce.Signaled})
	}
	return wrs
}

// send posts n messages to the queue pair.
func (r *crossRig) send(n int) {
	r.t.Helper()
	if posted, err := r.qp.PostSends(emptySends(n)); err != nil {
		r.t.Fatalf("%d posted: %v", posted, err)
	}
}

// command posts to the master.
func (r *crossRig) command(wrs ...roce.SendWR) {
	r.t.Helper()
	if n, err := r.master.PostSends(wrs); err != nil {
		r.t.Fatalf("%d posted: %v", n, err)
	}
}

// want waits until nothing happens any more. It compares the numbers of completions in the send
// and the receive queue, and the IDs of those of the master. All must be successes.
func (r *crossRig) want(what string, scq, rcq int, master ...uint64) {
	r.t.Helper()
	synctest.Wait()
	for _, q := range []struct {
		name string
		cq   *roce.CQ
		want int
	}{{"send", r.scq, scq}, {"receive", r.rcq, rcq}} {
		if got := r.drain(q.cq); len(got) != q.want {
			r.t.Errorf("%s: %d completions in the %s queue, want %d", what, len(got), q.name, q.want)
		}
	}
	got := []uint64{}
	for _, wc := range r.drain(r.mcq) {
		got = append(got, wc.ID)
		if wc.QPN != r.master.Num() {
			r.t.Errorf("%s: completion %d is of %v", what, wc.ID, wc.QPN)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(append([]uint64{}, master...)) {
		r.t.Errorf("%s: the master completed %v, want %v", what, got, master)
	}
}

func (r *crossRig) drain(c *roce.CQ) (all []roce.WC) {
	r.t.Helper()
	wcs := make([]roce.WC, 256)
	all = wcs[:c.Poll(wcs)]
	for _, wc := range all {
		if wc.Status != cq.Success {
			r.t.Errorf("work request %d of %v: %v", wc.ID, wc.QPN, wc.Status)
		}
	}
	return all
}

// cross runs a test in a bubble with a rig.
func cross(t *testing.T, name string, c crossConfig, f func(t *testing.T, r *crossRig)) {
	t.Run(name, func(t *testing.T) {
		bubble(t, func(t *testing.T) { f(t, newCrossRig(t, c)) })
	})
}

var (
	crossQP     = crossConfig{qp: roce.QPConfig{CrossChannel: true}}
	managedSend = crossConfig{qp: roce.QPConfig{CrossChannel: true, ManagedSend: true}}
	managedRecv = crossConfig{qp: roce.QPConfig{CrossChannel: true, ManagedRecv: true}}
)

const signaledLast = roce.Signaled | roce.WaitEnLast

// TestCrossChannel has the cases of ibverbs-tests.
func TestCrossChannel(t *testing.T) {
	t.Run("query_device", testCrossQuery)
	t.Run("create_cq", testCrossCQ)
	t.Run("post_send_en", testSendEnable)
	t.Run("post_recv_en", testRecvEnable)
	t.Run("post_send_wait", testSendWait)
	t.Run("post_task", testPostTask)
}

func testCrossQuery(t *testing.T) {
	a := newNetwork(t).device("10.0.0.1").Query()
	if a.Caps&roce.CapCrossChannel == 0 || !strings.Contains(a.Caps.String(), "CROSS_CHANNEL") {
		t.Errorf("capabilities %v are without CROSS_CHANNEL", a.Caps)
	}
	for _, typ := range []roce.CalcType{roce.CalcInt, roce.CalcUint, roce.CalcFloat, 3} {
		for op := range roce.CalcOp(6) {
			want := typ <= roce.CalcFloat && (op == roce.CalcAdd || op >= roce.CalcBAnd && op <= roce.CalcBOr && typ != roce.CalcFloat)
			if got := a.CalcCap.Offers(roce.Calc{Op: op, Type: typ}); got != want {
				t.Errorf("%v of %v offered: %v, want %v", op, typ, got, want)
			}
		}
	}
	if a.CalcCap.Offers(roce.Calc{Size: 1}) {
		t.Error("numbers of another size are offered")
	}
}

func testCrossCQ(t *testing.T) {
	small := roce.CQConfig{Entries: 16}
	ignoring := roce.CQConfig{Entries: 16, CrossChannel: true, IgnoreOverrun: true}
	for _, c := range []struct {
		name     string
		scq, rcq roce.CQConfig
		events   int
	}{
		{"ti_1", small, roce.CQConfig{}, 1},
		{"ti_2", ignoring, roce.CQConfig{}, 0},
		{"ti_3", roce.CQConfig{}, ignoring, 0},
	} {
		cross(t, c.name, crossConfig{scq: c.scq, rcq: c.rcq}, func(t *testing.T, r *crossRig) {
			r.send(2)
			r.want("two messages", 2, 2)
			r.send(18)
			fits := func(c roce.CQConfig) int {
				if c.Entries == 0 {
					return 18
				}
				return 16
			}
			// An adapter that ignores overruns writes over entries, and delivers none.
			r.want("more than fit", fits(c.scq), fits(c.rcq))
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			e, err := r.dev.NextEvent(ctx)
			if (err == nil) != (c.events > 0) || err == nil && (e.Type != roce.EventCQErr || e.CQ != r.scq) {
				t.Errorf("event %v, error %v; want %d of CQ_ERR", e, err, c.events)
			}
		})
	}
	cross(t, "refusals", crossConfig{scq: small}, func(t *testing.T, r *crossRig) {
		_, err := r.dev.CreateCQWith(roce.CQConfig{Entries: 1, IgnoreOverrun: true})
		wantErr(t, "IgnoreOverrun without CrossChannel", err, syscall.EINVAL)
		wantErr(t, "the same of an existing queue", r.scq.SetIgnoreOverrun(true), syscall.EINVAL)
		wantErr(t, "waiting for an unmarked queue", r.master.PostSend(ptr(r.scq.WaitWR(0, 1, 0))), syscall.EINVAL)
		check(t, r.rcq.SetIgnoreOverrun(true))
		closed := ok(r.dev.CreateCQWith(roce.CQConfig{Entries: 1, CrossChannel: true}))(t)
		check(t, closed.Close())
		wantErr(t, "changing a closed queue", closed.SetIgnoreOverrun(true), roce.ErrClosed)
		wantErr(t, "waiting for a closed queue", r.master.PostSend(ptr(closed.WaitWR(0, 1, 0))), syscall.EINVAL)
		for name, c := range map[string]roce.QPConfig{
			"UD":          {Type: roce.UD, CrossChannel: true},
			"UC, managed": {Type: roce.UC, ManagedSend: true},
		} {
			c.SendCQ = r.scq
			_, err := r.pd.CreateQP(c)
			wantErr(t, name, err, syscall.EINVAL)
		}
		srq := ok(r.pd.CreateSRQ(roce.SRQConfig{MaxWR: 1, MaxSGE: 1}))(t)
		_, err = r.pd.CreateQP(roce.QPConfig{SendCQ: r.scq, SRQ: srq, CrossChannel: true, ManagedRecv: true})
		wantErr(t, "managed receives of a shared queue", err, syscall.EINVAL)
	})
}

func ptr[T any](v T) *T { return &v }

func testSendEnable(t *testing.T) {
	cross(t, "ti_1", crossQP, func(t *testing.T, r *crossRig) {
		r.send(10)
		r.want("a queue pair that is not managed", 10, 10)
	})
	cross(t, "ti_2", crossConfig{}, func(t *testing.T, r *crossRig) {
		managed := r.queuePair(roce.QPConfig{SendCQ: r.scq, CrossChannel: true, ManagedSend: true, ManagedRecv: true})
		for name, wr := range map[string]roce.SendWR{"SEND_ENABLE": managed.SendEnableWR(0, 1, 0), "RECV_ENABLE": managed.RecvEnableWR(0, 1, 0),
			"CQE_WAIT": r.rcq.WaitWR(0, 1, 0), "a reduction": {Opcode: roce.Send, Flags: roce.WithCalc}} {
			wantErr(t, name+" on an ordinary queue pair", r.qp.PostSend(&wr), syscall.EINVAL)
		}
	})
	cross(t, "ti_3", crossQP, func(t *testing.T, r *crossRig) {
		for range 10 {
			wantErr(t, "SEND_ENABLE of a queue that is not managed", r.master.PostSend(ptr(r.qp.SendEnableWR(0, 1, 0))), syscall.EINVAL)
		}
		r.want("refused", 0, 0)
	})
	cross(t, "ti_4", managedSend, func(t *testing.T, r *crossRig) {
		r.send(10)
		r.want("nothing is enabled", 0, 0)
	})
	cross(t, "ti_5", managedSend, func(t *testing.T, r *crossRig) {
		for range 5 {
			r.send(1)
			check(t, r.qp.PostSend(ptr(r.qp.SendEnableWR(0, 1, roce.Signaled))))
		}
		r.want("the SEND_ENABLEs are held, too", 0, 0)
	})
	cross(t, "ti_6", managedSend, func(t *testing.T, r *crossRig) {
		for range 5 {
			r.send(1)
			r.command(r.qp.SendEnableWR(0, 1, roce.WaitEnLast))
		}
		r.want("each is enabled", 5, 5)
	})
	cross(t, "ti_7", managedSend, func(t *testing.T, r *crossRig) {
		r.send(10)
		r.command(r.qp.SendEnableWR(9, 0, signaledLast))
		r.want("all are enabled", 10, 10, 9)
		r.send(1)
		r.want("later ones are not", 0, 0)
	})
	cross(t, "ti_8", managedSend, func(t *testing.T, r *crossRig) {
		r.send(10)
		r.command(r.qp.SendEnableWR(1, 4, roce.Signaled))
		r.want("some are enabled", 4, 4, 1)
		r.command(r.qp.SendEnableWR(2, 6, roce.Signaled))
		r.want("so are the rest", 6, 6, 2)
	})
}

func testRecvEnable(t *testing.T) {
	cross(t, "ti_1", crossQP, func(t *testing.T, r *crossRig) {
		wantErr(t, "RECV_ENABLE of a queue that is not managed", r.master.PostSend(ptr(r.qp.RecvEnableWR(0, 1, 0))), syscall.EINVAL)
	})
	cross(t, "ti_2", managedRecv, func(t *testing.T, r *crossRig) {
		r.command(r.qp.RecvEnableWR(1, 3, roce.Signaled))
		r.send(3)
		r.want("three receives are enabled", 3, 3, 1)
	})
	cross(t, "ti_3", managedRecv, func(t *testing.T, r *crossRig) {
		r.command(r.qp.RecvEnableWR(1, 0, roce.Signaled))
		r.send(64)
		r.want("all receives are enabled", 64, 64, 1)
	})
	cross(t, "ti_4", managedRecv, func(t *testing.T, r *crossRig) {
		r.send(2)
		r.want("none is enabled", 0, 0)
		r.command(r.qp.RecvEnableWR(1, 1, roce.Signaled))
		for range 2 { // the RNR NAK told the requester to come back later
			_, err := r.scq.Next(within(t, 1e9))
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		r.want("the second one waits", 0, 1, 1)
	})
}

func testSendWait(t *testing.T) {
	const posts = 10
	cross(t, "ti_1", crossConfig{}, func(t *testing.T, r *crossRig) {
		wantErr(t, "CQE_WAIT on an ordinary queue pair", r.qp.PostSend(ptr(r.rcq.WaitWR(0, 1, 0))), syscall.EINVAL)
	})
	for _, c := range []struct {
		name  string
		waits []roce.SendWR // their IDs and counts
		sends int
		done  []uint64
	}{
		{"ti_2", []roce.SendWR{{ID: 0, Count: 1, Flags: signaledLast}}, 1, []uint64{0}},
		{"ti_3", []roce.SendWR{{ID: 0, Count: 1, Flags: signaledLast}}, posts, []uint64{0}},
		{"ti_4", []roce.SendWR{{ID: 0, Count: posts + 1, Flags: signaledLast}}, posts, nil},
		{"ti_5", []roce.SendWR{{ID: 0, Count: posts, Flags: signaledLast}}, posts, []uint64{0}},
		{"ti_6", []roce.SendWR{{ID: 3, Count: posts, Flags: roce.Signaled}, {ID: 2, Count: posts, Flags: roce.Signaled},
			{ID: 1, Count: posts, Flags: signaledLast}}, posts, []uint64{3, 2, 1}},
		{"ti_7", []roce.SendWR{{ID: 3, Count: posts - 1, Flags: roce.Signaled}, {ID: 2, Count: posts, Flags: roce.Signaled},
			{ID: 1, Count: posts + 1, Flags: signaledLast}}, posts, []uint64{3, 2}},
	} {
		cross(t, c.name, crossQP, func(t *testing.T, r *crossRig) {
			for _, wr := range c.waits {
				r.command(r.rcq.WaitWR(wr.ID, wr.Count, wr.Flags))
			}
			r.want("before", 0, 0)
			r.send(c.sends)
			r.want("afterwards", c.sends, c.sends, c.done...)
		})
	}
	cross(t, "ti_8", crossConfig{qp: crossQP.qp, scq: roce.CQConfig{Entries: 16, CrossChannel: true, IgnoreOverrun: true}}, func(t *testing.T, r *crossRig) {
		r.command(r.scq.WaitWR(777, 19, signaledLast)) // more than the queue holds
		r.send(18)
		synctest.Wait()
		if n := r.mcq.Poll(make([]roce.WC, 1)); n != 0 {
			t.Error("the wait ended before its time")
		}
		r.send(1)
		r.want("one more", 16, 19, 777)
	})
}
