package madqueue

import (
	"errors"
	"testing"
	"time"

	"github.com/goroce/roce/link"
)

// full fills all frames, as a queue does that never runs empty. It counts them in sum.
func full(sum *int) func([]link.Frame) (int, error) {
	return func(fr []link.Frame) (int, error) { *sum += len(fr); return len(fr), nil }
}

// queue is a queue of named packets. A read returns most of them, at most.
type queue struct {
	names string
	most  int
}

func (q *queue) read(fr []link.Frame) (n int, err error) {
	for n < min(q.most, len(fr), len(q.names)) {
		fr[n] = link.Frame{Data: []byte(q.names[n : n+1])}
		n++
	}
	q.names = q.names[n:]
	return n, nil
}

// TestBusy: data that fill every batch do not starve the management queue, and the queue does
// not starve the data, whatever the room of a batch.
func TestBusy(t *testing.T) {
	for _, room := range []int{1, Most, Most + 1, 128} {
		now := time.Hour
		s := Schedule{now: func() time.Duration { return now }}
		mads, data := 0, 0
		for range 100 {
			now += pauseTime // otherwise the queue is left alone for that long
			if n, err := s.Recv(make([]link.Frame, room), full(&data), full(&mads)); n != room || err != nil {
				t.Fatalf("%d frames, %v; want %d", n, err, room)
			}
		}
		given := 100*room - data
		if want := 100 / (patience + 1) * min(room, Most); given < want {
			t.Errorf("room for %d: %d management datagrams in 100 calls, want %d", room, given, want)
		}
		if want := 100 * room * (patience - 1) / (patience + 1); data < want {
			t.Errorf("room for %d: %d data packets in 100 calls, want %d", room, data, want)
		}
	}
}

// TestOrder: Recv returns the data that arrived before a management datagram before it, however late and however few at
// a time it reads them. Meanwhile the driver must not sleep.
func TestOrder(t *testing.T) {
	for _, room := range []int{1, 2, 64} {
		for _, most := range []int{1, 2, 64} {
			for waiting := range patience {
				var s Schedule
				data, mads := queue{most: most}, queue{names: "mn", most: Most}
				names := "abcdefghijk"[:waiting]
				got := ""
				fr := make([]link.Frame, room)
				for first := true; first || s.Holds(); first = false {
					n, err := s.Recv(fr, data.read, func(fr []link.Frame) (int, error) {
						if first { // the driver was delayed: the data and then the datagrams arrive now
							data.names = names
						}
						return mads.read(fr)
					})
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range fr[:n] {
						got += string(f.Data)
					}
				}
				if want := names + "mn"; got != want {
					t.Errorf("room for %d, %d at a time: %q, want %q", room, most, got, want)
				}
			}
		}
	}
}

// TestErrors: an error of either queue is returned, except that of the management queue that the link is down, which the
// data queue returns, too. What the other queue has is returned all the same.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	one := func(err error) func([]link.Frame) (int, error) {
		return func([]link.Frame) (int, error) { return 1, err }
	}
	none := func(err error) func([]link.Frame) (int, error) {
		return func([]link.Frame) (int, error) { return 0, err }
	}
	for _, test := range []struct {
		data, mads error
		want       error
	}{{nil, link.ErrDown, nil}, {link.ErrDown, nil, link.ErrDown}, {broken, nil, broken}, {nil, broken, broken}} {
		var s Schedule
		if n, err := s.Recv(make([]link.Frame, 64), none(test.data), one(test.mads)); n != 1 || err != test.want {
			t.Errorf("data %v, management %v: %d management datagrams, %v; want %v", test.data, test.mads, n, err, test.want)
		}
		if n, err := new(Schedule).Recv(make([]link.Frame, 64), one(test.data), none(test.mads)); n != 1 || err != test.want {
			t.Errorf("data %v, management %v: %d data packets, %v; want %v", test.data, test.mads, n, err, test.want)
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
		want(patience*test.data, 0, "holding it")
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
	if few < 100/(patience+1) || s.Pause() != 0 {
		t.Errorf("%d of 100 calls read a queue of few datagrams, pause %v", few, s.Pause())
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
