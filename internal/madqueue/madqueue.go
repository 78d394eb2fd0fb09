// Package madqueue decides when a driver reads its queue of management datagrams.
//
// Such a driver has two queues in the kernel: one for management datagrams (packets whose BTH names QP 1), and one for
// all others, the data. So a flood of management datagrams fills only the first queue, where the kernel drops the
// excess, and takes no room from the data. The driver reads a few management datagrams, then the data, and delivers the
// data first: a peer that ends a connection sends its last acknowledgement before the management datagram, and that
// must not overtake it. (It may if more data wait than one Recv returns.) If the management queue held more and data
// arrive, the driver pauses that queue for a while: it does not read the queue, and the queue does not end the driver's
// sleep.
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
	small   bool // the management datagrams of the last Recv have left the data little room
	empty   int  // consecutive reads that found nothing
	skipped int  // calls of Recv since the last read
	due     bool // the last read is idleTime ago

	late [Most]link.Frame // the management datagrams of this Recv

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
	return s.empty >= idleReads && !s.due && !s.ready.Load()
}

// GotData notes that the driver has read the data only, and got n packets.
func (s *Schedule) GotData(n int) {
	if s.skipped++; s.skipped%idleCalls == 0 {
		s.due = s.clock()-s.readAt > idleTime
	}
	s.data = s.data || n > 0
}

// Recv implements link.Port's Recv with two functions that fill frames: data from the data queue, mads from the
// management queue. It calls mads once at most: a second call would overwrite the frames of the first.
func (s *Schedule) Recv(fr []link.Frame, data, mads func([]link.Frame) (int, error)) (n int, err error) {
	late := s.late[:0]
	if ask := s.asks(len(fr)); ask > 0 {
		if s.ready.Load() {
			s.ready.Store(false) // before the read: a sleep may end meanwhile
		}
		n, err = mads(s.late[:ask])
		late = s.late[:n]
		s.got(n, ask)
		s.small = n > 0 && len(fr) < 2*Most
		if errors.Is(err, link.ErrDown) {
			err = nil // the kernel reports it once per socket; the data socket returns it, too
		}
	}
	n = 0
	if room := len(fr) - len(late); err == nil && room > 0 {
		n, err = data(fr[:room])
		s.data = s.data || n > 0
	}
	return n + copy(fr[n:], late), err
}

// asks returns how many of room frames the driver requests from the management queue; 0: it does not read it now.
func (s *Schedule) asks(room int) int {
	if s.Pause() > 0 || s.small {
		s.small = false
		return 0
	}
	return min(room, Most)
}

// got notes that the driver has read n datagrams from the management queue, of at most asked.
func (s *Schedule) got(n, asked int) {
	s.due, s.skipped = false, 0
	if n == 0 {
		if s.empty++; s.empty >= idleReads {
			s.readAt = s.clock()
		}
		return
	}
	s.empty = 0
	if n < asked {
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
