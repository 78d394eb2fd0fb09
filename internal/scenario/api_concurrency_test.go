package scenario_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/qp"
)

// Any goroutine may call methods: each group below calls the methods of one object concurrently. It is a test for the
// race detector.
func TestMethodsSideBySide(t *testing.T) {
	a, b := newPair(t, 4096)
	d := a.dev
	mem := [2][]byte{make([]byte, 64), make([]byte, 32)}
	iovas := [2]uint64{0x1000, 0x2000}
	fast := ok(a.pd.AllocFastReg(roce.FastRegConfig{Pieces: 1}))(t)
	check(t, fast.Map(mem[0]))
	indirect := ok(a.pd.AllocIndirect(1))(t)
	check(t, indirect.Map(roce.Layout{Parts: []roce.Part{{MR: a.mr, Length: 8}}}))
	region := ok(a.pd.RegMR(mem[0], roce.LocalWrite))(t)
	window := ok(a.pd.AllocMW(roce.MWType1))(t)
	bound := ok(a.pd.RegMR(make([]byte, 64), roce.LocalWrite|roce.MWBind))(t)
	cq := ok(d.CreateCQ(7))(t)
	srq := ok(a.pd.CreateSRQ(roce.SRQConfig{MaxWR: 7}))(t)
	channel := ok(d.CreateCompChannel())(t)
	pool := ok(a.pd.NewFastRegPool(2, roce.FastRegConfig{Pieces: 1}))(t)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()

	groups := map[string][]func(i int){
		"fast registration": {
			func(i int) { fast.Map(mem[i%2]) },
			func(i int) { fast.MapIova(iovas[i%2], mem[i%2]) },
			func(int) {
				fast.SGE(0, 8)
				fast.Addr()
				fast.Len()
				fast.LKey()
				fast.RKey()
				fast.Valid()
			},
			func(int) {
				inv, reg := fast.InvWR(), fast.RegWR(roce.LocalWrite)
				if fast.Valid() {
					fast.Invalidate()
				}
				a.qp.PostSend(&reg)
				_ = inv
				a.cq.Poll(make([]roce.WC, 8))
			},
		},
		"indirect region": {
			func(i int) {
				indirect.Map(roce.Layout{IOVA: iovas[i%2], Parts: []roce.Part{{MR: a.mr, Length: uint64(8 + i%2)}}})
			},
			func(int) { indirect.SGE(0, 8); indirect.Addr(); indirect.Len(); indirect.LKey(); indirect.Valid() },
			func(int) {
				indirect.Invalidate()
				reg := indirect.RegWR(roce.LocalWrite)
				a.qp.PostSend(&reg)
				a.cq.Poll(make([]roce.WC, 8))
			},
		},
		"region": {
			func(i int) {
				region.Reregister(
					roce.MRChange{Change: roce.ReregTranslation | roce.ReregAccess, Mem: mem[i%2], Access: roce.LocalWrite | roce.Watched*roce.Access(i%2)})
			},
			func(int) { region.Load64(8); region.ReadAt(make([]byte, 8), 0) },
			func(int) { region.Bytes(); region.SGE(0, 8); region.Len(); region.Addr(); region.Flushes() },
			func(int) { region.RKey(); region.LKey() },
		},
		"window": {
			func(int) {
				a.qp.BindMW(window, roce.Bind{MR: bound, Addr: bound.Addr(), Length: 8, Access: roce.RemoteRead})
				a.cq.Poll(make([]roce.WC, 8))
			},
			func(int) { window.RKey(); window.Type(); window.WR(roce.Bind{}) },
		},
		"completion queue": {
			func(i int) { cq.Resize(7 + 8*(i%2)) },
			func(int) { cq.Poll(make([]roce.WC, 2)) },
			func(int) { cq.Cap(); cq.UserData(); cq.Channel(); cq.RequestNotify(false); cq.Wait(cancelled) },
		},
		"shared receive queue": {
			func(i int) { srq.Modify(roce.SRQAttr{MaxWR: 7 + 8*(i%2)}, roce.SRQMaxWR) },
			func(int) { srq.PostRecv(&roce.RecvWR{}) },
			func(int) { srq.Len(); srq.Query(); srq.Num(); srq.PD(); srq.CQ() },
		},
		"queue pair": {
			func(i int) { a.qp.Modify(&roce.Attr{MinRNRTimer: 1}, qp.AttrMinRNRTimer) },
			func(int) { a.post(roce.Write, 0, 8, b, 0); a.cq.Poll(make([]roce.WC, 8)) },
			func(int) { a.qp.Query(); a.qp.State(); a.qp.Num(); a.qp.SendCQ(); a.qp.CancelRecv(1) },
		},
		"channel and pool": {
			func(int) { channel.TryNext(); channel.Next(cancelled) },
			func(int) {
				if m, err := pool.Get(); err == nil {
					m.Map(mem[0])
					pool.Put(m)
				}
			},
			func(int) {
				if m, err := pool.Wait(cancelled); err == nil {
					pool.Put(m)
				}
				pool.Len()
			},
		},
		"device": {
			func(int) {
				if q, err := a.pd.CreateQP(roce.QPConfig{SendCQ: a.cq}); err == nil {
					q.Close()
				}
			},
			func(int) { d.Query(); d.QueryPort(1); d.GIDs(); d.Counters(); d.RandomPSN() },
			func(int) {
				if m, err := a.pd.RegMR(make([]byte, 8), 0); err == nil {
					m.Close()
				}
			},
			func(int) { d.NextEvent(cancelled); d.Progress() },
		},
	}
	rounds := 100
	var wg sync.WaitGroup
	var calls atomic.Int64
	for _, methods := range groups {
		for _, f := range methods {
			wg.Go(func() {
				for i := range rounds {
					f(i)
					calls.Add(1)
				}
			})
		}
	}
	wg.Wait()
	if calls.Load() == 0 {
		t.Error("nothing was called")
	}
}
