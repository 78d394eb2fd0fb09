// Package doze makes a goroutine sleep until non-blocking sockets are ready.
//
// Sleeping in poll(2) would keep the goroutine's P in a system call: goroutines that become ready meanwhile would
// wait until the runtime's monitor takes the P away, up to 10 ms. So the goroutine sleeps in the runtime's poller
// instead. The sockets are registered in an epoll of this package, and that epoll in the runtime's poller. Each
// socket but those of [Sleeper.Add] is armed for one event just before the sleep and disarmed after it, so packets
// that come while no goroutine sleeps wake no thread. Sockets on which no goroutine sleeps any more, like those of a
// polling device, are not registered: the kernel looks at the epoll for each packet that comes or goes.
package doze

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sleeper lets one goroutine at a time sleep, and any goroutine wake it.
type Sleeper struct {
	watched []watched
	rare    int // watched[rare:] are those of Add

	epoll int      // watches fds and event
	file  *os.File // of epoll, registered in the runtime's poller
	conn  syscall.RawConn
	event int // an eventfd that ends a nap
	look  func(uintptr) bool

	woken   atomic.Bool
	napping atomic.Bool // in ppoll

	// For Busy.
	asleep     sync.Mutex    // held during a sleep
	sleeps     atomic.Uint32 // number of sleeps
	registered atomic.Bool   // some of watched[:rare] are in the epoll
	packets    int           // calls of Busy since the sleep of that number
	since      uint32

	// State of the current sleep.
	want   uint32
	sole   bool // only the first descriptor counts
	added  bool // a descriptor of Add is readable, or ready has not looked
	broken bool
	errno  unix.Errno
	polls  [1]unix.PollFd
	limit  unix.Timespec
	events [8]unix.EpollEvent
}

// watched is a descriptor.
type watched struct {
	fd    int
	known bool   // it is in the epoll
	armed uint32 // events that it is armed for; 0: none
}

// New returns a sleeper for fds. The caller owns them and must keep them open until [Sleeper.Close].
func New(fds ...int) (*Sleeper, error) {
	s := &Sleeper{rare: len(fds), event: -1}
	for _, fd := range fds {
		s.Add(fd)
	}
	s.look = s.ready
	var err error
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// The runtime's poller takes only non-blocking descriptors.
	unix.SetNonblock(s.epoll, true)
	s.file = os.NewFile(uintptr(s.epoll), "epoll")
	if err := s.setUp(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Add adds a descriptor that the caller owns and that is rarely readable. Call it before the first sleep. The
// descriptor stays armed after a sleep, which saves two system calls a sleep and costs a wake-up of a thread for an
// event while nobody sleeps.
func (s *Sleeper) Add(fd int) { s.watched = append(s.watched, watched{fd: fd}) }

// Sole sets whether later sleeps watch only the first descriptor. A descriptor that was watched before may still end
// one sleep. Only the goroutine that sleeps may call it.
func (s *Sleeper) Sole(on bool) { s.sole = on }

// Added reports whether a descriptor of Add was readable in the last sleep, or nobody looked because the sleep was over
// before it began. If it becomes readable later, it ends the next sleep. Only the goroutine that sleeps may call it.
func (s *Sleeper) Added() bool { return s.added }

// eventID marks events of the eventfd in the epoll. Those of fds have their index.
const eventID = -1

// setUp does the part of New after the creation of the epoll.
func (s *Sleeper) setUp() (err error) {
	if s.conn, err = s.file.SyscallConn(); err != nil {
		return err
	}
	// Fail if the descriptor is not in the runtime's poller: a sleep would return at once.
	if err := s.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("register at the runtime's poller: %w", err)
	}
	if s.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		s.event = -1
		return os.NewSyscallError("eventfd", err)
	}
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: eventID}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, s.event, &e))
}

// nap is the longest sleep in ppoll: the runtime's poller has a resolution of milliseconds.
const nap = 500 * time.Microsecond

// Sleep returns when one of the descriptors is readable; if room is set, also when the first one is writable;
// after d, unless d is negative; or when a goroutine calls [Sleeper.Wake], or has called it since the last sleep.
// broken says whether a descriptor has an error or is hung up; errno is the error of a system call, or 0.
func (s *Sleeper) Sleep(d time.Duration, room bool) (broken bool, errno unix.Errno) {
	s.asleep.Lock()
	defer s.asleep.Unlock()
	s.sleeps.Add(1)
	s.want = unix.EPOLLIN
	if room {
		s.want |= unix.EPOLLOUT
	}
	s.added, s.broken, s.errno = true, false, 0
	switch {
	case d == 0:
		s.look(0)
	case d > 0 && d < nap:
		s.nap(d)
	default:
		var end time.Time
		if d > 0 {
			end = time.Now().Add(d)
		}
		// Set the deadline before the sleep begins: set later, it could undo a Wake.
		s.file.SetReadDeadline(end)
		if err := s.conn.Read(s.look); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			s.errno = unix.EBADF
		}
	}
	s.disarm()
	s.woken.Store(false)
	return s.broken, s.errno
}

