// Package madqueue decides when a driver reads its queue of management datagrams.
//
// Such a driver has two queues in the kernel: one for management datagrams (packets whose BTH names QP 1), and one for
// all others, the data. So a flood of management datagrams fills only the first queue, where the kernel drops the
// excess, and takes no room from the data. The driver reads the data first, and then a few management datagrams. If the
// management queue held more and data arrive, the driver pauses that queue for a while: it does not read the queue, and
// the queue does not end the driver's sleep.
package madqueue

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/link"
)

const (
	// Most is how many management datagrams one Recv returns. The device needs as much time for one of them as for many
	// data packets, which wait meanwhile.
	Most = 16

	// A driver that has found the queue empty idleReads times in a row reads it only once in idleTime, because each read
	// is a system call. Reading the clock also takes time, so the driver does that once in idleCalls calls of Recv.
	idleReads = 64
	idleCalls = 8
	idleTime  = 500 * time.Microsecond

	// If a driver gets as many management datagrams as it requested, and has got data within the last dataTime, it does
	// not read the management queue for pauseTime.
	pauseTime = time.Millisecond
	dataTime  = 10 * time.Millisecond
)

// start is the zero of the instants of a Schedule.
var start = time.Now()

// Schedule is the schedule of one driver. The zero value is ready. Only the owner of the Port calls its methods, except
// Pause, which any goroutine may call.
type Schedule struct {
	owed    bool // the data of the last Recv left no room
	begun   bool // this Recv has read the queue before the data
	small   bool // that read has left the data little room
	empty   int  // consecutive reads that found nothing
	skipped int  // calls of Recv since the last read
	due     bool // the last read is idleTime ago
	asked   int  // frames of the last Before or After

	data   bool          // data came since dataAt was set
	dataAt time.Duration // time of the last data, as of the last clock reading
	readAt time.Duration // time of the last read, while the queue is idle
	paused atomic.Int64  // end of the pause, a time.Duration; 0: no pause
	ready  atomic.Bool   // a sleep has found the queue readable since it was last read
	now    func() time.Duration
}

// clock reads the time: if a pause begins or continues, after idleCalls calls, and when an idle queue was read.
func (s *Schedule) clock() time.Duration {
	if s.now != nil {
		return s.now()
	}
	return time.Since(start)
}

// Pause returns how long the driver must not wait for the management queue; 0: it waits for both queues.
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

// Ready notes that the driver has slept and then found the management queue readable: the next Recv reads it. Any
// goroutine may call it.
func (s *Schedule) Ready() { s.ready.Store(true) }

// DataOnly reports whether the driver reads only the data now, because the management queue was empty for long. The
// driver then calls [Schedule.GotData] with the result instead of [Schedule.Recv]. This is the usual case of a program
// that polls.
func (s *Schedule) DataOnly() bool {
	return s.empty >= idleReads && !s.due && !s.owed && !s.begun && !s.ready.Load()
}

// GotData notes that the driver has read the data only, and got n packets for room frames.
func (s *Schedule) GotData(n, room int) {
	if s.skipped++; s.skipped%idleCalls == 0 {
		s.due = s.clock()-s.readAt > idleTime
	}
	if n > 0 {
		s.data, s.owed = true, n == room
	}
}

// Recv implements link.Port's Recv with two functions that fill frames: data from the data queue, mads from the
// management queue. It reads the data first.
func (s *Schedule) Recv(fr []link.Frame, data, mads func([]link.Frame) (int, error)) (n int, err error) {
	read := func(fr []link.Frame) (int, error) {
		if s.ready.Load() {
			s.ready.Store(false) // before the read: a sleep may end meanwhile
		}
		n, err := mads(fr)
		s.Read(n)
		if errors.Is(err, link.ErrDown) {
			err = nil // the kernel reports it once per socket; the data socket returns it, too
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
// before it reads the data. It is 0 unless the data filled the last batch. If they did, the management queue comes
// first, so that a stream of data does not starve it.
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
		s.begun, s.owed = false, left == 0 && !s.small // the data get the next small batch
		return 0
	}
	if left == 0 {
		s.owed = true
		return 0
	}
	if s.Pause() > 0 {
		return 0
	}
	s.asked = min(left, Most)
	return s.asked
}

// Read notes that the driver has read n datagrams from the management queue.
func (s *Schedule) Read(n int) {
	s.owed, s.due, s.skipped = false, false, 0
	if n == 0 {
		if s.empty++; s.empty >= idleReads {
			s.readAt = s.clock()
		}
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
	if s.dataAt != 0 && now-s.dataAt < dataTime {
		s.paused.Store(int64(now + pauseTime))
	}
}
