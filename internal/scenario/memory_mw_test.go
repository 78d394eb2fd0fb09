package scenario_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// windowed is a peer with a region that windows may be bound to.
type windowed struct {
	*peer
	region *roce.MR
	mem    []byte
}

func newWindowed(t testing.TB, p *peer) *windowed {
	t.Helper()
	w := &windowed{peer: p, mem: make([]byte, 4096)}
	w.region = ok(p.pd.RegMR(w.mem, roce.LocalWrite|roce.MWBind))(t)
	return w
}

// windowedPair is two connected peers; the second has windows.
func windowedPair(t testing.TB) (a *peer, b *windowed) {
	x, y := newPair(t, 4096)
	return x, newWindowed(t, y)
}

// bind binds a window to the whole region and waits for that.
func (w *windowed) bind(mw *roce.MW) roce.RKey {
	w.t.Helper()
	key := ok(w.qp.BindMW(mw, roce.Bind{Flags: roce.Signaled, MR: w.region, Addr: w.region.Addr(), Length: 4096, Access: roce.RemoteWrite}))(w.t)
	if wc := w.wait(); wc.Opcode != cq.OpBindMW {
		w.t.Fatalf("completion %v", wc.Opcode)
	}
	return key
}

// write writes through a key and checks the status, and whether the data came.
func (w *windowed) write(from *peer, key roce.RKey, want cq.Status) {
	w.t.Helper()
	from.next++
	fill(from.buf[:64], int(from.next))
	clear(w.mem)
	check(w.t, from.qp.PostSend(&roce.SendWR{ID: from.next, Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{from.mr.SGE(0, 64)},
		RemoteAddr: w.region.Addr() + 8, RKey: key}))
	from.waitFor(want)
	if got := bytes.Equal(w.mem[8:72], from.buf[:64]); got != (want == cq.Success) {
		w.t.Fatalf("%v, but data written: %v", want, got)
	}
}

// restate brings two queue pairs from ERR back to RTS.
func restate(t testing.TB, a, b *peer) {
	t.Helper()
	for _, p := range []*peer{a, b} {
		check(t, p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
		drainCQ(p)
		check(t, p.qp.Init(roce.DefaultQPAccess, 0))
	}
	connect(t, a, b)
}

func drainCQ(p *peer) {
	var wc [16]roce.WC
	for p.cq.Poll(wc[:]) > 0 {
	}
}

// The tests of memory windows are those of rdma-core's test_mr.py, by name.

func TestMWType1(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := windowedPair(t)
		mw := ok(b.pd.AllocMW(roce.MWType1))(t)
		for range 3 { // binds again and again
			key := b.bind(mw)
			if key != mw.RKey() {
				t.Errorf("key %v, the window says %v", key, mw.RKey())
			}
			b.write(a, key, cq.Success)
		}
	})
}

func TestMWType1Invalidate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := windowedPair(t)
		mw := ok(b.pd.AllocMW(roce.MWType1))(t)
		key := b.bind(mw)
		b.write(a, key, cq.Success)
		wantErr(t, "region under a window", b.region.Close(), syscall.EBUSY)
		ok(b.qp.BindMW(mw, roce.Bind{Flags: roce.Signaled}))(t)
		b.wait()
		b.write(a, key, cq.RemAccessErr)
		check(t, b.region.Close())
	})
}

func TestMWType2(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := windowedPair(t)
		mw := ok(b.pd.AllocMW(roce.MWType2))(t)
		b.write(a, b.bind(mw), cq.Success)
		// Bound already: an error that does not change the window.
		key := mw.RKey()
		ok(b.qp.BindMW(mw, roce.Bind{Flags: roce.Signaled, MR: b.region, Addr: b.region.Addr(), Length: 1}))(t)
		b.waitFor(cq.MWBindErr)
		if b.qp.State() != qp.Err {
			t.Errorf("state %v", b.qp.State())
		}
		restate(t, a, b.peer)
		b.write(a, key, cq.RemAccessErr) // the reset freed it
	})
}

func TestMWType2InvalidateLocal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := windowedPair(t)
		key := b.bind(ok(b.pd.AllocMW(roce.MWType2))(t))
		b.write(a, key, cq.Success)
		check(t, b.qp.PostSend(&roce.SendWR{Opcode: roce.LocalInv, Flags: roce.Signaled, InvKey: key}))
		if wc := b.wait(); wc.Opcode != cq.OpLocalInv {
			t.Errorf("completion %v", wc.Opcode)
		}
		b.write(a, key, cq.RemAccessErr)
	})
}

