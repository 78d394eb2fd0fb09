package linktest

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Patience is the time limit for everything that should happen at once. It is long enough for a
// busy machine.
const Patience = 30 * time.Second

// TestPort runs the tests of the contract. open makes two fresh Ports that
// reach each other, and registers their Close with t.Cleanup.
func TestPort(t *testing.T, open func(t *testing.T) (a, b link.Port)) {
	tests := []struct {
		name string
		run  func(t *testing.T, a, b link.Port)
	}{
		{"Deliver", func(t *testing.T, a, b link.Port) { deliver(t, a, b, false) }},
		{"DeliverV6", func(t *testing.T, a, b link.Port) {
			if Has6(a) {
				deliver(t, a, b, true)
			}
		}},
		{"Batches", batches},
		{"MixedSizes", mixedSizes},
		{"Abandon", abandon},
		{"Lent", lent},
		{"Oversize", oversize},
		{"WaitTimeout", waitTimeout},
		{"WaitFrame", waitFrame},
		{"WakeBeforeWait", wakeBeforeWait},
		{"WakeDuringWait", wakeDuringWait},
		{"WakesMerge", wakesMerge},
		{"SendDuringWait", sendDuringWait},
		{"CloseDuringWait", closeDuringWait},
		{"AfterClose", afterClose},
		{"OnLink", onLink},
		{"NoAllocations", noAllocations},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, b := open(t)
			test.run(t, a, b)
		})
	}
}

// Collect receives n frames and returns their PSNs and copies of their
// payloads, waiting as a shard does.
func Collect(t testing.TB, p link.Port, n int) (psns []bth.PSN, payloads [][]byte) {
	t.Helper()
	fr := make([]link.Frame, 7) // not a divisor of a batch
	deadline := time.Now().Add(Patience)
	for len(psns) < n {
		k, err := p.Recv(fr)
		if err != nil {
			t.Fatalf("Recv: %v", err)
		}
		for _, f := range fr[:k] {
			psn, payload := Check(t, p.Info().Layout, f)
			psns = append(psns, psn)
			payloads = append(payloads, bytes.Clone(payload))
		}
		if k == 0 {
			left := time.Until(deadline)
			if left <= 0 {
				t.Fatalf("%d of %d packets arrived", len(psns), n)
			}
			if err := p.Wait(left); err != nil {
				t.Fatalf("Wait: %v", err)
			}
		}
	}
	return psns, payloads
}

// InOrder receives n packets, whose PSNs must count from 0.
func InOrder(t testing.TB, p link.Port, n int) {
	t.Helper()
	psns, _ := Collect(t, p, n)
	for i, psn := range psns {
		if psn != bth.PSN(i) {
			t.Fatalf("packet %d of %d has PSN %v", i, n, psn)
		}
	}
}

func flush(t testing.TB, p link.Port) {
	t.Helper()
	if err := p.Flush(); err != nil {
		t.Fatalf("Flush: %v", err)
	}
}

// pattern returns a payload of n bytes that differs for each PSN.
func pattern(psn, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(psn*31 + i)
	}
	return b
}

func exchange(t *testing.T, a, b link.Port, path *frame.Path, sizes []int) {
	t.Helper()
	for i, n := range sizes {
		Send(t, a, path, bth.PSN(i), pattern(i, n))
	}
	flush(t, a)
	psns, payloads := Collect(t, b, len(sizes))
	for i := range sizes {
		if psns[i] != bth.PSN(i) || !bytes.Equal(payloads[i], pattern(i, sizes[i])) {
			t.Fatalf("packet %d of %d: PSN %v, %d bytes of payload, want PSN %d and %d bytes as sent", i, len(sizes), psns[i], len(payloads[i]), i, sizes[i])
		}
	}
	if n, err := b.Recv(make([]link.Frame, 1)); n != 0 || err != nil {
		t.Fatalf("then Recv = %d, %v, want nothing", n, err)
	}
}

func deliver(t *testing.T, a, b link.Port, v6 bool) {
	exchange(t, a, b, Between(t, v6, a, b), []int{0, 4, 256, 1024, 1024, 1024, 8})
	exchange(t, b, a, Between(t, v6, b, a), []int{1024, 1024, 0})
	for _, p := range []link.Port{a, b} {
		if err := p.Flush(); err != nil { // a driver may count sent packets only when it is called again
			t.Fatal(err)
		}
		s := p.Stats()
		if s.TxPackets+s.RxPackets != 10 || s.TxBytes == 0 || s.RxBytes == 0 || !s.LinkUp || s.RxDrops+s.RxErrors+s.TxDrops+s.TxErrors != 0 {
			t.Errorf("Stats() = %+v", s)
		}
	}
}

