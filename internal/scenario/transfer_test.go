package scenario_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/qp"
)

// modes runs a test with two connected peers in every way a device can be
// driven. next takes a completion of a peer.
func modes(t *testing.T, size int, f func(t *testing.T, a, b *peer, next func(*peer) roce.WC)) {
	pair := func(t *testing.T, polled, bare bool) (a, b *peer) {
		n := newNetworkOf(t, mem.Config{MTU: 4200, Backpressure: true}) // nothing is lost
		n.bare = bare
		open := func(addr string) *roce.Device {
			c := n.config(addr)
			c.Polled = polled
			return n.open(c)
		}
		a, b = newPeer(t, open("10.0.0.1"), size), newPeer(t, open("10.0.0.2"), size)
		connect(t, a, b)
		return a, b
	}
	run := func(name string, polled, bare bool, f func(t *testing.T, a, b *peer)) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b := pair(t, polled, bare)
				f(t, a, b)
			})
		})
	}
	run("background", false, false, func(t *testing.T, a, b *peer) {
		f(t, a, b, func(p *peer) roce.WC { return p.wait() })
	})
	run("headers of the kernel's", false, true, func(t *testing.T, a, b *peer) {
		f(t, a, b, func(p *peer) roce.WC { return p.wait() })
	})
	run("polled by one goroutine", true, false, func(t *testing.T, a, b *peer) {
		f(t, a, b, func(p *peer) roce.WC { return alternate(t, p, a, b) })
	})
	run("polled by two goroutines", true, false, func(t *testing.T, a, b *peer) {
		keepBusy(t, a.dev, b.dev)
		f(t, a, b, func(p *peer) roce.WC { return p.wait() })
	})
}

// alternate drives two devices in turn until p has a completion.
func alternate(t *testing.T, p, a, b *peer) roce.WC {
	t.Helper()
	var wc [1]roce.WC
	for range 100_000 {
		if p.cq.Poll(wc[:]) == 1 {
			if wc[0].Status != cq.Success {
				t.Fatalf("completion %+v", wc[0])
			}
			return wc[0]
		}
		if x, y := a.dev.Progress(), b.dev.Progress(); !x && !y {
			time.Sleep(100 * time.Microsecond) // both devices wait for a timer
		}
	}
	t.Fatal("no completion")
	return wc[0]
}

func TestOperations(t *testing.T) {
	modes(t, 10_000, func(t *testing.T, a, b *peer, next func(*peer) roce.WC) {
		done := func(p *peer, opcode cq.Opcode, n uint32) roce.WC {
			t.Helper()
			wc := next(p)
			if wc.Opcode != opcode || wc.ByteLen != n || wc.QPN != p.qp.Num() {
				t.Errorf("completion %+v, want %v of %d bytes", wc, opcode, n)
			}
			return wc
		}
		same := func(what string, x, y []byte) {
			t.Helper()
			if !bytes.Equal(x, y) {
				t.Errorf("%s: the data differs", what)
			}
		}
		fill(a.buf, 1)

		b.recv(0, 10_000)
		a.post(roce.Send, 0, 10_000, nil, 0)
		done(b, cq.OpRecv, 10_000)
		done(a, cq.OpSend, 10_000)
		same("SEND", a.buf, b.buf)

		b.recv(100, 10)
		wr := a.wr(roce.SendImm, 0, 5, nil, 0)
		wr.Imm = 0xC0FFEE
		check(t, a.qp.PostSend(wr))
		if wc := done(b, cq.OpRecv, 5); wc.Flags != cq.WithImm || wc.Imm != 0xC0FFEE {
			t.Errorf("completion %+v, want immediate data", wc)
		}
		done(a, cq.OpSend, 5)

		b.recv(0, 0)
		wr = a.wr(roce.WriteImm, 1000, 9000, b, 500)
		wr.Imm = 7
		check(t, a.qp.PostSend(wr))
		if wc := done(b, cq.OpRecvRDMAWithImm, 9000); wc.Imm != 7 {
			t.Errorf("completion %+v, want immediate data", wc)
		}
		done(a, cq.OpRDMAWrite, 9000)
		same("WRITE", a.buf[1000:10_000], b.buf[500:9500])

		fill(b.buf, 99)
		a.post(roce.Read, 0, 9999, b, 1)
		done(a, cq.OpRDMARead, 9999)
		same("READ", a.buf[:9999], b.buf[1:])

		at := func(p *peer) uint64 { return binary.NativeEndian.Uint64(p.buf) }
		was := at(b)
		wr = a.wr(roce.FetchAdd, 8, 8, b, 0)
		wr.CompareAdd = 5
		check(t, a.qp.PostSend(wr))
		done(a, cq.OpFetchAdd, 8)
		if got := binary.NativeEndian.Uint64(a.buf[8:]); got != was || at(b) != was+5 {
			t.Errorf("FETCH_ADD: was %#x, is %#x, told %#x", was, at(b), got)
		}
		wr = a.wr(roce.CompareSwap, 8, 8, b, 0)
		wr.CompareAdd, wr.Swap = was+5, 42
		check(t, a.qp.PostSend(wr))
		done(a, cq.OpCompSwap, 8)
		if at(b) != 42 {
			t.Errorf("COMPARE_SWAP: is %#x, want 42", at(b))
		}

		b.recv(0, 8)
		check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("inline"), Flags: roce.Signaled}))
		done(b, cq.OpRecv, 6)
		done(a, cq.OpSend, 6)
		same("inline SEND", []byte("inline"), b.buf[:6])
	})
}