func TestMWType2InvalidateRemote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := windowedPair(t)
		key := b.bind(ok(b.pd.AllocMW(roce.MWType2))(t))
		b.write(a, key, cq.Success)
		b.recv(0, 64)
		check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.SendInv, Flags: roce.Signaled, InvKey: key}))
		a.wait()
		if wc := b.wait(); wc.Flags&cq.WithInv == 0 || wc.InvKey != key {
			t.Errorf("completion %+v", wc)
		}
		b.write(a, key, cq.RemAccessErr)
	})
}

func TestMWType2InvalidateDealloc(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := windowedPair(t)
		mw := ok(b.pd.AllocMW(roce.MWType2))(t)
		key := b.bind(mw)
		b.write(a, key, cq.Success)
		check(t, mw.Close())
		wantErr(t, "twice", mw.Close(), roce.ErrClosed)
		b.write(a, key, cq.RemAccessErr)
		check(t, b.region.Close())
	})
}

// A type 2 window serves the queue pair it is bound on, a type 1 window all of
// its domain.
func TestMWOtherQP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for typ, want := range map[roce.MWType]cq.Status{roce.MWType1: cq.Success, roce.MWType2: cq.RemAccessErr} {
			n := newNetwork(t)
			a, c := newPeer(t, n.device("10.0.0.1"), 4096), newPeer(t, n.device("10.0.0.3"), 4096)
			b := newWindowed(t, newPeer(t, n.device("10.0.0.2"), 4096))
			connect(t, a, b.peer)
			second := *b.peer // another queue pair of the same domain
			second.cq = ok(b.dev.CreateCQ(16))(t)
			second.qp = ok(b.pd.CreateQP(roce.QPConfig{SendCQ: second.cq}))(t)
			check(t, second.qp.Init(roce.DefaultQPAccess, 0))
			connect(t, c, &second)
			key := b.bind(ok(b.pd.AllocMW(typ))(t))
			b.write(a, key, cq.Success)
			b.write(c, key, want)
		}
	})
}

// The SEND after a bind may contain the key at once.
func TestMWBindAndTell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := windowedPair(t)
		mw := ok(b.pd.AllocMW(roce.MWType2))(t)
		a.recv(0, 4)
		bind := mw.WR(roce.Bind{MR: b.region, Addr: b.region.Addr(), Length: 4096, Access: roce.RemoteWrite})
		b.post(roce.Send, 0, 0, nil, 0) // something outstanding before it
		a.recv(0, 4)
		ok(b.qp.PostSends([]roce.SendWR{bind, {Opcode: roce.SendImm, Imm: uint32(bind.RKey)}}))(t)
		a.wait()
		b.write(a, roce.RKey(a.wait().Imm), cq.Success)
	})
}

func TestMWErrno(t *testing.T) {
	n := newNetwork(t)
	d, other := n.device("10.0.0.1"), n.device("10.0.0.2")
	pd := d.AllocPD()
	alloc := func(typ roce.MWType) func() error { return func() error { return second(pd.AllocMW(typ)) } }
	runErrnoRows(t, "alloc_mw", []errnoRow{
		{"type 1", alloc(roce.MWType1), none},
		{"type 2", alloc(roce.MWType2), none},
		{"type 3", alloc(3), syscall.EINVAL},
		{"type 0", alloc(0), syscall.EINVAL},
		{"dealloc_pd with a window", pd.Close, syscall.EBUSY},
	})
	p := newPeer(t, d, 64)
	connect(t, p, p)
	mw, foreign := ok(p.pd.AllocMW(roce.MWType1))(t), ok(other.AllocPD().AllocMW(roce.MWType1))(t)
	post := func(w *roce.MW, b roce.Bind) func() error { return func() error { return second(p.qp.BindMW(w, b)) } }
	runErrnoRows(t, "bind_mw", []errnoRow{
		{"unbind", post(mw, roce.Bind{}), none},
		{"without a region", post(mw, roce.Bind{Length: 8}), syscall.EINVAL},
		{"key of another", post(mw, roce.Bind{Key: mw.RKey() ^ 0x100}), syscall.EINVAL},
		{"fast registration without memory", func() error {
			m := ok(p.pd.AllocFastReg(roce.FastRegConfig{Pieces: 1}))(t)
			return m.Map()
		}, syscall.EINVAL},
	})
	check(t, second(p.qp.BindMW(foreign, roce.Bind{}))) // accepted, fails later
	p.waitFor(cq.MWBindErr)
}