// batches sends more packets at once than a batch holds.
func batches(t *testing.T, a, b link.Port) {
	sizes := make([]int, link.Batch+69) // the smallest ring that is tested has room for so many
	for i := range sizes {
		sizes[i] = 1024
	}
	exchange(t, a, b, Between(t, false, a, b), sizes)
}

// mixedSizes alternates so that segmentation offload finds long and short runs.
func mixedSizes(t *testing.T, a, b link.Port) {
	var sizes []int
	for i := range 150 {
		n := 512
		if i%7 == 6 {
			n = 60 + 4*i%256
		}
		if i%13 == 0 {
			n = 1024
		}
		sizes = append(sizes, n)
	}
	for _, v6 := range []bool{false, true} {
		if v6 && !Has6(a) {
			continue
		}
		exchange(t, a, b, Between(t, v6, a, b), sizes)
	}
}

// onLink: a Port whose link stays up does not call the function, and nil removes
// the function.
func onLink(t *testing.T, a, b link.Port) {
	a.OnLink(func(up bool) { t.Errorf("the link changed: up %v", up) })
	exchange(t, a, b, Between(t, false, a, b), []int{8, 8})
	if !a.Stats().LinkUp {
		t.Error("the link is down")
	}
	a.OnLink(nil)
}

func abandon(t *testing.T, a, b link.Port) {
	path := Between(t, false, a, b)
	Put(a, path, 1, pattern(1, 64))
	Send(t, a, path, 2, pattern(2, 32))
	Put(a, path, 3, pattern(3, 64))
	flush(t, a)
	Put(a, path, 4, pattern(4, 64))
	a.Commit()
	a.Commit() // has no effect: the packet is committed already
	flush(t, a)
	psns, _ := Collect(t, b, 2)
	if psns[0] != 2 || psns[1] != 4 {
		t.Errorf("PSNs %v arrived, want 2 and 4", psns)
	}
}

func lent(t *testing.T, a, b link.Port) {
	if got := a.Lent(); got != nil {
		t.Errorf("Lent() = % x before Begin", got)
	}
	path := Between(t, false, a, b)
	Put(a, path, 1, pattern(1, 64))
	got := bytes.Clone(a.Lent())
	if want := path.HeaderLen(a.Info().Layout) + Overhead + 64; len(got) != want {
		t.Fatalf("Lent() is %d bytes, want %d", len(got), want)
	}
	a.Commit()
	if a.Lent() != nil {
		t.Errorf("Lent() is something after Commit")
	}
	flush(t, a)
	fr := make([]link.Frame, 1)
	for n, tries := 0, 0; n == 0; tries++ {
		if err := b.Wait(Patience); err != nil || tries > 10 {
			t.Fatalf("nothing arrived: %v", err)
		}
		n, _ = b.Recv(fr)
	}
	if fr[0].Env != nil {
		got = got[len(got)-Overhead-64:]
	}
	if !bytes.Equal(fr[0].Data, got) {
		t.Errorf("received\n% x\nwant what was lent\n% x", fr[0].Data, got)
	}
}

func oversize(t *testing.T, a, b link.Port) {
	path := Between(t, false, a, b)
	room := a.Info().MTU - path.HeaderLen(frame.LayoutIP) - Overhead
	Send(t, a, path, 1, pattern(1, room&^3+4))
	Send(t, a, path, 2, pattern(2, room&^3))
	flush(t, a)
	if psns, _ := Collect(t, b, 1); psns[0] != 2 {
		t.Errorf("PSN %v arrived, want 2", psns[0])
	}
	if s := a.Stats(); s.TxOversize != 1 {
		t.Errorf("TxOversize = %d, want 1", s.TxOversize)
	}
}

func waitTimeout(t *testing.T, a, _ link.Port) {
	for _, d := range []time.Duration{0, 1, 3 * time.Millisecond} {
		start := time.Now()
		if err := a.Wait(d); err != nil {
			t.Fatalf("Wait(%v): %v", d, err)
		}
		if took := time.Since(start); took < d || took > Patience {
			t.Errorf("Wait(%v) took %v", d, took)
		}
	}
}

func waitFrame(t *testing.T, a, b link.Port) {
	path := Between(t, false, a, b)
	var psns []bth.PSN
	done := make(chan bool)
	go func() {
		defer close(done)
		fr := make([]link.Frame, 1)
		for len(psns) < 3 && b.Wait(-1) == nil {
			if n, err := b.Recv(fr); n == 1 && err == nil {
				psn, _ := Check(t, b.Info().Layout, fr[0])
				psns = append(psns, psn)
			}
		}
	}()
	for i := range 3 {
		Send(t, a, path, bth.PSN(i), nil)
		flush(t, a)
	}
	within(t, b, "Wait for frames", func() { <-done })
	if len(psns) != 3 {
		t.Errorf("PSNs %v arrived", psns)
	}
}

