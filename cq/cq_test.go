package cq

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/goroce/roce/errs"
)

func mustNew(t testing.TB, n int, o Options) *CQ {
	t.Helper()
	c, err := New(n, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func push(c *CQ, ids ...uint64) (ok bool) {
	for _, id := range ids {
		ok = c.Push(&WC{ID: id}, false)
	}
	return ok
}

func poll(c *CQ, n int) (ids []uint64) {
	wc := make([]WC, n)
	for _, w := range wc[:c.Poll(wc)] {
		ids = append(ids, w.ID)
	}
	return ids
}

func TestNew(t *testing.T) {
	for _, tt := range []struct {
		entries, cap int
		want         error
	}{
		{1, 1, nil}, {2, 2, nil}, {3, 4, nil}, {4, 4, nil}, {5, 8, nil}, {10, 16, nil}, {100, 128, nil}, {128, 128, nil}, {129, 256, nil},
		{1000, 1024, nil}, {0, 0, syscall.EINVAL}, {-1, 0, syscall.EINVAL}, {MaxEntries + 1, 0, syscall.EINVAL},
	} {
		c, err := New(tt.entries, Options{})
		var e *errs.Error
		if !errors.Is(err, tt.want) || (err != nil && !errors.As(err, &e)) {
			t.Errorf("New(%d): %v, want %v", tt.entries, err, tt.want)
		}
		if err == nil && c.Cap() != tt.cap {
			t.Errorf("New(%d).Cap() = %d, want %d", tt.entries, c.Cap(), tt.cap)
		}
	}
	if c := mustNew(t, MaxEntries, Options{}); c.Cap() != MaxEntries {
		t.Errorf("largest queue: %d entries", c.Cap())
	}
}

func TestOrderAcrossTheEnd(t *testing.T) {
	c := mustNew(t, 7, Options{})
	next, want := uint64(0), uint64(0)
	for round := range 50 {
		for range round%7 + 1 {
			if push(c, next) {
				next++
			}
		}
		for _, id := range poll(c, round%5+1) {
			if id != want {
				t.Fatalf("round %d: got %d, want %d", round, id, want)
			}
			want++
		}
		if got := c.Len(); got != int(next-want) {
			t.Fatalf("round %d: Len %d, want %d", round, got, next-want)
		}
	}
	if n := c.Poll(nil); n != 0 {
		t.Errorf("Poll(nil) = %d", n)
	}
}

func TestOverflow(t *testing.T) {
	events := 0
	c := mustNew(t, 4, Options{Overflow: func() { events++ }})
	for i := range uint64(8) {
		if ok := push(c, i); ok != (i < 4) {
			t.Errorf("push %d: %v", i, ok)
		}
	}
	if events != 4 || c.Dropped() != 4 {
		t.Errorf("%d events and %d dropped, want one for each of 4", events, c.Dropped())
	}
	if got := fmt.Sprint(poll(c, 10)); got != "[0 1 2 3]" {
		t.Errorf("kept %v, want the four before the overflow", got)
	}
	if !push(c, 9) || events != 4 {
		t.Error("the queue does not work after an overflow")
	}
	if got := fmt.Sprint(poll(c, 10)); got != "[9]" {
		t.Errorf("after the overflow: %v", got)
	}
}

// TestNext: Next returns a zero entry, whatever the slot held. Before Publish, the entry is neither polled nor
// counted as lost. An entry for a full queue is lost.
func TestNext(t *testing.T) {
	lost := 0
	c := mustNew(t, 4, Options{Overflow: func() { lost++ }})
	garbage := WC{ID: 1, Status: RetryExcErr, Opcode: OpRecv, Flags: WithImm, QPN: 2, SrcQPN: 3, ByteLen: 4, Imm: 5, InvKey: 6, VendorErr: 7}
	for range 3 * pageLen {
		for c.Push(&garbage, false) {
		}
		if w := c.Next(); *w != (WC{}) {
			t.Fatalf("the entry for a full queue is %+v", *w)
		} else if *w = garbage; c.Publish(w, false) {
			t.Fatal("a queue of four took a fifth entry")
		}
		poll(c, 3)
		before := lost
		if w := c.Next(); *w != (WC{}) || c.Next() != w || c.Len() != 1 || lost != before {
			t.Fatalf("the next one is %+v, %d wait, %d were lost", *w, c.Len(), lost-before)
		} else if w.ID = 9; !c.Publish(w, false) || c.Len() != 2 {
			t.Fatal("it was not published")
		}
		if got := fmt.Sprint(poll(c, 4)); got != "[1 9]" {
			t.Fatalf("polled %s", got)
		}
	}
	if lost != 6*pageLen || c.Dropped() != uint64(lost) {
		t.Errorf("%d were lost, %d counted; %d should be", lost, c.Dropped(), 6*pageLen)
	}
}

func TestArm(t *testing.T) {
	type step struct {
		arm       string // "", "next", "solicited"
		status    Status
		solicited bool
		events    int // raised by the push
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"not armed", []step{{events: 0}}},
		{"next, once", []step{{arm: "next", events: 1}, {events: 0}}},
		{"next, armed again", []step{{arm: "next", events: 1}, {arm: "next", events: 1}}},
		{"solicited waits", []step{{arm: "solicited"}, {}, {solicited: true, events: 1}, {solicited: true}}},
		{"solicited takes an error", []step{{arm: "solicited"}, {status: RetryExcErr, events: 1}, {}}},
		{"solicited takes a flush", []step{{arm: "solicited"}, {status: WRFlushErr, events: 1}}},
		{"next takes an error", []step{{arm: "next", status: RemOpErr, events: 1}}},
		{"next then solicited: either", []step{{arm: "next+solicited", events: 1}, {solicited: true}}},
		{"solicited then next: either", []step{{arm: "solicited+next", events: 1}, {solicited: true}}},
		{"twice gives one event", []step{{arm: "next+next", events: 1}, {}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := 0
			c := mustNew(t, 15, Options{Notify: func(Client) { events++ }})
			push(c, 1) // before arming: raises nothing
			for i, s := range tt.steps {
				switch s.arm {
				case "next", "solicited":
					c.Arm(Waiter, s.arm == "solicited")
				case "next+solicited", "solicited+next", "next+next":
					c.Arm(Waiter, s.arm[0] == 's')
					c.Arm(Waiter, s.arm == "next+solicited")
				}
				events = 0
				c.Push(&WC{Status: s.status}, s.solicited)
				if events != s.events {
					t.Errorf("step %d: %d events, want %d", i, events, s.events)
				}
			}
		})
	}
	t.Run("no hook", func(t *testing.T) {
		c := mustNew(t, 1, Options{})
		c.Arm(Waiter, false)
		push(c, 1, 2)
	})
	t.Run("an overflow is no completion", func(t *testing.T) {
		events := 0
		c := mustNew(t, 1, Options{Notify: func(Client) { events++ }})
		push(c, 1)
		c.Arm(Waiter, false)
		push(c, 2)
		if events != 0 {
			t.Error("notified of a dropped completion")
		}
	})
}

func TestResize(t *testing.T) {
	c := mustNew(t, 16, Options{})
	push(c, 0, 1, 2, 3, 4, 5)
	poll(c, 4)
	push(c, 6, 7, 8)
	for _, tt := range []struct {
		entries, cap int
		want         error
	}{
		{0, 16, syscall.EINVAL}, {-5, 16, syscall.EINVAL}, {MaxEntries + 1, 16, syscall.EINVAL},
		{4, 16, syscall.EINVAL}, // five entries are queued
		{5, 8, nil}, {1000, 1024, nil}, {10, 16, nil},
	} {
		if err := c.Resize(tt.entries); !errors.Is(err, tt.want) {
			t.Errorf("Resize(%d): %v, want %v", tt.entries, err, tt.want)
		}
		if c.Cap() != tt.cap || c.Len() != 5 {
			t.Errorf("after Resize(%d): %d of %d, want 5 of %d", tt.entries, c.Len(), c.Cap(), tt.cap)
		}
	}
	for i := range uint64(11) {
		if !push(c, 9+i) {
			t.Errorf("push %d after resize", i)
		}
	}
	if push(c, 99) {
		t.Error("more than the capacity fits")
	}
	if got := fmt.Sprint(poll(c, 99)); got != "[4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19]" {
		t.Errorf("polled %v", got)
	}
}

func TestClose(t *testing.T) {
	c := mustNew(t, 1, Options{})
	if err := c.Retain(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Close in use: %v", err)
	}
	c.Release()
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := c.Close(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("second Close: %v", err)
	}
	if err := c.Retain(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Retain after Close: %v", err)
	}
}

// TestProducerConsumer: one producer and one consumer use no lock. Every completion arrives once, in order. After
// Poll, the consumer sees the data that were written before Push. The race detector checks the latter.
func TestProducerConsumer(t *testing.T) {
	const n = 20000
	c := mustNew(t, 63, Options{})
	data := make([]uint64, n)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); i < n; {
			data[i] = i * 3
			if c.Push(&WC{ID: i, ByteLen: uint32(i)}, false) {
				i++
			} else {
				runtime.Gosched()
			}
		}
	})
	var wc [16]WC
	for want := uint64(0); want < n; {
		k := c.Poll(wc[:])
		if k == 0 {
			runtime.Gosched()
		}
		for _, w := range wc[:k] {
			if w.ID != want || w.ByteLen != uint32(want) || data[want] != want*3 {
				t.Fatalf("got %+v with data %d, want %d", w, data[want], want)
			}
			want++
		}
	}
	wg.Wait()
}