// Windows, regions, queue pairs and domains can be closed in any order; closing an object in use fails with EBUSY.
func TestMWTeardown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, b := windowedPair(t)
		mw := ok(b.pd.AllocMW(roce.MWType2))(t)
		b.bind(mw)
		wantErr(t, "domain", b.pd.Close(), syscall.EBUSY)
		wantErr(t, "region", b.region.Close(), syscall.EBUSY)
		check(t, b.qp.Close()) // takes the window off the region
		check(t, b.region.Close())
		wantErr(t, "domain with a window", b.pd.Close(), syscall.EBUSY)
		check(t, mw.Close())
		check(t, b.mr.Close())
		check(t, b.pd.Close())

		_, c := windowedPair(t)
		mw = ok(c.pd.AllocMW(roce.MWType2))(t)
		c.bind(mw)
		check(t, mw.Close()) // takes it off the queue pair
		check(t, c.qp.Close())
		check(t, c.region.Close())

		_, e := windowedPair(t)
		mw = ok(e.pd.AllocMW(roce.MWType1))(t)
		e.bind(mw)
		check(t, e.dev.Close())
		check(t, mw.Close())
		check(t, e.region.Close())
		if _, err := e.pd.AllocMW(roce.MWType1); !errors.Is(err, roce.ErrClosed) {
			t.Errorf("window on a closed device: %v", err)
		}
	})
}

// TestMWShards: one of two shards of a device binds, registers and invalidates all the time while peers access memory
// through the other. After a key is invalidated only the owner may access the memory: the test finds late data, and the
// race detector finds the race.
func TestMWShards(t *testing.T) {
	n := newNetwork(t)
	db := n.open(n.multi("10.0.0.2", 2, destQPN))
	writer := newPeer(t, n.device("10.0.0.1"), 64)
	inlet := newPeerOn(t, db, 0, 64) // where the writes come in
	binder := *inlet                 // the same domain, on the other shard
	binder.cq = ok(db.CreateCQWith(roce.CQConfig{Entries: 64, Shard: 1}))(t)
	binder.qp = ok(inlet.pd.CreateQP(roce.QPConfig{SendCQ: binder.cq}))(t)
	check(t, binder.qp.Init(roce.DefaultQPAccess, 0))
	connect(t, writer, inlet)
	connect(t, &binder, &binder)

	mem := make([]byte, 4096)
	region := ok(inlet.pd.RegMR(mem, roce.LocalWrite|roce.MWBind))(t)
	mw := ok(inlet.pd.AllocMW(roce.MWType1))(t)
	fast := ok(inlet.pd.AllocFastReg(roce.FastRegConfig{Pieces: 2}))(t)
	check(t, fast.Map(mem[:2000], mem[2000:]))

	var key atomic.Uint32
	var stop atomic.Bool
	var got atomic.Int64
	var wg sync.WaitGroup
	addr := region.Addr()
	wg.Go(func() {
		for !stop.Load() {
			k := roce.RKey(key.Load())
			if k == 0 {
				runtime.Gosched()
				continue
			}
			writer.next++
			if writer.qp.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{writer.mr.SGE(0, 64)}, RemoteAddr: addr + 1990, RKey: k}) != nil {
				t.Error("post failed")
				return
			}
			wc, err := writer.cq.Next(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			switch wc.Status {
			case cq.Success:
				got.Add(1)
			case cq.RemAccessErr: // the key went away; a new connection
				restate(t, writer, inlet)
			default:
				t.Errorf("status %v", wc.Status)
				return
			}
		}
	})
	do := func(wr roce.SendWR) {
		wr.Flags = roce.Signaled
		check(t, binder.qp.PostSend(&wr))
		binder.wait()
	}
	for round := range 40 {
		if round%2 == 0 {
			do(mw.WR(roce.Bind{MR: region, Addr: addr, Length: 4096, Access: roce.RemoteWrite}))
			key.Store(uint32(mw.RKey()))
		} else {
			do(fast.RegWR(roce.LocalWrite | roce.RemoteWrite))
			key.Store(uint32(fast.RKey()))
		}
		before := got.Load()
		for i := 0; got.Load() == before && i < 10_000; i++ {
			runtime.Gosched()
		}
		if round%2 == 0 {
			do(mw.WR(roce.Bind{}))
		} else {
			do(fast.InvWR())
		}
		fill(mem, round)
		do(roce.SendWR{Opcode: roce.Write})
		want := make([]byte, len(mem))
		fill(want, round)
		if !bytes.Equal(mem, want) {
			t.Fatal(fmt.Errorf("round %d: memory changed after its key was gone", round))
		}
	}
	stop.Store(true)
	wg.Wait()
	if got.Load() == 0 {
		t.Error("no write got through")
	}
}
