package madqueue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/link"
)

// full fills all frames, as a queue does that never runs empty. It counts them in sum.
func full(sum *int) func([]link.Frame) (int, error) {
	return func(fr []link.Frame) (int, error) { *sum += len(fr); return len(fr), nil }
}

// TestBusy: data that fill every batch do not starve the management queue, and the queue does
// not starve the data, whatever the room of a batch.
func TestBusy(t *testing.T) {
	for _, room := range []int{1, Most, Most + 1, 2 * Most, 128} {
		now := time.Hour
		s := Schedule{now: func() time.Duration { return now }}
		mads, data := 0, 0
		for range 100 {
			now += pauseTime // otherwise the queue is left alone for that long
			before := mads
			if n, err := s.Recv(make([]link.Frame, room), full(&data), full(&mads)); n != room || err != nil || mads-before > Most {
				t.Fatalf("%d frames, %d of them from the management queue, %v; want %d", n, mads-before, err, room)
			}
		}
		if want := 49 * min(room, Most); mads < want {
			t.Errorf("room for %d: %d management datagrams in 100 calls, want %d", room, mads, want)
		}
		if want := 50 * room; data < want {
			t.Errorf("room for %d: %d data packets in 100 calls, want %d", room, data, want)
		}
	}
}

// TestOrder: Recv returns the data that arrived before a management datagram, and before it, however late it reads
// either queue.
func TestOrder(t *testing.T) {
	frames := func(names ...string) (fr []link.Frame) {
		for _, name := range names {
			fr = append(fr, link.Frame{Data: []byte(name)})
		}
		return fr
	}
	for _, test := range []struct {
		data int // packets that arrived before the management datagrams
		want string
	}{{0, "mm"}, {1, "dmm"}, {20, "ddddddddddddddddddddmm"}} {
		var s Schedule
		waiting := 0
		read := func(fr []link.Frame) (int, error) {
			n := copy(fr, frames(strings.Split(strings.Repeat("d", waiting), "")...))
			waiting = 0
			return n, nil
		}
		fr := make([]link.Frame, 64)
		n, err := s.Recv(fr, read, func(fr []link.Frame) (int, error) {
			waiting = test.data // the driver was delayed: the data and then the datagrams arrive now
			return copy(fr, frames("m", "m")), nil
		})
		got := ""
		for _, f := range fr[:n] {
			got += string(f.Data)
		}
		if got != test.want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, test.want)
		}
	}
}

// TestErrors: an error of either queue is returned, except that of the management queue that the link is down, which the
// data queue returns, too. What the other queue gave is not lost.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	one := func(err error) func([]link.Frame) (int, error) {
		return func([]link.Frame) (int, error) { return 1, err }
	}
	for _, test := range []struct {
		data, mads error
		want       error
		n          int
	}{{nil, link.ErrDown, nil, 2}, {link.ErrDown, nil, link.ErrDown, 2}, {broken, nil, broken, 2}, {nil, broken, broken, 1}} {
		var s Schedule
		if n, err := s.Recv(make([]link.Frame, 64), one(test.data), one(test.mads)); n != test.n || err != test.want {
			t.Errorf("data %v, management %v: %d, %v; want %d, %v", test.data, test.mads, n, err, test.n, test.want)
		}
	}
}

// TestIdle: the driver reads an empty queue once in idleTime, whether it finds data or not, and one that was not empty at
// once. It reads the queue at once if that has ended a sleep.
func TestIdle(t *testing.T) {
	for _, test := range []struct {
		data    int           // packets in each call
		took    time.Duration // by each call
		between int           // calls between two reads
	}{
		{0, idleTime / 80, 80 + idleCalls},
		{1, idleTime / 80, 80 + idleCalls},
		{0, idleTime, idleCalls},
		{1, idleTime, idleCalls},
	} {
		var now time.Duration
		s := Schedule{now: func() time.Duration { return now }}
		found := 0
		fr := make([]link.Frame, 128)
		reads := func(calls int) (n int) {
			for range calls {
				now += test.took
				if s.DataOnly() {
					s.GotData(test.data)
					continue
				}
				s.Recv(fr, func([]link.Frame) (int, error) { return test.data, nil }, func([]link.Frame) (int, error) { n++; return found, nil })
			}
			return n
		}
		want := func(calls, want int, when string) {
			t.Helper()
			if n := reads(calls); n != want {
				t.Errorf("%d packets and %v in each call, %s: %d of %d calls read the queue, want %d", test.data, test.took, when, n, calls, want)
			}
		}
		want(idleReads, idleReads, "at first")
		for range 3 {
			want(test.between, 0, "idle")
			want(1, 1, "idle for long")
		}
		s.Ready()
		want(1, 1, "after a sleep that the queue ended")
		want(test.between, 0, "behind that")
		found = 1
		want(1, 1, "with a datagram")
		found = 0
		want(idleReads, idleReads, "behind a datagram")
	}
}

// TestPause: a management queue that is always full is read once in a pause while data come,
// and in every Recv when they have ended.
func TestPause(t *testing.T) {
	now := time.Hour
	s := Schedule{now: func() time.Duration { return now }}
	reads := func(data int, tick time.Duration) (n int) {
		for range 100 {
			s.Recv(make([]link.Frame, 128), func([]link.Frame) (int, error) { return data, nil },
				func(fr []link.Frame) (int, error) { n++; return len(fr), nil })
			now += tick
		}
		return n
	}
	if n := reads(0, pauseTime/10); n != 100 || s.Pause() != 0 {
		t.Errorf("%d of 100 calls without data read the queue", n)
	}
	for _, data := range []int{1, 127, 128} {
		if n := reads(data, pauseTime/10); n < 9 || n > 11 {
			t.Errorf("%d of 100 calls in 10 pauses, with %d packets of data each, read the queue", n, data)
		}
		now += pauseTime
		if reads(data, 0); s.Pause() != pauseTime {
			t.Errorf("the driver does not wait for the queue for %v, want %v", s.Pause(), pauseTime)
		}
		now += pauseTime
	}
	reads(0, dataTime/50)
	if n := reads(0, pauseTime/10); n != 100 {
		t.Errorf("%d of 100 calls after the data read the queue", n)
	}
	// A queue that is not full does not pause.
	few := 0
	for range 100 {
		s.Recv(make([]link.Frame, 128), func([]link.Frame) (int, error) { return 64, nil },
			func(fr []link.Frame) (int, error) { few++; return 1, nil })
	}
	if few != 100 {
		t.Errorf("%d of 100 calls read a queue of few datagrams", few)
	}
}

// TestPauseDuringRecv: one goroutine calls Pause while another one receives, as a Port permits. It is a test for the
// race detector.
func TestPauseDuringRecv(t *testing.T) {
	var s Schedule
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			s.Recv(make([]link.Frame, 2*Most), func([]link.Frame) (int, error) { return 1, nil },
				func(fr []link.Frame) (int, error) { return len(fr), nil })
		}
	}()
	for range 100 {
		if p := s.Pause(); p < 0 || p > pauseTime {
			t.Errorf("a pause of %v, want at most %v", p, pauseTime)
		}
	}
	<-done
}
