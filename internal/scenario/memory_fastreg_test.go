package scenario_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// TestFastRegCycle: a region is registered, used, invalidated by the peer or locally, and registered again with other
// memory, each time with another key.
func TestFastRegCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		client, server := newPair(t, 4096)
		m := ok(client.pd.AllocFastReg(roce.FastRegConfig{Pieces: 8}))(t)
		seen := map[roce.RKey]bool{}
		for round := range 20 {
			mem := make([]byte, 3000)
			check(t, m.Map(mem[2000:], mem[:500], mem[500:2000]))
			reg := m.RegWR(roce.LocalWrite | roce.RemoteWrite)
			server.recv(0, 0)
			ok(client.qp.PostSends([]roce.SendWR{reg, {Opcode: roce.SendImm, Imm: uint32(reg.RKey)}}))(t)
			key := roce.RKey(server.wait().Imm)
			if seen[key] || !m.Valid() || key != m.RKey() {
				t.Fatalf("round %d: key %v, seen before: %v", round, key, seen[key])
			}
			seen[key] = true
			fill(server.buf[:3000], round)
			client.recv(0, 0)
			answer := roce.SendWR{Opcode: roce.SendInv, InvKey: key}
			if round%2 == 0 {
				answer = roce.SendWR{Opcode: roce.Send}
			}
			ok(server.qp.PostSends([]roce.SendWR{{Opcode: roce.Write, SG: []roce.SGE{server.mr.SGE(0, 3000)}, RemoteAddr: m.Addr(), RKey: key}, answer}))(t)
			client.wait()
			if round%2 == 0 {
				inv := m.InvWR()
				inv.Flags = roce.Signaled
				check(t, client.qp.PostSend(&inv))
				client.wait()
			}
			if m.Valid() {
				t.Fatal("still valid")
			}
			if got := append(bytes.Clone(mem[2000:]), mem[:2000]...); !bytes.Equal(got, server.buf[:3000]) {
				t.Fatalf("round %d: wrong data", round)
			}
		}
		// The last key is invalid.
		check(t, server.qp.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{server.mr.SGE(0, 8)}, RemoteAddr: m.Addr(), RKey: m.RKey()}))
		server.waitFor(cq.RemAccessErr)
		check(t, m.Close())
		wantErr(t, "twice", m.Close(), roce.ErrClosed)
	})
}

// TestFastRegPageList: with a page size the list follows the rules of adapters.
func TestFastRegPageList(t *testing.T) {
	n := newNetwork(t)
	pd := n.device("10.0.0.1").AllocPD()
	m := ok(pd.AllocFastReg(roce.FastRegConfig{Pieces: 4, PageSize: 4096}))(t)
	mem := make([]byte, 5*4096)
	check(t, m.Map(mem[:3*4096])) // in one piece from anywhere, 4 pages at most
	wantErr(t, "a gap", m.Map(mem[:4095], mem[4096:4200]), syscall.EINVAL)
	wantErr(t, "too many pages", m.Map(mem), syscall.EINVAL)
	if _, err := pd.AllocFastReg(roce.FastRegConfig{Pieces: 4, PageSize: 1000}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("page size 1000: %v", err)
	}
	if max := pd.Device().Query().MaxFastReg; max > 0 {
		_, err := pd.AllocFastReg(roce.FastRegConfig{Pieces: max + 1})
		wantErr(t, "more than the device has", err, syscall.EINVAL)
	}
}

func TestFastRegPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		client, server := newPair(t, 4096)
		pool := ok(client.pd.NewFastRegPool(2, roce.FastRegConfig{Pieces: 4}))(t)
		a, b := ok(pool.Get())(t), ok(pool.Get())(t)
		if a == b || pool.Len() != 0 || pool.Cap() != 2 {
			t.Errorf("%d of %d are in", pool.Len(), pool.Cap())
		}
		_, err := pool.Get()
		wantErr(t, "empty", err, roce.ErrPoolEmpty)
		wantErr(t, "empty", err, syscall.EAGAIN)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = pool.Wait(ctx)
		wantErr(t, "empty, and no patience", err, context.Canceled)
		wantErr(t, "close", pool.Close(), syscall.EBUSY)
		wantErr(t, "close one", a.Close(), syscall.EBUSY)
		wantErr(t, "put nothing", pool.Put(nil), syscall.EINVAL)
		alien := ok(client.pd.AllocFastReg(roce.FastRegConfig{Pieces: 4}))(t)
		wantErr(t, "put another's", pool.Put(alien), syscall.EINVAL)
		check(t, pool.Put(b))
		wantErr(t, "put twice", pool.Put(b), syscall.EINVAL)
		b = ok(pool.Get())(t)

		// A registration that was not invalidated loses its key, too.
		check(t, a.Map(client.buf[:64]))
		reg := a.RegWR(roce.LocalWrite | roce.RemoteWrite)
		reg.Flags = roce.Signaled
		check(t, client.qp.PostSend(&reg))
		client.wait()
		key, addr := a.RKey(), a.Addr()
		got := make(chan *roce.FastMR)
		go func() { got <- ok(pool.Wait(context.Background()))(t) }()
		check(t, pool.Put(a))
		if m := <-got; m != a || m.Valid() || m.RKey() == key {
			t.Errorf("Wait returned another region, or one that is valid (%v) or has the old key (%v)", m.Valid(), m.RKey())
		}
		check(t, server.qp.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{server.mr.SGE(0, 8)}, RemoteAddr: addr, RKey: key}))
		server.waitFor(cq.RemAccessErr)

		check(t, pool.Put(a))
		check(t, pool.Put(b))
		check(t, pool.Close())
		wantErr(t, "close twice", pool.Close(), roce.ErrClosed)
		_, err = pool.Get()
		wantErr(t, "get from a closed one", err, roce.ErrClosed)
		_, err = pool.Wait(context.Background())
		wantErr(t, "wait for a closed one", err, roce.ErrClosed)
		check(t, alien.Close())
		check(t, client.qp.Close())
		check(t, client.mr.Close())
		check(t, client.pd.Close())

		_, err = server.pd.NewFastRegPool(0, roce.FastRegConfig{Pieces: 1})
		wantErr(t, "pool of none", err, syscall.EINVAL)
		_, err = server.pd.NewFastRegPool(3, roce.FastRegConfig{})
		wantErr(t, "pool of regions without pieces", err, syscall.EINVAL)
	})
}

// A window that is bound to a registration keeps it out of the pool.
func TestFastRegPoolBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, _ := newPair(t, 4096)
		pool := ok(p.pd.NewFastRegPool(1, roce.FastRegConfig{Pieces: 1}))(t)
		m, mw := ok(pool.Get())(t), ok(p.pd.AllocMW(roce.MWType1))(t)
		check(t, m.Map(p.buf))
		reg := m.RegWR(roce.LocalWrite | roce.MWBind)
		ok(p.qp.PostSends([]roce.SendWR{reg}))(t)
		ok(p.qp.BindMW(mw, roce.Bind{Flags: roce.Signaled, MR: m, Addr: m.Addr(), Length: 8, Access: roce.RemoteRead}))(t)
		p.wait()
		wantErr(t, "under a window", pool.Put(m), syscall.EBUSY)
		check(t, mw.Close())
		check(t, pool.Put(m))
		check(t, pool.Close())
	})
}

// Many goroutines get, register and put at once.
func TestFastRegPoolConcurrent(t *testing.T) {
	n := newNetwork(t)
	d := n.device("10.0.0.1")
	pd := d.AllocPD()
	pool := ok(pd.NewFastRegPool(3, roce.FastRegConfig{Pieces: 2}))(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			q := newPeer(t, d, 64)
			cq := ok(d.CreateCQ(16))(t)
			mine := ok(pd.CreateQP(roce.QPConfig{SendCQ: cq}))(t)
			check(t, mine.Init(roce.DefaultQPAccess, 0))
			q.qp, q.cq = mine, cq
			connect(t, q, q)
			mem := make([]byte, 100)
			for round := range 30 {
				m := ok(pool.Wait(t.Context()))(t)
				check(t, m.Map(mem[:50], mem[50:]))
				reg := m.RegWR(roce.LocalWrite)
				inv := roce.SendWR{Opcode: roce.LocalInv, Flags: roce.Signaled, InvKey: reg.RKey}
				if round%4 == i%4 {
					reg.Flags = roce.Signaled
					check(t, mine.PostSend(&reg)) // and not invalidated
				} else {
					ok(mine.PostSends([]roce.SendWR{reg, inv}))(t)
				}
				q.wait()
				check(t, pool.Put(m))
			}
		})
	}
	wg.Wait()
	if pool.Len() != 3 {
		t.Errorf("%d are in", pool.Len())
	}
	check(t, pool.Close())
}

// TestFastRegFlush: if the queue pair fails, a registration may or may not have been executed; Put handles both cases.
func TestFastRegFlush(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, _ := newPair(t, 4096)
		pool := ok(p.pd.NewFastRegPool(1, roce.FastRegConfig{Pieces: 1}))(t)
		m := ok(pool.Get())(t)
		check(t, m.Map(p.buf))
		check(t, p.qp.Modify(&roce.Attr{State: qp.Err}, qp.AttrState))
		reg := m.RegWR(roce.LocalWrite)
		check(t, p.qp.PostSend(&reg))
		p.waitFor(cq.WRFlushErr)
		if m.Valid() {
			t.Error("registered in ERR")
		}
		check(t, pool.Put(m))
		check(t, pool.Close())
	})
}
