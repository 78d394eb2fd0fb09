// Package madqueue decides when a driver reads its queue of management datagrams.
//
// Such a driver has two queues in the kernel: one for management datagrams (packets whose BTH names QP 1), and one for
// all others, the data. So a flood of management datagrams fills only the first queue, where the kernel drops the
// excess, and takes no room from the data. If the management queue held more than the driver reads at once, and data
// arrive, the driver pauses that queue for a while: it does not read the queue, and the queue does not end the driver's
// sleep.
//
// A management datagram does not overtake data that arrived before it: a peer that ends a connection sends its last
// acknowledgement first. So the driver reads a few management datagrams before the data, and holds them back until a read
// of the data finds nothing. If that does not happen for some time, they overtake.
package madqueue

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/link"
)

const (
	// Most is how many management datagrams the driver reads at once. The device needs as much time for one of them as
	// for many data packets, which wait meanwhile.
	Most = 16

	// Management datagrams are delivered after patience reads of data at the latest.
	patience = 8

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
// Pause, Ready and Holds, which any goroutine may call.
type Schedule struct {
	empty   int  // consecutive reads that found nothing
	skipped int  // calls of Recv since the last read
	due     bool // the last read is idleTime ago

	room   [Most]link.Frame
	held   []link.Frame // of room: management datagrams that Recv has not returned
	passed int          // reads of data since they were read
	holds  atomic.Bool  // there are some

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
	return s.empty >= idleReads && !s.due && len(s.held) == 0 && !s.ready.Load()
}

// GotData notes that the driver has read the data only, and got n packets.
func (s *Schedule) GotData(n int) {
	if s.skipped++; s.skipped%idleCalls == 0 {
		s.due = s.clock()-s.readAt > idleTime
	}
	s.data = s.data || n > 0
}

// Recv implements link.Port's Recv with two functions that fill frames: data from the data queue, mads from the
// management queue. It calls each once at most: a second call would overwrite the frames of the first.
func (s *Schedule) Recv(fr []link.Frame, data, mads func([]link.Frame) (int, error)) (n int, err error) {
	if len(s.held) == 0 && s.Pause() == 0 {
		err = s.read(mads)
	}
	if s.passed == patience {
		n = s.deliver(fr)
	}
	if n == len(fr) {
		return n, err
	}
	k, derr := data(fr[n:])
	if n += k; k > 0 {
		s.data = true
		if len(s.held) > 0 {
			s.passed++
		}
	} else {
		n += s.deliver(fr[n:])
	}
	return n, cmp.Or(derr, err)
}

// read fills held from the management queue, which is empty.
func (s *Schedule) read(mads func([]link.Frame) (int, error)) error {
	if s.ready.Load() {
		s.ready.Store(false) // before the read: a sleep may end meanwhile
	}
	n, err := mads(s.room[:])
	s.hold(s.room[:n])
	s.got(n)
	if errors.Is(err, link.ErrDown) {
		return nil // the kernel reports it once per socket; the data socket returns it, too
	}
	return err
}

// deliver moves frames from held to fr.
func (s *Schedule) deliver(fr []link.Frame) (n int) {
	n = copy(fr, s.held)
	s.hold(s.held[n:])
	return n
}

func (s *Schedule) hold(fr []link.Frame) {
	s.held, s.passed = fr, 0
	if some := len(fr) > 0; some != s.holds.Load() {
		s.holds.Store(some)
	}
}

// Holds reports whether Recv has management datagrams left: the driver must not sleep. Any goroutine may call it.
func (s *Schedule) Holds() bool { return s.holds.Load() }

// got notes that the driver has read n datagrams from the management queue, of at most Most.
func (s *Schedule) got(n int) {
	s.due, s.skipped = false, 0
	if n == 0 {
		if s.empty++; s.empty >= idleReads {
			s.readAt = s.clock()
		}
		return
	}
	s.empty = 0
	if n < Most {
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
