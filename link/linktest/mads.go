package linktest

import (
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// MADs is a pair of Ports. To has a separate queue for management datagrams.
type MADs struct {
	From, To link.Port
	Path     *frame.Path

	// Drops returns how many packets the kernel has dropped at the queue of the data and at the
	// queue of the management datagrams, since the Ports were opened.
	Drops func() (data, mads uint64)
}

// TestMADs checks a driver that has a separate queue for management datagrams. open makes
// two fresh Ports; the receive buffer of the second has buffer bytes, or the default size
// if that is 0.
func TestMADs(t *testing.T, open func(t *testing.T, buffer int) MADs) {
	t.Run("Split", func(t *testing.T) { splitMADs(t, open(t, 0)) })
	opened := open
	open = func(t *testing.T, buffer int) MADs {
		m := opened(t, buffer)
		split(t, m)
		return m
	}
	t.Run("Flood", func(t *testing.T) { floodOfMADs(t, open(t, 64<<10)) })
	t.Run("Wait", func(t *testing.T) { waitForMADs(t, open(t, 0)) })
	t.Run("Share", func(t *testing.T) { dataAndMADs(t, open(t, 0)) })
	t.Run("Burst", func(t *testing.T) { burstOfMADs(t, open(t, 0)) })
	t.Run("ShareOfData", func(t *testing.T) { madsAndData(t, open(t, 0)) })
	t.Run("Order", func(t *testing.T) { dataThenMADs(t, open(t, 0)) })
	t.Run("Screen", func(t *testing.T) { screen(t, open(t, 0)) })
}

// split gives the management datagrams their own queue.
func split(t *testing.T, m MADs) {
	t.Helper()
	p, ok := link.As[link.MADSplitter](m.To)
	if !ok {
		t.Fatal("the Port is no MADSplitter")
	}
	p.SplitMADs()
}

// splitMADs: packets of both kinds arrive before, during and after SplitMADs; data only once. A second call changes
// nothing.
func splitMADs(t *testing.T, m MADs) {
	waitForMADs(t, m)
	const n, at = 600, 200
	var mads, data [n]int
	fr := make([]link.Frame, link.Batch)
	sent := make(chan bool)
	go func() {
		defer close(sent)
		for i := range bth.PSN(n) {
			putTo(t, m.From, m.Path, bth.QPNGSI, i, 64)
			putTo(t, m.From, m.Path, QPN, i, 64)
			flush(t, m.From)
		}
	}()
	within(t, m.To, "the packets", func() {
		for came := 0; came < 2*n && m.To.Wait(-1) == nil; {
			eachPacket(t, m.To, fr, func(q *frame.Packet) {
				times := &data[q.PSN()]
				if q.DestQPN() == bth.QPNGSI {
					times = &mads[q.PSN()]
				}
				if *times++; *times == 1 {
					came++
				}
			})
			if came >= at {
				split(t, m)
			}
		}
	})
	<-sent
	for i := range n {
		if mads[i] == 0 || data[i] != 1 {
			t.Errorf("management datagram %d came %d times, data packet %d %d times", i, mads[i], i, data[i])
		}
	}
}

// TestSplitFails: if a system call of SplitMADs fails, packets of both kinds still arrive, and Info says what is
// missing. fails calls its argument where that call fails.
func TestSplitFails(t *testing.T, m MADs, fails func(func())) {
	fails(func() { split(t, m) })
	waitForMADs(t, m)
	if mode := m.To.Info().Mode; !strings.Contains(mode, "management datagrams") {
		t.Errorf("mode %q says nothing of management datagrams", mode)
	}
	mode := m.To.Info().Mode
	split(t, m)
	waitForMADs(t, m)
	if again := m.To.Info().Mode; again != mode {
		t.Errorf("mode %q, after a second call %q", mode, again)
	}
}

// sendTo puts and commits n packets of size bytes for a queue pair.
func sendTo(t *testing.T, p link.Port, path *frame.Path, to bth.QPN, n, size int) {
	t.Helper()
	for i := range n {
		putTo(t, p, path, to, bth.PSN(i), size)
	}
	flush(t, p)
}

// putTo puts and commits a packet of size bytes for a queue pair.
func putTo(t *testing.T, p link.Port, path *frame.Path, to bth.QPN, psn bth.PSN, size int) {
	t.Helper()
	size += bth.BTHLen
	body, crc, ok := p.Begin(path, size+bth.ICRCLen)
	if !ok {
		flush(t, p)
		if body, crc, ok = p.Begin(path, size+bth.ICRCLen); !ok {
			t.Fatal("no room")
		}
	}
	clear(body[:size])
	bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, to, psn)
	bth.PutICRC(body[size:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:size]))
	p.Commit()
}

// eachPacket receives into fr and calls f with each packet.
func eachPacket(t *testing.T, p link.Port, fr []link.Frame, f func(*frame.Packet)) {
	t.Helper()
	n, err := p.Recv(fr)
	if err != nil {
		t.Fatal(err)
	}
	for i := range fr[:n] {
		var q frame.Packet
		if err := fr[i].Parse(&q, p.Info().Layout); err != nil || !q.CheckICRC() {
			t.Fatalf("packet %d: %v, ICRC right %v", i, err, err == nil && q.CheckICRC())
		}
		f(&q)
	}
}

// queuePairs receives into fr and returns the queue pairs the packets are for.
func queuePairs(t *testing.T, p link.Port, fr []link.Frame) (to []bth.QPN) {
	t.Helper()
	eachPacket(t, p, fr, func(q *frame.Packet) { to = append(to, q.DestQPN()) })
	return to
}

