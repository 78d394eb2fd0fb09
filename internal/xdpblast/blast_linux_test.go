package xdpblast

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/xdp"
)

func start(t testing.TB, s *netlab.Side) (p link.Port) {
	t.Helper()
	s.Do(t, func() {
		var err error
		if p, err = xdp.Open(xdp.Config{Interface: s.Interface, AnyAddr: true}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { p.Close() })
	return p
}

// blast runs both ends until enough packets were sent.
func blast(t testing.TB, mtu, payload, total int) (sent, got int, took time.Duration) {
	t.Helper()
	a, b := netlab.Pair(t, netlab.Config{MTU: mtu})
	from, to := start(t, a), start(t, b)
	begin := time.Now()
	path := linktest.Path(t, false, a.MAC, b.MAC)
	var end atomic.Int64 // when the last packet was sent; what is on the way gets a moment
	done := func() bool {
		e := end.Load()
		return e != 0 && time.Since(begin) > time.Duration(e)+200*time.Millisecond
	}
	received := make(chan int)
	go func() {
		n, bad, err := Receive(to, done)
		if bad != 0 || err != nil {
			t.Errorf("%d bad packets, %v", bad, err)
		}
		received <- n
	}()
	batches := 0
	sent, err := Send(from, path, make([]byte, payload), func() bool { batches++; return batches > total/batch })
	if err != nil {
		t.Error(err)
	}
	took = time.Since(begin)
	end.Store(int64(took))
	return sent, <-received, took
}

func TestBlast(t *testing.T) {
	for _, payload := range []int{0, 1024, 4096} {
		sent, got, _ := blast(t, 4200, payload, 2000)
		if sent == 0 || got == 0 || got > sent {
			t.Errorf("payload of %d: sent %d packets, received %d", payload, sent, got)
		}
	}
	if _, err := Send(nothing{}, nil, nil, nil); err == nil {
		t.Error("a port of another driver was taken")
	}
}

// nothing is a Port that can do nothing.
type nothing struct{ link.Port }

func (nothing) Info() link.Info { return link.Info{} }

// BenchmarkBlast has packets received as its rate.
func BenchmarkBlast(b *testing.B) {
	for _, payload := range []int{64, 1024, 4096} {
		b.Run(fmt.Sprintf("payload=%d", payload), func(b *testing.B) {
			sent, got, took := blast(b, 4200, payload, max(b.N, batch))
			b.ReportMetric(float64(got)/took.Seconds(), "pkt/s")
			b.ReportMetric(float64(got*payload)*8/took.Seconds()/1e9, "Gb/s")
			b.ReportMetric(100*float64(sent-got)/float64(max(sent, 1)), "%lost")
		})
	}
}