// within fails if f takes too long, and closes p then so that it ends.
func within(t *testing.T, p link.Port, what string, f func()) {
	t.Helper()
	done := make(chan bool)
	go func() {
		defer close(done) // also if f ends the goroutine by t.Fatal
		f()
	}()
	select {
	case <-done:
	case <-time.After(Patience):
		p.Close()
		<-done
		t.Fatalf("%s did not return", what)
	}
}

func wakeBeforeWait(t *testing.T, a, _ link.Port) {
	a.Wake()
	waits(t, a, nil)
}

func wakeDuringWait(t *testing.T, a, _ link.Port) {
	for range 100 {
		go a.Wake()
		waits(t, a, nil)
	}
}

// waits calls Wait without a limit, and checks that it returns soon, with the error want.
func waits(t *testing.T, p link.Port, want error) {
	t.Helper()
	within(t, p, "Wait", func() {
		if err := p.Wait(-1); !errors.Is(err, want) {
			t.Errorf("Wait: %v, want %v", err, want)
		}
	})
}

func wakesMerge(t *testing.T, a, _ link.Port) {
	for range 10 {
		a.Wake()
	}
	waits(t, a, nil)
	const d = 2 * time.Millisecond
	start := time.Now()
	returns := 0
	for time.Since(start) < d {
		returns++
		if err := a.Wait(max(d-time.Since(start), 0)); err != nil {
			t.Fatalf("Wait: %v", err)
		}
	}
	// One return for the timeout, and some spurious ones.
	if returns > 4 {
		t.Errorf("Wait returned %d times more after 10 Wakes and one return, want 1", returns)
	}
}

// sendDuringWait sends while the shard sleeps in Wait, as a post does.
func sendDuringWait(t *testing.T, a, b link.Port) {
	path := Between(t, false, a, b)
	done := make(chan error)
	go func() { done <- a.Wait(-1) }()
	for i := range 200 {
		Send(t, a, path, bth.PSN(i), pattern(i, 64))
		flush(t, a)
	}
	a.Wake()
	if err := <-done; err != nil {
		t.Errorf("Wait: %v", err)
	}
	Collect(t, b, 200)
}

func closeDuringWait(t *testing.T, a, _ link.Port) {
	done := make(chan error)
	go func() { done <- a.Wait(-1) }()
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	within(t, a, "Wait", func() {
		if err := <-done; !errors.Is(err, link.ErrClosed) {
			t.Errorf("Wait: %v, want ErrClosed", err)
		}
	})
}

func afterClose(t *testing.T, a, b link.Port) {
	path := Between(t, false, a, b)
	back := Between(t, false, b, a)
	Send(t, a, path, 1, nil) // committed and not flushed: lost
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for what, f := range map[string]func() error{
		"Close": a.Close,
		"Flush": a.Flush,
		"Wait":  func() error { return a.Wait(-1) },
		"Recv":  func() error { _, err := a.Recv(make([]link.Frame, 4)); return err },
	} {
		if err := f(); !errors.Is(err, link.ErrClosed) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", what, err)
		}
	}
	if Put(a, path, 2, nil) {
		t.Errorf("Begin after Close succeeded")
	}
	a.Commit()
	a.Wake()
	a.Stats()
	if a.Info().Driver == "" {
		t.Errorf("Info().Driver is empty after Close")
	}
	Send(t, b, back, 3, nil) // to the closed Port
	flush(t, b)
}

// noAllocations checks that sending and receiving allocate nothing, at both ends.
func noAllocations(t *testing.T, a, b link.Port) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	path := Between(t, false, a, b)
	payload := pattern(0, 1024)
	fr := make([]link.Frame, link.Batch)
	round := func() {
		for range 10 {
			Put(a, path, 0, payload)
			a.Commit()
		}
		a.Flush()
		for got, tries := 0, 0; got < 10; tries++ {
			if err := b.Wait(Patience); err != nil || tries > 100 {
				t.Fatalf("%d of 10 packets arrived: %v", got, err)
			}
			n, _ := b.Recv(fr)
			got += n
		}
		b.Wake()
		b.Wait(time.Second)
	}
	for range 50 {
		round() // warm up pools
	}
	if n := testing.AllocsPerRun(50, round); n > 0.5 {
		t.Errorf("%v allocations for 10 packets, want 0", n)
	}
}
