package raw

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/mmsg"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/linktest"
)

// refuse returns a function that makes the kernel refuse messages of a Port.
func refuse(p *Port) func(func(int) unix.Errno) {
	return func(f func(int) unix.Errno) {
		if p.tx.sendmmsg = mmsg.Send; f != nil {
			p.tx.sendmmsg = linktest.Refuse(mmsg.Send, f)
		}
	}
}

func TestKernelRefuses(t *testing.T) {
	for _, qdisc := range []bool{false, true} {
		linktest.TestRefused(t, func(t *testing.T) linktest.Refused {
			a, b := netlab.Pair(t, netlab.Config{})
			from, to := start(t, a, Config{Qdisc: qdisc}), start(t, b, Config{})
			if !from.tx.gso {
				t.Skipf("no GSO on this kernel: %q", from.Info().Notes)
			}
			return linktest.Refused{From: from, To: to, Refuse: refuse(from), Freeze: func(clock func() time.Time) { from.tx.clock = clock }}
		})
	}
}

// TestCannotSegment: if the device cannot divide super-packets, the Port sends them through the
// queueing discipline, where the kernel divides them. Later the Port tries the device again.
func TestCannotSegment(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from, to := start(t, a, Config{}), start(t, b, Config{})
	if !from.tx.gso {
		t.Skipf("no GSO on this kernel: %q", from.Info().Notes)
	}
	now := time.Now()
	from.tx.clock = func() time.Time { return now }
	p := path(t, a, b, false, 0)
	run := func(mode string) {
		t.Helper()
		for i := range 20 {
			linktest.Send(t, from, p, bth.PSN(i), make([]byte, 1024))
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		linktest.InOrder(t, to, 20)
		if got := from.Info().Mode; got != mode {
			t.Errorf("mode %q, want %q", got, mode)
		}
	}
	refuse(from)(func(size int) unix.Errno {
		if size > 2000 && from.tx.bypass.Load() {
			return unix.ENOBUFS
		}
		return 0
	})
	const direct, through = "sendmmsg/recvmmsg, GSO, qdisc bypass", "sendmmsg/recvmmsg, GSO"
	for range 5 {
		run(through)
		now = now.Add(time.Second)
		run(through)
		now = now.Add(time.Hour)
	}
	refuse(from)(nil)
	run(direct)
	if s := from.Stats(); s.TxDrops+s.TxErrors > 0 {
		t.Errorf("%+v", s)
	}
}
