package xdpblast

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
func blast(t testing.TB, mtu int, c sender, total int) (sent, got int, took, cpu time.Duration) {
	t.Helper()
	a, b := netlab.Pair(t, netlab.Config{MTU: mtu})
	from, to := start(t, a), start(t, b)
	begin := time.Now()
	path := linktest.Path(t, false, a.MAC, b.MAC)
	var end atomic.Int64 // when the last packet was sent; the receiver waits a moment for packets in flight
	done := func() bool {
		e := end.Load()
		return e != 0 && time.Since(begin) > time.Duration(e)+200*time.Millisecond
	}
	received := make(chan int)
	go func() {
		n, bad, err := receive(to, done)
		if bad != 0 || err != nil {
			t.Errorf("%d bad packets, %v", bad, err)
		}
		received <- n
	}()
	batches := 0
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime(t)
	sent, err := c.send(from, path, func() bool { batches++; return batches > total/batch })
	if err != nil {
		t.Error(err)
	}
	cpu = threadTime(t) - before
	took = time.Since(begin)
	end.Store(int64(took))
	return sent, <-received, took, cpu
}

// threadTime returns the processor time of this thread: unlike wall-clock time it is meaningful on a busy machine.
func threadTime(t testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestBlast(t *testing.T) {
	for _, c := range []sender{{0, false}, {1024, false}, {4096, false}, {64, true}, {1024, true}, {4096, true}} {
		sent, got, _, _ := blast(t, 4200, c, 2000)
		if sent == 0 || got == 0 || got > sent {
			t.Errorf("%+v: sent %d packets, received %d", c, sent, got)
		}
	}
	if _, err := (sender{}).send(nothing{}, nil, nil); err == nil {
		t.Error("a port of another driver was taken")
	}
}

// nothing is a Port whose methods must not be called.
type nothing struct{ link.Port }

func (nothing) Info() link.Info { return link.Info{} }

// BenchmarkBlast reports the rate of the packets that were received.
func BenchmarkBlast(b *testing.B) {
	for _, c := range []sender{{64, false}, {1024, false}, {4096, false}, {64, true}, {1024, true}, {4096, true}} {
		b.Run(fmt.Sprintf("payload=%d,inplace=%v", c.payload, c.inPlace), func(b *testing.B) {
			sent, got, took, cpu := blast(b, 4200, c, max(b.N, batch))
			b.ReportMetric(float64(got)/took.Seconds(), "pkt/s")
			b.ReportMetric(float64(got*c.payload)*8/took.Seconds()/1e9, "Gb/s")
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(max(sent, 1)), "cpu-ns/sent")
			b.ReportMetric(float64(sent)/took.Seconds(), "sent/s")
			b.ReportMetric(100*float64(sent-got)/float64(max(sent, 1)), "%lost")
		})
	}
}
