package mem_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/mem"
)

func pair(t testing.TB, c mem.Config) (link.Port, link.Port) {
	a, b := mem.Pair(c)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestContract(t *testing.T) {
	linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) { return pair(t, mem.Config{}) })
}

func TestContractBackpressure(t *testing.T) {
	linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
		return pair(t, mem.Config{Backpressure: true})
	})
}

// TestContractBare: the contract allows Ports that do not show the headers.
func TestContractBare(t *testing.T) {
	for _, seen := range []bool{false, true} {
		linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
			a, b := pair(t, mem.Config{})
			return linktest.Bare(a, seen), linktest.Bare(b, seen)
		})
	}
}

// TestWaitBubble: in a bubble the clock stands still while anything can run, so
// waiting takes exactly as long as it should.
func TestWaitBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, mem.Config{})
		path := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
		start := time.Now()
		at := func(want time.Duration, what string) {
			t.Helper()
			if got := time.Since(start); got != want {
				t.Errorf("%s after %v, want %v", what, got, want)
			}
		}
		b.Wait(3 * time.Second)
		at(3*time.Second, "timeout")

		go func() {
			time.Sleep(time.Second)
			linktest.Send(t, a, path, 1, nil)
			a.Flush()
		}()
		b.Wait(-1)
		at(4*time.Second, "frame")
		b.Wait(-1) // it is still there
		at(4*time.Second, "frame again")
		linktest.Collect(t, b, 1)

		b.Wait(time.Hour) // nothing is left of the frame's signal
		at(4*time.Second+time.Hour, "idle")

		go func() { time.Sleep(time.Second); b.Wake(); b.Wake() }()
		b.Wait(time.Hour)
		at(5*time.Second+time.Hour, "wake")
		synctest.Wait()
		b.Wait(0)
		b.Wait(time.Second)
		at(6*time.Second+time.Hour, "after merged wakes")
	})
}

func TestSwitch(t *testing.T) {
	h := mem.NewHub(mem.Config{})
	var ports []link.Port
	for i := range 4 {
		p, err := h.Port("p", frame.MAC{2, 5: byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ports = append(ports, p)
	}
	arrived := func() (at [4]int) {
		for i, p := range ports {
			at[i], _ = p.Recv(make([]link.Frame, 8))
		}
		return at
	}
	for _, test := range []struct {
		name string
		dst  frame.MAC
		want [4]int
	}{
		{"unicast", frame.MAC{2, 5: 2}, [4]int{2: 1}},
		{"own address", frame.MAC{2, 5: 1}, [4]int{}},
		{"nobody", frame.MAC{2, 5: 9}, [4]int{}},
		{"multicast", frame.MAC{1, 0, 0x5E, 1, 2, 3}, [4]int{1, 0, 1, 1}},
		{"broadcast", frame.MAC{255, 255, 255, 255, 255, 255}, [4]int{1, 0, 1, 1}},
	} {
		linktest.Send(t, ports[1], linktest.Path(t, false, ports[1].Info().MAC, test.dst), 1, nil)
		if err := ports[1].Flush(); err != nil {
			t.Fatal(err)
		}
		if got := arrived(); got != test.want {
			t.Errorf("%s: frames arrived at ports %v, want %v", test.name, got, test.want)
		}
	}
	if s := ports[1].Stats(); s.TxDrops != 2 || s.TxPackets != 3 {
		t.Errorf("Stats() = %+v, want 2 dropped, 3 sent", s)
	}
}

func TestOpenErrors(t *testing.T) {
	h := mem.NewHub(mem.Config{})
	if _, err := h.Port("a", frame.MAC{2}); err != nil {
		t.Fatal(err)
	}
	for name, mac := range map[string]frame.MAC{"zero": {}, "multicast": {1}, "twice": {2}} {
		if _, err := h.Port(name, mac); err == nil {
			t.Errorf("%s: MAC %v was accepted", name, mac)
		}
	}
	if _, err := h.Queues("q", frame.MAC{4}, 2, nil); err == nil {
		t.Errorf("two queues without steering were accepted")
	}
}

func TestAddressIsFreedByClose(t *testing.T) {
	h := mem.NewHub(mem.Config{})
	ports, err := h.Queues("a", frame.MAC{2}, 2, func([]byte) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	ports[0].Close()
	if _, err := h.Port("b", frame.MAC{2}); err == nil {
		t.Errorf("the address was free while a queue was open")
	}
	ports[1].Close()
	if _, err := h.Port("b", frame.MAC{2}); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

func TestQueues(t *testing.T) {
	h := mem.NewHub(mem.Config{})
	a, _ := h.Port("a", frame.MAC{2, 5: 1})
	qs, err := h.Queues("b", frame.MAC{2, 5: 2}, 2, func(data []byte) int {
		var p frame.Packet
		if p.Parse(data, frame.LayoutEthernet) != nil {
			return 0
		}
		return -int(p.PSN()) // negative numbers are no trap
	})
	if err != nil {
		t.Fatal(err)
	}
	path := linktest.Path(t, false, a.Info().MAC, qs[0].Info().MAC)
	for psn := range 10 {
		linktest.Send(t, a, path, bth.PSN(psn), nil)
	}
	a.Flush()
	for i, q := range qs {
		psns, _ := linktest.Collect(t, q, 5)
		for _, psn := range psns {
			if int(psn)%2 != i {
				t.Errorf("queue %d got PSN %v", i, psn)
			}
		}
	}
}

func TestFullQueueDrops(t *testing.T) {
	a, b := pair(t, mem.Config{Queue: 10})
	path := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
	for psn := range 15 {
		linktest.Send(t, a, path, bth.PSN(psn), nil)
	}
	a.Flush()
	psns, _ := linktest.Collect(t, b, 10)
	if psns[9] != 9 {
		t.Errorf("PSNs %v arrived, want the first ten", psns)
	}
	if s := b.Stats(); s.RxDrops != 5 || s.RxPackets != 10 {
		t.Errorf("receiver: %+v, want 5 dropped", s)
	}
	if s := a.Stats(); s.TxPackets != 15 {
		t.Errorf("sender: %+v, want 15 sent", s)
	}
}

// TestBackpressure pushes more through a small queue than it holds; nothing may
// be lost, and the sender must sleep and be woken.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, mem.Config{Queue: 10, Backpressure: true})
		path := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
		const total = 5000
		refused := 0
		sent := make(chan bool)
		go func() {
			defer close(sent)
			for psn := 0; psn < total; psn++ {
				for !linktest.Put(a, path, bth.PSN(psn), nil) {
					refused++
					if err := a.Wait(-1); err != nil { // forever: only room wakes it
						t.Error(err)
						return
					}
				}
				a.Commit()
			}
			for a.Stats().TxPackets < total {
				a.Flush()
				time.Sleep(time.Millisecond)
			}
		}()
		psns, _ := linktest.Collect(t, b, total)
		for i, psn := range psns {
			if psn != bth.PSN(i) {
				t.Fatalf("packet %d has PSN %v", i, psn)
			}
		}
		<-sent
		if refused == 0 {
			t.Errorf("Begin was never refused")
		}
		if s := b.Stats(); s.RxDrops != 0 {
			t.Errorf("receiver: %+v", s)
		}
	})
}

// TestBackpressureFlush: frames that a Flush leaves queued are sent as soon as
// there is room, and the sender is woken for them, even if no Begin was refused.
func TestBackpressureFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, mem.Config{Queue: 2, Backpressure: true})
		path := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
		const total = 9
		for psn := range total {
			linktest.Send(t, a, path, bth.PSN(psn), nil)
		}
		go func() {
			for a.Stats().TxPackets < total {
				if err := a.Flush(); err != nil {
					t.Error(err)
				}
				if a.Stats().TxPackets < total {
					a.Wait(-1) // forever: only room wakes it
				}
			}
		}()
		start := time.Now()
		linktest.Collect(t, b, total)
		if took := time.Since(start); took > 0 {
			t.Errorf("took %v, want no time", took)
		}
	})
}

