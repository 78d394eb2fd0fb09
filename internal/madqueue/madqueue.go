// Package madqueue says when a driver reads its queue of management datagrams.
//
// Such a driver has two queues in the kernel: one for packets whose BTH names QP 1, and
// one for all others, the data. A flood of management datagrams then fills its own queue,
// and the kernel drops what does not fit; it takes no room from the data. The driver
// reads the data first, and a few management datagrams after it. While data arrive it then
// leaves a queue that held more alone for a while: neither does it read the queue, nor does
// the queue end its sleep.
package madqueue

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/link"
)

const (
	// Most is how many management datagrams one Recv hands out. One of them costs the
	// device as much time as many data packets, and those wait meanwhile.
	Most = 16

	// A driver that has found the queue empty idle times in a row reads it in one of
	// every looks calls of Recv: each read is a system call.
	idle  = 64
	looks = 4

	// A driver that has got as many management datagrams as it asked for, and data within
	// the last flowing, does not read the management queue for pause.
	pause   = time.Millisecond
	flowing = 10 * time.Millisecond
)

// start is what the instants of a Schedule count from.
var start = time.Now()

// Schedule is the schedule of one driver. The zero value is ready. The owner of the Port
// uses it; Pause is for every goroutine.
type Schedule struct {
	owed    bool // the data of the last Recv left no room
	begun   bool // this Recv has read the queue before the data
	small   bool // and left the data little room
	empty   int  // reads in a row that found nothing
	skipped int  // calls of Recv since the last read
	asked   int  // frames of the last Before or After

	data   bool          // data came since dataAt was set
	dataAt time.Duration // data came last, when the clock was last read
	paused atomic.Int64  // until then, a time.Duration, the queue is not read; 0: it is read
	now    func() time.Duration
}

// clock reads the time. It is read only if a pause begins or goes on.
func (s *Schedule) clock() time.Duration {
	if s.now != nil {
		return s.now()
	}
	return time.Since(start)
}

// Pause returns how long the driver must not wait for the management queue; 0: it waits for
// it as for the data.
func (s *Schedule) Pause() time.Duration {
	until := s.paused.Load()
	if until == 0 {
		return 0
	}
	left := time.Duration(until) - s.clock()
	if left <= 0 {
		s.paused.CompareAndSwap(until, 0) // unless the next pause has begun
		return 0
	}
	return left
}

// Recv implements link.Port's Recv by two functions that fill frames: data from the data,
// mads from the management queue. It reads the data first.
func (s *Schedule) Recv(fr []link.Frame, data, mads func([]link.Frame) (int, error)) (n int, err error) {
	read := func(fr []link.Frame) (int, error) {
		n, err := mads(fr)
		s.Read(n)
		if errors.Is(err, link.ErrDown) {
			err = nil // the kernel tells each socket once, and the other one reports it
		}
		return n, err
	}
	if before := s.Before(len(fr)); before > 0 {
		if n, err = read(fr[:before]); err != nil {
			return n, err
		}
	}
	k, err := data(fr[n:])
	s.data = s.data || k > 0
	if n += k; err != nil {
		return n, err
	}
	if after := s.After(len(fr) - n); after > 0 {
		k, err = read(fr[n : n+after])
		n += k
	}
	return n, err
}

// Before returns how many of room frames the driver fills from the management queue
// before it reads the data. It is 0 unless the data filled the last batch: without this a
// stream of data would starve the management queue.
func (s *Schedule) Before(room int) int {
	s.begun, s.small = s.owed && s.Pause() == 0, room < 2*Most
	if !s.begun {
		return 0
	}
	s.asked = min(room, Most)
	return s.asked
}

// After returns how many frames the driver fills from the management queue after the
// data, which have left room for left frames; 0: it does not read the queue now.
//
// One Recv reads the queue once: a second read would overwrite the frames of the first.
func (s *Schedule) After(left int) int {
	if s.begun {
		s.begun, s.owed = false, left == 0 && !s.small // the next small batch is for the data
		return 0
	}
	if left == 0 {
		s.owed = true
		return 0
	}
	if s.empty >= idle && s.skipped < looks-1 {
		s.skipped++
		return 0
	}
	if s.Pause() > 0 {
		return 0
	}
	s.asked = min(left, Most)
	return s.asked
}

// Read tells the schedule that the driver has read the management queue and has got n
// datagrams.
func (s *Schedule) Read(n int) {
	s.owed, s.skipped = false, 0
	if n == 0 {
		s.empty++
		return
	}
	s.empty = 0
	if n < s.asked {
		return
	}
	now := s.clock()
	if s.data {
		s.data, s.dataAt = false, now
	}
	if s.dataAt != 0 && now-s.dataAt < flowing {
		s.paused.Store(int64(now + pause))
	}
}