// floodOfMADs: unread management datagrams fill only their own queue. There is room for data that
// arrive later, and Recv returns the data first.
func floodOfMADs(t *testing.T, m MADs) {
	const data = 64
	for range 20 {
		sendTo(t, m.From, m.Path, bth.QPNGSI, 64, 256)
	}
	sendTo(t, m.From, m.Path, QPN, data, 32)
	got, mads := 0, 0
	fr := make([]link.Frame, link.Batch)
	within(t, m.To, "the data", func() {
		for got < data && m.To.Wait(-1) == nil {
			for _, to := range queuePairs(t, m.To, fr) {
				switch {
				case to == bth.QPNGSI:
					mads++
				case mads > 0 && got == 0:
					t.Error("a management datagram was handed out before the data")
					got++
				default:
					got++
				}
			}
			if d, _ := m.Drops(); d > 0 {
				t.Errorf("%d of the data were dropped, %d have come", d, got)
				return
			}
		}
	})
	if data, mads := m.Drops(); data != 0 || mads == 0 {
		t.Errorf("dropped %d of the data and %d management datagrams, want none and some", data, mads)
	}
	if s := m.To.Stats(); s.RxDrops == 0 {
		t.Errorf("management datagrams that were dropped are not counted: %+v", s)
	}
	within(t, m.To, "a management datagram", func() {
		for mads == 0 && m.To.Wait(-1) == nil {
			mads += len(queuePairs(t, m.To, fr))
		}
	})
}

// waitForMADs: a packet in either queue ends a Wait, also if an earlier Recv has left it there.
func waitForMADs(t *testing.T, m MADs) {
	for _, to := range []bth.QPN{bth.QPNGSI, QPN, bth.QPNGSI, QPN} {
		const n = 5
		got := 0
		arrived := make(chan bool)
		go func() {
			defer close(arrived)
			fr := make([]link.Frame, 2)
			for got < n && m.To.Wait(-1) == nil {
				for _, q := range queuePairs(t, m.To, fr) {
					if q != to {
						t.Errorf("a packet for queue pair %v, want %v", q, to)
					}
					got++
				}
			}
		}()
		sendTo(t, m.From, m.Path, to, n, 256)
		within(t, m.To, "Wait", func() { <-arrived })
	}
}

// dataAndMADs: a continuous stream of data does not starve management datagrams, even if each Recv
// has room for one packet only.
func dataAndMADs(t *testing.T, m MADs) {
	const most = 1000
	fr := make([]link.Frame, 1)
	sendTo(t, m.From, m.Path, QPN, 2, 256)
	sendTo(t, m.From, m.Path, bth.QPNGSI, 1, 256)
	for i := range most {
		sendTo(t, m.From, m.Path, QPN, 2, 256)
		for _, to := range queuePairs(t, m.To, fr) {
			if to == bth.QPNGSI {
				return
			}
		}
		if i == most-1 {
			t.Errorf("%d packets were handed out, and none of them is the management datagram", most)
		}
	}
}

// burstOfMADs: Recv returns every management datagram once, also if the data fill one
// batch and leave room in the next one.
func burstOfMADs(t *testing.T, m MADs) {
	const mads, size = 5 * link.Batch / 4, 256
	for _, data := range []int{link.Batch, link.Batch + 1, 5 * link.Batch / 4, 2 * link.Batch} {
		sendTo(t, m.From, m.Path, QPN, data, size)
		sendTo(t, m.From, m.Path, bth.QPNGSI, mads, size)
		seen, got := map[bth.PSN]int{}, 0
		fr := make([]link.Frame, link.Batch)
		within(t, m.To, "the management datagrams", func() {
			for got < mads+data && m.To.Wait(-1) == nil {
				eachPacket(t, m.To, fr, func(q *frame.Packet) {
					if got++; q.DestQPN() == bth.QPNGSI {
						seen[q.PSN()]++
					}
				})
			}
		})
		for i := range bth.PSN(mads) {
			if seen[i] != 1 {
				t.Errorf("%d data: management datagram %d came %d times", data, i, seen[i])
			}
		}
	}
}

// madsAndData: a continuous stream of management datagrams does not starve data, even if each Recv
// has room for one packet only.
func madsAndData(t *testing.T, m MADs) {
	const data, most = 50, 1000
	fr := make([]link.Frame, 1)
	got := 0
	sendTo(t, m.From, m.Path, QPN, data, 256)
	for range most {
		sendTo(t, m.From, m.Path, bth.QPNGSI, 2, 256)
		for _, to := range queuePairs(t, m.To, fr) {
			if to == QPN {
				if got++; got == data {
					return
				}
			}
		}
	}
	t.Errorf("%d packets were handed out, %d of them of the data, want %d", most, got, data)
}

// dataThenMADs: a management datagram comes behind the data that arrived before it, also if the Port requests a single
// packet because it has found nothing before, and if a Recv has left packets that the kernel had already delivered.
func dataThenMADs(t *testing.T, m MADs) {
	fr := make([]link.Frame, link.Batch)
	for _, first := range []int{0, link.Batch * 3 / 2} {
		for range 8 {
			queuePairs(t, m.To, fr)
		}
		sendTo(t, m.From, m.Path, QPN, first, 256)
		got, data := len(queuePairs(t, m.To, fr)), first
		for i := range 4 {
			sendTo(t, m.From, m.Path, QPN, 1, 32+4*i)
			data++
		}
		sendTo(t, m.From, m.Path, bth.QPNGSI, 1, 256)
		within(t, m.To, "the packets", func() {
			for got <= data && m.To.Wait(-1) == nil {
				for _, to := range queuePairs(t, m.To, fr) {
					if got++; (to == bth.QPNGSI) != (got == data+1) {
						t.Errorf("behind %d packets: packet %d of %d is for queue pair %v", first, got, data+1, to)
					}
				}
			}
		})
	}
}
