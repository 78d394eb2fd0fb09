package nic

import (
	"testing"
	"time"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// floodedPort is a port in which there is always more than a batch.
type floodedPort struct{ link.Port }

func (floodedPort) Recv(fr []link.Frame) (int, error) {
	for i := range fr {
		fr[i] = link.Frame{Data: []byte("no packet")}
	}
	return len(fr), nil
}

// deadlines is a QP 1 whose deadline has always expired.
type deadlines struct {
	QP1
	handled int
	then    func()
}

func (d *deadlines) HandleTimeout(mono.Time) {
	if d.handled++; d.then != nil {
		d.then()
	}
}

// A flood delays the timers of a shard that is late for each of its batches, but does not stop them.
func TestFloodLeavesTimers(t *testing.T) {
	for _, every := range []time.Duration{time.Microsecond, lateAfter, lateAfter + 1, 5 * lateAfter, time.Second} {
		d := new(deadlines)
		n := &NIC{qp1: d, epoch: time.Now()}
		s := newShard(n, 0, floodedPort{})
		n.shards = []*Shard{s}
		s.qp1.deadline = 0
		const seconds = 4
		start := mono.Time(0).Add(time.Second)
		for now := start; now < start.Add(seconds*time.Second); now = now.Add(max(every, 100*time.Microsecond)) {
			s.work(now)
		}
		if d.handled < seconds/2 {
			t.Errorf("a batch every %v: timers were handled %d times in %d s", every, d.handled, seconds)
		}
	}
}

// backlogPort is a port in which some packets wait, of which the driver returns a part at a time, fewer than a batch.
type backlogPort struct {
	link.Port
	left, part int
}

func (p *backlogPort) Recv(fr []link.Frame) (int, error) {
	n := min(p.left, p.part, len(fr))
	for i := range fr[:n] {
		fr[i] = link.Frame{Data: []byte("no packet")}
	}
	p.left -= n
	return n, nil
}

// A late shard handles all waiting packets before its timers: those of the driver, even if the driver returns them in
// small parts, and those from another shard or process.
func TestLateShardReceivesFirst(t *testing.T) {
	for _, test := range []struct {
		name                 string
		waiting, part, inbox int
	}{
		{"nothing", 0, 1, 0},
		{"full batches", 5 * link.Batch, link.Batch, 0},
		{"single packets", 5, 1, 0},
		{"packets from another shard", 0, 1, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := new(deadlines)
			n := &NIC{qp1: d, epoch: time.Now()}
			s := newShard(n, 0, &backlogPort{left: test.waiting, part: test.part})
			n.shards = []*Shard{s, newShard(n, 1, nil)}
			now := mono.Time(0).Add(time.Second)
			s.work(now)
			for range test.inbox {
				s.inbox.queue = append(s.inbox.queue, forwarded{Frame: link.Frame{Data: []byte("no packet")}})
			}
			d.handled, s.qp1.deadline = 0, now
			handled := s.drops.Malformed
			d.then = func() { handled = s.drops.Malformed }
			for range 2 * maxBacklog {
				now = now.Add(time.Microsecond)
				if s.work(now); d.handled > 0 {
					break
				}
			}
			if d.handled == 0 {
				t.Fatal("no timer was handled")
			}
			if want := uint64(test.waiting + test.inbox); handled != want {
				t.Errorf("timers were handled after %d packets, want %d", handled, want)
			}
		})
	}
}