// TestBothWays moves much data in both directions at once, by each operation.
func TestBothWays(t *testing.T) {
	const size = 4 << 20
	modes(t, 2*size, func(t *testing.T, a, b *peer, next func(*peer) roce.WC) {
		// The first half is written or sent, the second received into.
		fill(a.buf[:size], 1)
		fill(b.buf[:size], 2)
		start := time.Now()
		for _, op := range []roce.Opcode{roce.Write, roce.Read, roce.Send} {
			clear(a.buf[size:])
			clear(b.buf[size:])
			sends := 1
			if op == roce.Send {
				a.recv(size, size)
				b.recv(size, size)
				sends = 2
			}
			mine, yours := 0, size
			if op == roce.Read {
				mine, yours = size, 0
			}
			a.post(op, mine, size, b, yours)
			b.post(op, mine, size, a, yours)
			for range sends {
				next(a)
				next(b)
			}
			if !bytes.Equal(a.buf[:size], b.buf[size:]) || !bytes.Equal(b.buf[:size], a.buf[size:]) {
				t.Errorf("%v: the data differs", op)
			}
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("took %v: something waited for a timer", took)
		}
	})
}

// TestManyWRs keeps a queue full of small and large messages.
func TestManyWRs(t *testing.T) {
	modes(t, 1<<16, func(t *testing.T, a, b *peer, next func(*peer) roce.WC) {
		fill(a.buf, 3)
		const total, depth = 2000, 200
		for range depth {
			b.recv(0, 1<<16)
		}
		posted, done := 0, 0
		for done < total {
			for posted < total && posted < done+depth {
				a.post(roce.Send, 0, posted*37%20000, nil, 0)
				posted++
			}
			wc := next(b)
			if want := done * 37 % 20000; int(wc.ByteLen) != want {
				t.Fatalf("message %d has %d bytes, want %d", done, wc.ByteLen, want)
			}
			next(a)
			if done++; posted < total {
				b.recv(0, 1<<16)
			}
		}
	})
}

// TestProgressIsBounded: a device that has much to send, like the answer to a large READ, does other work in between.
func TestProgressIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const size = 4 << 20
		n := newNetworkOf(t, mem.Config{MTU: 4200, Queue: 1 << 12})
		config := n.config("10.0.0.1")
		config.Polled = true
		a, b := newPeer(t, n.open(config), size), newPeer(t, n.device("10.0.0.2"), size)
		connect(t, a, b)
		b.post(roce.Read, 0, size, a, 0)
		synctest.Wait()
		for sent := uint64(0); sent < size/4096; {
			synctest.Wait() // the peer asks for a READ piece by piece
			a.dev.Progress()
			now := a.dev.Counters().SentPkts
			if now == sent || now-sent > 2*qp.DefaultWindow {
				t.Fatalf("one Progress sent %d packets, want some but not many", now-sent)
			}
			sent = now
		}
		b.wait()
	})
}

