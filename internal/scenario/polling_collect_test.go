package scenario_test

import (
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// collector is a front end that collects the posts of a program on b.
type collector struct {
	*program
	in    *roce.Collecting
	clock func() int64 // that of in.Until

	mu   sync.Mutex
	kept []roce.SendWR
	room int
	rang int    // how often Options.Collect was called
	last uint32 // in.On at the last of these calls
}

func newCollector(t *testing.T) *collector {
	n := newNetwork(t)
	c := n.config("10.0.0.2")
	f := &collector{}
	c.Lazy, c.Collect = true, func(in *roce.Collecting) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rang, f.last = f.rang+1, in.On.Load()
		f.handOver()
	}
	p := &program{t, newPeer(t, n.device("10.0.0.1"), 4096), newPeer(t, n.open(c), 4096)}
	connect(t, p.a, p.b)
	f.mu.Lock()
	defer f.mu.Unlock()
	in, now := p.b.cq.Collecting()
	began := time.Now()
	f.program, f.in, f.clock = p, in, func() int64 { return int64(now + time.Since(began)) }
	return f
}

// post collects a SEND of the byte i if it may, and otherwise posts it. It reports whether it was collected.
func (f *collector) post(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.b.buf[i] = byte(i)
	wr := *f.b.wr(roce.Send, i, 1, nil, 0)
	if f.in.On.Load() == 1 && f.room > 0 && (len(f.kept) > 0 || f.clock() < f.in.Until.Load()) {
		f.kept, f.room = append(f.kept, wr), f.room-1
		return true
	}
	f.handOver()
	f.postNow([]roce.SendWR{wr}, 1)
	return false
}

// handOver posts what was collected. The caller has locked f.mu.
func (f *collector) handOver() {
	if kept := f.kept; len(kept) > 0 {
		f.kept = nil
		f.postNow(kept, len(kept))
	}
}

func (f *collector) postNow(wrs []roce.SendWR, calls int) {
	n, room, err := f.b.qp.PostCollected(wrs, calls)
	if n != len(wrs) || err != nil {
		f.t.Errorf("%d of %d posted: %v", n, len(wrs), err)
	}
	f.room = room
}

// left returns how many more posts may be collected.
func (f *collector) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.room
}

// told returns how often Options.Collect was called, and On at the last time.
func (f *collector) told() (rang int, on uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rang, f.last
}

// poll is a poll of the program, which hands over first.
func (f *collector) poll(wcs []roce.WC) int {
	f.mu.Lock()
	f.handOver()
	f.mu.Unlock()
	return f.b.cq.Poll(wcs)
}

// polls polls until the program counts as polling, and the background goroutine pauses.
func (f *collector) polls() {
	var wcs [8]roce.WC
	for range 50 {
		f.poll(wcs[:])
		time.Sleep(50 * time.Microsecond)
	}
}

// begin makes a post n receives, and b poll and post once, so that b knows how many more posts it may collect.
func (f *collector) begin(n int) {
	for i := range n {
		f.a.recv(i, 1)
	}
	f.polls()
	f.post(0)
}

// got waits for the SEND of byte i at a.
func (f *collector) got(i int) {
	f.t.Helper()
	if wc := f.a.wait(); wc.ByteLen != 1 || f.a.buf[i] != byte(i) {
		f.t.Errorf("message %d: %v, byte %d", i, wc, f.a.buf[i])
	}
}

// A program that polls posts many times between two polls: posts are collected, and arrive in order.
func TestCollect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newCollector(t)
		if f.in.On.Load() != 0 {
			t.Error("it may collect before the program polls")
		}
		for i := range 200 {
			f.a.recv(i, 1)
		}
		collected := 0
		for i := range 200 {
			if i%20 == 0 {
				f.polls()
			}
			if f.post(i) {
				collected++
			}
		}
		f.polls()
		for i := range 200 {
			f.got(i)
		}
		if collected == 0 { // how many depends on when the background goroutine looks up
			t.Error("no post was collected")
		}
	})
}