// disarm disarms the descriptors after a sleep that no event ended. Otherwise each packet that comes while no
// goroutine sleeps would make the epoll ready, and wake a thread of the runtime.
func (s *Sleeper) disarm() {
	for i := range s.watched[:s.rare] {
		if s.watched[i].armed != 0 {
			s.arm(i, 0)
		}
	}
}

// arm requests one event of a descriptor, or none if want is 0.
func (s *Sleeper) arm(i int, want uint32) unix.Errno {
	w := &s.watched[i]
	how := unix.EPOLL_CTL_MOD
	if !w.known {
		how = unix.EPOLL_CTL_ADD
	}
	e := unix.EpollEvent{Events: want | unix.EPOLLONESHOT, Fd: int32(i)}
	errno := s.control(how, w.fd, &e)
	if errno == 0 {
		w.known, w.armed = true, want
		if i < s.rare && !s.registered.Load() {
			s.registered.Store(true)
		}
	}
	return errno
}

// control is epoll_ctl.
func (s *Sleeper) control(how, fd int, e *unix.EpollEvent) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(s.epoll), uintptr(how), uintptr(fd), uintptr(unsafe.Pointer(e)), 0, 0)
	return errno
}

// busy is the number of receives without a sleep after which no goroutine is likely to sleep soon.
const busy = 1024

// Busy records a successful receive. After many without a sleep it removes the descriptors, other than those of Add,
// from the epoll; the next sleep registers them again. Only the goroutine that receives may call it, while the
// descriptors are open. A nil Sleeper has no descriptors.
func (s *Sleeper) Busy() {
	if s != nil && s.registered.Load() {
		s.received()
	}
}

func (s *Sleeper) received() {
	if now := s.sleeps.Load(); now != s.since {
		s.since, s.packets = now, 0
	}
	if s.packets++; s.packets < busy || !s.asleep.TryLock() {
		return
	}
	defer s.asleep.Unlock()
	for i := range s.watched[:s.rare] {
		if w := &s.watched[i]; w.known && s.control(unix.EPOLL_CTL_DEL, w.fd, nil) == 0 {
			w.known, w.armed = false, 0
		}
	}
	s.registered.Store(false)
}

// ready reports whether the sleep is over.
func (s *Sleeper) ready(uintptr) bool {
	if s.woken.Load() {
		return true
	}
	for i := range s.watched {
		want := s.want
		if i > 0 {
			if s.sole {
				break
			}
			want &^= unix.EPOLLOUT
		}
		if s.watched[i].armed == want {
			continue
		}
		if errno := s.arm(i, want); errno != 0 {
			s.errno = errno // the kernel has no memory, or the user has too many watches
			return true
		}
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.epoll), uintptr(unsafe.Pointer(&s.events)), uintptr(len(s.events)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		s.errno = errno
		return true
	}
	if errno != 0 {
		return false
	}
	s.added = false
	for _, e := range s.events[:n] {
		if e.Fd == eventID {
			var count [8]byte
			unix.Read(s.event, count[:])
			continue
		}
		s.watched[e.Fd].armed = 0
		s.added = s.added || int(e.Fd) >= s.rare
		s.broken = s.broken || e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
	}
	return n > 0
}

// nap sleeps in the kernel.
func (s *Sleeper) nap(d time.Duration) {
	s.napping.Store(true)
	defer s.napping.Store(false)
	if s.ready(0) {
		return
	}
	s.polls[0] = unix.PollFd{Fd: int32(s.epoll), Events: unix.POLLIN}
	s.limit = unix.NsecToTimespec(int64(d))
	n, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.polls)), 1, uintptr(unsafe.Pointer(&s.limit)), 0, 0, 0)
	switch {
	case errno != 0 && errno != unix.EINTR:
		s.errno = errno
	case n > 0 && errno == 0:
		s.ready(0)
	}
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Wake ends a sleep, or the next one if no goroutine sleeps.
func (s *Sleeper) Wake() {
	switch {
	case s.woken.Swap(true):
		// An earlier Wake already ends the sleep.
	case s.napping.Load():
		one := [8]byte{7: 1} // not zero in any byte order
		unix.Write(s.event, one[:])
	default:
		s.file.SetReadDeadline(past)
	}
}

// Close releases the sleeper's resources. No goroutine may sleep. A nil Sleeper has none.
func (s *Sleeper) Close() {
	if s == nil {
		return
	}
	if s.event >= 0 {
		unix.Close(s.event)
	}
	s.file.Close()
}
