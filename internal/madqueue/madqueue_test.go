package madqueue

import "testing"

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

// TestBounds: never more than there is room for, nor more than Most.
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

// TestIdle: an empty queue is read rarely, one that was not empty at once.
func TestIdle(t *testing.T) {
	var s Schedule
	reads := func(calls int) (n int) {
		for range calls {
			if s.After(128) > 0 {
				s.Read(0)
				n++
			}
		}
		return n
	}
	if n := reads(idle); n != idle {
		t.Errorf("%d of the first %d calls read", n, idle)
	}
	if n := reads(100 * looks); n != 100 {
		t.Errorf("%d of %d calls read an idle queue, want 100", n, 100*looks)
	}
	s.Read(1)
	if n := reads(idle); n != idle {
		t.Errorf("%d of %d calls read after a datagram", n, idle)
	}
}