// If the program polls no more, or waits, the front end is told soon, and may collect no more.
func TestCollectEnds(t *testing.T) {
	const soon = 3 * time.Millisecond // the gap after which it polls no more, and a tick
	for _, waits := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			f := newCollector(t)
			for i := range 3 {
				f.a.recv(i, 1)
			}
			f.polls()
			if f.in.On.Load() != 1 || f.post(0) || !f.post(1) {
				t.Fatal("the program polls, and cannot collect")
			}
			before, _ := f.told()
			began := time.Now()
			if waits {
				go f.b.cq.Wait(t.Context())
			}
			f.got(0)
			f.got(1)
			if d := time.Since(began); d > soon {
				t.Errorf("waits: %t: a collected post left after %v", waits, d)
			}
			if rang, on := f.told(); rang == before || on != 0 {
				t.Errorf("waits: %t: told %d times, when On was %d", waits, rang-before, on)
			}
			if f.in.On.Load() != 0 || f.post(2) {
				t.Errorf("waits: %t: it still collects", waits)
			}
			f.got(2)
		})
	}
}

// While a program polls, the background goroutine sleeps: nobody hands over but the program. A tick after its last poll the
// background goroutine does.
func TestCollectWhilePolling(t *testing.T) {
	const tick = time.Millisecond
	for phase := range 8 {
		bubble(t, func(t *testing.T) {
			f := newCollector(t)
			f.begin(2)
			before, _ := f.told()
			for end := time.Now().Add(100*time.Millisecond + time.Duration(phase)*tick/8); time.Now().Before(end); {
				f.polls()
			}
			if rang, _ := f.told(); rang != before {
				t.Errorf("told %d times while the program polls", rang-before)
			}
			if !f.post(1) {
				t.Fatal("the program polls, and cannot collect")
			}
			f.got(0)
			began := time.Now()
			f.got(1)
			if d := time.Since(began); d > tick {
				t.Errorf("the collected post left %v after the last poll", d)
			}
		})
	}
}

// Room is what the queue accepts; a program that posts singly gets none, and its posts leave at once.
func TestCollectRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newCollector(t)
		f.begin(100)
		_, caps := f.b.qp.Query()
		if room := f.left(); room != caps.MaxSendWR-1 {
			t.Errorf("room %d after a first post to a queue of %d", room, caps.MaxSendWR)
		}
		for i := 1; i < 100; i++ {
			f.post(i)
			f.polls()
		}
		if room := f.left(); room != 0 {
			t.Errorf("a program that posts singly may collect %d", room)
		}
		check(t, f.b.qp.Modify(&roce.Attr{State: roce.StateErr}, roce.AttrState))
		if _, room, err := f.b.qp.PostCollected([]roce.SendWR{*f.b.wr(roce.Send, 0, 1, nil, 0)}, 2); room != 0 || err != nil {
			t.Errorf("room %d in ERR: %v", room, err)
		}
	})
}

// A program that has not polled for some time, or that asks for an event, posts at once: its next poll may be far.
func TestCollectOnlySoonAfterPolls(t *testing.T) {
	const gap = 250 * time.Microsecond
	for pause := time.Duration(0); pause < time.Millisecond; pause += 50 * time.Microsecond {
		bubble(t, func(t *testing.T) {
			f := newCollector(t)
			f.begin(2)
			f.polls()
			time.Sleep(pause)
			began, allowed := time.Now(), f.in.On.Load() == 1
			collected := f.post(1)
			if since := pause + 50*time.Microsecond; allowed && collected != (since < gap) {
				t.Errorf("%v after a poll: collected: %t", since, collected)
			}
			f.got(0)
			f.got(1)
			if d := time.Since(began); d > 0 && !collected {
				t.Errorf("a post that was not collected took %v", d)
			}
		})
	}
	bubble(t, func(t *testing.T) {
		f := newCollector(t)
		f.a.recv(0, 1)
		f.a.recv(1, 1)
		f.polls()
		f.post(0)
		f.polls()
		channel := ok(f.b.dev.CreateCompChannel())(t)
		check(t, ok(f.b.dev.CreateCQWith(roce.CQConfig{Entries: 1, Channel: channel}))(t).RequestNotify(false))
		f.poll(make([]roce.WC, 8))
		if f.post(1) {
			t.Error("collected after a request for an event")
		}
		f.got(0)
		f.got(1)
	})
}