// TestClients: clients arm independently of each other, and each is notified once.
func TestClients(t *testing.T) {
	var events [clients]int
	c := mustNew(t, 15, Options{Notify: func(who Client) { events[who]++ }})
	step := func(what string, solicited bool, want [clients]int) {
		t.Helper()
		events = [clients]int{}
		c.Push(&WC{}, solicited)
		if events != want {
			t.Errorf("%s: events %v, want %v", what, events, want)
		}
	}
	step("nobody", true, [clients]int{})
	c.Arm(Channel, true)
	c.Arm(Waiter, false)
	c.Arm(SolicitedWaiter, true)
	step("the next", false, [clients]int{Waiter: 1})
	step("it is not armed any more", false, [clients]int{})
	c.Arm(Waiter, false)
	step("a solicited one is for all", true, [clients]int{1, 1, 1})
	step("once", true, [clients]int{})
	c.Arm(Channel, false)
	c.Arm(SolicitedWaiter, true)
	step("the channel's", false, [clients]int{Channel: 1})
	step("and the other's", true, [clients]int{SolicitedWaiter: 1})
}

// TestHasSolicited: HasSolicited is true as long as a completion that counts as solicited is in the queue.
func TestHasSolicited(t *testing.T) {
	c := mustNew(t, 4, Options{})
	for i, s := range []struct {
		status    Status
		solicited bool
		poll      int
		want      bool
	}{
		{Success, false, 0, false}, {Success, true, 0, true}, {Success, false, 0, true},
		{Success, false, 0, true},
		{Success, true, 0, true},   // dropped, but another one is in the queue
		{Success, true, 1, true},   // the same, and the unsolicited one is polled
		{Success, false, 1, false}, // the solicited one is polled
		{WRFlushErr, false, 0, true},
	} {
		c.Push(&WC{Status: s.status}, s.solicited)
		poll(c, s.poll)
		if got := c.HasSolicited(); got != s.want {
			t.Errorf("step %d: HasSolicited %v, want %v", i, got, s.want)
		}
	}
	if err := c.Resize(100); err != nil || !c.HasSolicited() {
		t.Errorf("after Resize: %v, HasSolicited %v", err, c.HasSolicited())
	}
	poll(c, 9)
	if c.HasSolicited() {
		t.Error("HasSolicited of an empty queue")
	}
	full := mustNew(t, 1, Options{})
	push(full, 1)
	full.Push(&WC{}, true)
	if full.HasSolicited() {
		t.Error("a dropped completion counts")
	}
}