// TestManyQPs connects a thousand pairs between two devices and lets all of
// them send both ways at once.
func TestManyQPs(t *testing.T) {
	const pairs, size = 1000, 5000
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		da, db := n.device("10.0.0.1"), n.device("10.0.0.2")
		seen := map[roce.QPN]bool{}
		var as, bs []*peer
		for i := range pairs {
			a, b := newPeer(t, da, size), newPeer(t, db, 2*size)
			connect(t, a, b)
			fill(a.buf, i)
			if seen[a.qp.Num()] {
				t.Fatalf("QPN %v is used twice", a.qp.Num())
			}
			seen[a.qp.Num()] = true
			as, bs = append(as, a), append(bs, b)
		}
		for i, a := range as {
			a.post(roce.Write, 0, size, bs[i], 0)
			bs[i].post(roce.Read, size, size, a, 0)
		}
		for i, a := range as {
			b := bs[i]
			a.wait()
			b.wait()
			if !bytes.Equal(a.buf, b.buf[:size]) || !bytes.Equal(a.buf, b.buf[size:]) {
				t.Fatalf("pair %d: the data differs", i)
			}
		}
		for _, a := range as {
			check(t, a.qp.Close())
		}
		bs[0].post(roce.Write, 0, 1, as[0], 0)
		bs[0].waitFor(cq.RetryExcErr)
		if c := da.Counters(); c.Drops.NoQP == 0 {
			t.Errorf("no packet was counted for a closed queue pair")
		}
	})
}

// TestFullPort: ports with tiny queues slow transfers down but stop none, whether they refuse packets or drop them.
func TestFullPort(t *testing.T) {
	for _, test := range []struct {
		config mem.Config
		size   int
	}{
		{mem.Config{MTU: 4200, Queue: 1, Backpressure: true}, 1 << 20},
		{mem.Config{MTU: 4200, Queue: 10, Backpressure: true}, 1 << 20},
		{mem.Config{MTU: 1500, Queue: 64, Backpressure: true}, 1 << 20},
		{mem.Config{MTU: 4200, Queue: 200}, 1 << 20},
	} {
		t.Run(fmt.Sprintf("%+v", test.config), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetworkOf(t, test.config)
				da, db := n.device("10.0.0.1"), n.device("10.0.0.2")
				const pairs = 4
				var as, bs []*peer
				for i := range pairs {
					a, b := newPeer(t, da, test.size), newPeer(t, db, 2*test.size)
					connect(t, a, b)
					fill(a.buf, i)
					as, bs = append(as, a), append(bs, b)
				}
				for i, a := range as {
					a.post(roce.Write, 0, test.size, bs[i], 0)
					bs[i].post(roce.Read, test.size, test.size, a, 0)
				}
				for i, a := range as {
					a.wait()
					bs[i].wait()
					if !bytes.Equal(a.buf, bs[i].buf[:test.size]) || !bytes.Equal(a.buf, bs[i].buf[test.size:]) {
						t.Fatalf("pair %d: the data differs", i)
					}
				}
				if c := da.Counters(); test.config.Backpressure && c.RetransPkts > 0 {
					t.Errorf("%d packets were sent again, though none was lost", c.RetransPkts)
				}
			})
		})
	}
}

// TestRecognised: both ends match frames of a known flow by their headers.
func TestRecognised(t *testing.T) {
	l := newLoad(t, true, 64)
	wr, _ := sends(l.a, 64)
	wr.Flags = roce.Signaled
	_, recv := sends(l.b, 64)
	l.stream(wr, recv, 100, 16)
	for end, p := range map[string]*peer{"the sender": l.a, "the receiver": l.b} {
		if inside.NIC(p.dev).MatchedFrames() == 0 {
			t.Errorf("%s recognises nothing", end)
		}
	}
}