// TestBackpressureClose: a receiver that goes away must not block its sender.
func TestBackpressureClose(t *testing.T) {
	a, b := pair(t, mem.Config{Queue: 1, Backpressure: true})
	path := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
	for linktest.Put(a, path, 0, nil) {
		a.Commit()
	}
	done := make(chan error)
	go func() { done <- a.Wait(-1) }()
	b.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !linktest.Put(a, path, 0, nil) {
		t.Errorf("no room after the receiver has gone")
	}
}

func TestLinkDown(t *testing.T) {
	a, b := mem.Pair(mem.Config{})
	path := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
	fr := make([]link.Frame, 4)

	b.SetLink(false)
	linktest.Send(t, a, path, 1, nil)
	if err := a.Flush(); err != nil { // the sender's own link is up
		t.Errorf("Flush: %v", err)
	}
	if err := b.Wait(-1); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if n, err := b.Recv(fr); n != 0 || !errors.Is(err, link.ErrDown) {
		t.Errorf("Recv = %d, %v, want ErrDown", n, err)
	}
	if n, err := b.Recv(fr); n != 0 || err != nil {
		t.Errorf("second Recv = %d, %v, want nothing", n, err)
	}
	linktest.Send(t, b, linktest.Path(t, false, b.Info().MAC, a.Info().MAC), 1, nil)
	if err := b.Flush(); !errors.Is(err, link.ErrDown) {
		t.Errorf("Flush: %v, want ErrDown", err)
	}
	if s := b.Stats(); s.LinkUp || s.LinkDowns != 1 || s.TxDrops != 1 {
		t.Errorf("Stats() = %+v", s)
	}

	b.SetLink(true)
	linktest.Send(t, a, path, 2, nil)
	a.Flush()
	if psns, _ := linktest.Collect(t, b, 1); psns[0] != 2 {
		t.Errorf("PSNs %v arrived after the link came up, want 2", psns)
	}

	b.Remove()
	if n, err := b.Recv(fr); n != 0 || !errors.Is(err, link.ErrNoDevice) {
		t.Errorf("Recv of a removed port = %d, %v, want ErrNoDevice", n, err)
	}
	b.SetLink(true)
	linktest.Send(t, b, linktest.Path(t, false, b.Info().MAC, a.Info().MAC), 1, nil)
	if err := b.Flush(); !errors.Is(err, link.ErrNoDevice) || b.Stats().LinkUp {
		t.Errorf("Flush of a removed port: %v, want ErrNoDevice", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func BenchmarkPort(b *testing.B) {
	linktest.BenchmarkPort(b, func(b *testing.B) (link.Port, link.Port) {
		return pair(b, mem.Config{MTU: 4200, Backpressure: true})
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	linktest.BenchmarkRoundTrip(b, func(b *testing.B) (link.Port, link.Port) { return pair(b, mem.Config{}) })
}