// TestResizeWatched: Len, Cap and HasSolicited return the right values at any time, also during a Resize.
func TestResizeWatched(t *testing.T) {
	c := mustNew(t, 7, Options{})
	c.Push(&WC{}, true)
	push(c, 1, 2)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if n, k := c.Len(), c.Cap(); n != 3 || k < 3 || !c.HasSolicited() {
				t.Errorf("Len %d, Cap %d, HasSolicited %v", n, k, c.HasSolicited())
				return
			}
		}
	}()
	for i := range 1000 {
		if err := c.Resize(3 + i%50); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
}

// TestNoLostWakeup: a consumer that polls, arms, polls again and then sleeps does not miss a completion.
func TestNoLostWakeup(t *testing.T) {
	const n = 20000
	wake := make(chan struct{}, 1)
	c := mustNew(t, 1023, Options{Notify: func(Client) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); i < n; {
			if push(c, i) {
				i++
			} else {
				runtime.Gosched()
			}
		}
	})
	var wc [4]WC
	for got := 0; got < n; {
		if k := c.Poll(wc[:]); k > 0 {
			got += k
			continue
		}
		c.Arm(Waiter, false)
		if k := c.Poll(wc[:]); k > 0 {
			got += k
			continue
		}
		<-wake // the test hangs here if a wakeup is lost
	}
	wg.Wait()
}

// beginAt sets the counters of a queue that has had no completions.
func beginAt(c *CQ, n uint64) {
	c.head.Store(n)
	c.tail.Store(n)
	c.next, c.bound = n, n
}

func TestCounterWrap(t *testing.T) {
	c := mustNew(t, 4, Options{})
	beginAt(c, 1<<64-2)
	push(c, 1, 2, 3, 4)
	if push(c, 5) {
		t.Error("a queue of four took a fifth entry")
	}
	if got := fmt.Sprint(poll(c, 9)); got != "[1 2 3 4]" {
		t.Errorf("polled %v", got)
	}
}

func TestPushPollDoNotAllocate(t *testing.T) {
	c := mustNew(t, 7, Options{Notify: func(Client) {}, Overflow: func() {}})
	var wc [4]WC
	if n := testing.AllocsPerRun(100, func() {
		for range 8 {
			c.Arm(Waiter, false)
			c.Push(&WC{ID: 1, Status: RetryExcErr}, true)
		}
		for c.Poll(wc[:]) > 0 {
		}
		if wc[0].Err() != RetryExceeded {
			t.Error("wrong error")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPushPoll(b *testing.B) {
	c := mustNew(b, 255, Options{})
	w := WC{ID: 1}
	var wc [16]WC
	b.ReportAllocs()
	for b.Loop() {
		c.Push(&w, false)
		c.Poll(wc[:])
	}
}
