package madqueue

import (
	"testing"
	"time"

	"github.com/goroce/roce/link"
)

// TestBusy: data that fill every batch do not starve the management queue, and the queue does
// not starve the data, whatever the room of a batch.
func TestBusy(t *testing.T) {
	for _, room := range []int{1, Most, Most + 1, 128} {
		var s Schedule
		mads, data := 0, 0
		for range 100 {
			n := s.Before(room)
			if n > 0 {
				s.Read(n)
				mads += n
			}
			data += room - n
			if n := s.After(0); n != 0 {
				t.Fatalf("%d frames without room", n)
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

// TestBounds: Before and After return at most the room, and at most Most.
func TestBounds(t *testing.T) {
	for _, test := range []struct{ room, want int }{{1, 1}, {Most, Most}, {128, Most}} {
		s := Schedule{owed: true}
		if n := s.Before(test.room); n != test.want {
			t.Errorf("Before(%d) = %d, want %d", test.room, n, test.want)
		}
		s = Schedule{}
		if n := s.After(test.room); n != test.want {
			t.Errorf("After(%d) = %d, want %d", test.room, n, test.want)
		}
	}
}

// TestOnce: a Recv that has read the queue before the data does not read it after them.
func TestOnce(t *testing.T) {
	s := Schedule{owed: true}
	for i := range 2 {
		read := 0
		if n := s.Before(128); n > 0 {
			read++
			s.Read(n)
		}
		if n := s.After(64); n > 0 {
			read++
			s.Read(n)
		}
		if read != 1 {
			t.Errorf("call %d reads the queue %d times, want once", i, read)
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
					s.GotData(test.data, len(fr))
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
		s.GotData(len(fr), len(fr))
		want(1, 1, "with a full batch of data")
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
