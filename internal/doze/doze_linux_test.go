package doze

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/scarce"
)

// sleepKinds are the kinds of sleep, each with a duration that selects it.
var sleepKinds = []struct {
	name string
	d    time.Duration
}{
	{"poller", -1},
	{"poller, with an end", time.Minute},
	{"nap", nap - 1},
}

func newPair(t *testing.T) (s *Sleeper, fd, other int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = New(pair[0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		unix.Close(pair[0])
		unix.Close(pair[1])
	})
	return s, pair[0], pair[1]
}

// addPair adds one end of a pair of sockets.
func addPair(t *testing.T, s *Sleeper) (pair [2]int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
	s.Add(pair[0])
	return pair
}

func send(t *testing.T, fd int) {
	t.Helper()
	if err := unix.Send(fd, []byte{1}, 0); err != nil {
		t.Fatal(err)
	}
}

func drain(fd int) (n int) {
	var b [64]byte
	for {
		if _, err := unix.Read(fd, b[:]); err != nil {
			return n
		}
		n++
	}
}

func sleep(t *testing.T, s *Sleeper, d time.Duration, room bool) {
	t.Helper()
	if broken, errno := s.Sleep(d, room); broken || errno != 0 {
		t.Fatalf("Sleep: broken %v, %v", broken, errno)
	}
}

// TestReadable: data that came before the sleep end it, as do data that come during it. Unread data end every later
// sleep.
func TestReadable(t *testing.T) {
	for _, w := range sleepKinds {
		t.Run(w.name, func(t *testing.T) {
			s, fd, other := newPair(t)
			for range 100 {
				send(t, other)
				sleep(t, s, w.d, false)
				sleep(t, s, w.d, false)
				if drain(fd) != 1 {
					t.Fatal("the datagram is lost")
				}
			}
			var done sync.WaitGroup
			defer done.Wait()
			const n = 2000
			turn := make(chan struct{})
			done.Go(func() {
				for range n {
					<-turn
					send(t, other)
				}
			})
			for range n {
				turn <- struct{}{}
				for drain(fd) == 0 {
					sleep(t, s, w.d, false)
				}
			}
		})
	}
}

// TestEnd: a sleep without an event lasts for its duration, and a sleep of duration 0 returns at once.
func TestEnd(t *testing.T) {
	s, _, _ := newPair(t)
	for _, d := range []time.Duration{0, nap / 2, nap - 1, nap, 3 * nap} {
		start := time.Now()
		sleep(t, s, d, false)
		if took := time.Since(start); took < d {
			t.Errorf("slept %v, want at least %v", took, d)
		}
	}
}

// TestRoom: a sleep with room lasts while there is no room, and readable data end it, too. Room does not end a sleep
// without room.
func TestRoom(t *testing.T) {
	for _, w := range sleepKinds {
		t.Run(w.name, func(t *testing.T) {
			s, fd, other := newPair(t)
			sleep(t, s, w.d, true)
			for unix.Send(fd, []byte{1}, 0) == nil {
			}
			send(t, other)
			sleep(t, s, w.d, true)
			drain(fd)
			var done sync.WaitGroup
			done.Go(func() { drain(other) })
			for unix.Send(fd, []byte{1}, 0) != nil {
				sleep(t, s, w.d, true)
			}
			done.Wait()
			start := time.Now()
			if sleep(t, s, 2*time.Millisecond, false); time.Since(start) < 2*time.Millisecond {
				t.Error("waked by room nobody waits for")
			}
		})
	}
}

// TestSole: only the first descriptor ends a sleep after Sole(true), except one that was watched before. Every
// descriptor ends a sleep after Sole(false).
func TestSole(t *testing.T) {
	for _, w := range sleepKinds {
		t.Run(w.name, func(t *testing.T) {
			s, _, other := newPair(t)
			pair := addPair(t, s)
			send(t, pair[1])
			sleep(t, s, w.d, false) // watches both
			s.Sole(true)
			sleep(t, s, 0, false)
			start := time.Now()
			if sleep(t, s, 2*time.Millisecond, false); time.Since(start) < 2*time.Millisecond {
				t.Error("waked by the second descriptor")
			}
			send(t, other)
			sleep(t, s, w.d, false)
			s.Sole(false)
			drain(s.watched[0].fd)
			sleep(t, s, w.d, false)
		})
	}
}

// TestAdded: a descriptor of Add ends a sleep, also if it became readable while nobody slept, and Added reports it. It
// stays armed until then.
func TestAdded(t *testing.T) {
	for _, w := range sleepKinds {
		t.Run(w.name, func(t *testing.T) {
			s, fd, other := newPair(t)
			pair := addPair(t, s)
			for range 3 {
				send(t, other)
				if sleep(t, s, w.d, false); s.Added() || s.watched[0].armed != 0 || s.watched[1].armed == 0 {
					t.Fatalf("a packet at the first descriptor: Added %v, descriptors %+v", s.Added(), s.watched)
				}
				drain(fd)
				send(t, pair[1])
				if sleep(t, s, w.d, false); !s.Added() || s.watched[1].armed != 0 {
					t.Fatalf("a packet at the second descriptor: Added %v, descriptors %+v", s.Added(), s.watched)
				}
				if sleep(t, s, w.d, false); !s.Added() {
					t.Fatal("a packet that nobody has read ends no sleep")
				}
				drain(pair[0])
			}
			if sleep(t, s, time.Microsecond, false); s.Added() {
				t.Error("Added without a packet")
			}
			s.Wake()
			if sleep(t, s, w.d, false); !s.Added() {
				t.Error("not Added although the sleep was over before it began")
			}
		})
	}
}

// TestWake: a Wake ends the current sleep, or the next one, and only that.
func TestWake(t *testing.T) {
	for _, w := range sleepKinds {
		t.Run(w.name, func(t *testing.T) {
			s, _, _ := newPair(t)
			s.Wake()
			s.Wake()
			sleep(t, s, w.d, false)
			var done sync.WaitGroup
			for range 2000 {
				done.Go(s.Wake)
				sleep(t, s, w.d, false)
				done.Wait()
				sleep(t, s, 0, false) // takes a possible second Wake
			}
		})
	}
	s, _, _ := newPair(t)
	s.Wake()
	sleep(t, s, -1, false)
	start := time.Now()
	if sleep(t, s, 2*time.Millisecond, false); time.Since(start) < 2*time.Millisecond {
		t.Error("one Wake ended two sleeps")
	}
}

// TestBroken: Sleep reports a descriptor that is hung up.
func TestBroken(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	s, err := New(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	unix.Close(pair[1])
	if broken, errno := s.Sleep(-1, false); !broken || errno != 0 {
		t.Errorf("broken %v, %v", broken, errno)
	}
}

// TestSeveral: any of several descriptors ends the sleep.
func TestSeveral(t *testing.T) {
	var fds, others []int
	for range 12 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		fds, others = append(fds, pair[0]), append(others, pair[1])
	}
	s, err := New(fds...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		for _, o := range others {
			send(t, o)
		}
		sleep(t, s, -1, true)
		for i, fd := range fds {
			if drain(fd) != 1 {
				t.Fatal("the datagram is lost")
			}
			sleep(t, s, 0, false)
			send(t, others[i])
			sleep(t, s, -1, false)
			drain(fd)
		}
	}
	none, err := New(-1)
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	for _, w := range sleepKinds {
		if _, errno := none.Sleep(w.d, false); errno != unix.EBADF {
			t.Errorf("%s at a descriptor that is none: %v", w.name, errno)
		}
	}
}

// closer turns a Sleeper into an io.Closer.
type closer struct{ *Sleeper }

func (c closer) Close() error { c.Sleeper.Close(); return nil }

// TestNewFails: a failed New leaves no descriptor open.
func TestNewFails(t *testing.T) {
	open := func() (io.Closer, error) {
		s, err := New(0)
		return closer{s}, err
	}
	debug.SetGCPercent(-1) // no finalizer closes leaked descriptors
	defer debug.SetGCPercent(100)
	scarce.Descriptors(t, open)
	calls := []scarce.Call{
		{Name: "epoll_create1", Number: unix.SYS_EPOLL_CREATE1, Arg1: -1, Arg2: -1, Errno: unix.ENOMEM},
		{Name: "eventfd", Number: unix.SYS_EVENTFD2, Arg1: -1, Arg2: -1, Errno: unix.ENOMEM},
		{Name: "epoll_ctl", Number: unix.SYS_EPOLL_CTL, Arg1: -1, Arg2: -1, Errno: unix.ENOSPC},
	}
	for what, err := range scarce.Calls(t, calls, func(f func()) { f() }, open) {
		if err == nil {
			t.Errorf("New succeeds without %s", what)
		}
	}
}

// TestSleepFails: a sleep that fails half way, because memory for some descriptors is missing, does not make later
// sleeps fail.
func TestSleepFails(t *testing.T) {
	s, fd, _ := newPair(t)
	file, err := os.CreateTemp(t.TempDir(), "") // an epoll refuses files
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	s.watched = []watched{{fd: fd}, {fd: int(file.Fd())}}
	if _, errno := s.Sleep(0, false); errno != unix.EPERM {
		t.Fatalf("Sleep at a file: %v", errno)
	}
	s.watched[1].fd = pair[0]
	sleep(t, s, 0, true)
	send(t, pair[1])
	sleep(t, s, -1, false)
}

// Packets after a sleep must not make the epoll ready: a thread of the runtime waits for it, and each packet would
// wake that thread.
func TestDisarmed(t *testing.T) {
	for _, end := range []struct {
		name  string
		sleep func(*Sleeper, int)
	}{
		{"woken", func(s *Sleeper, _ int) { s.Wake(); s.Sleep(-1, false) }},
		{"over", func(s *Sleeper, _ int) { s.Sleep(time.Millisecond, false) }},
		{"nap over", func(s *Sleeper, _ int) { s.Sleep(time.Microsecond, false) }},
		{"a packet", func(s *Sleeper, other int) { send(t, other); s.Sleep(-1, false) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			s, fd, other := newPair(t)
			s.Sleep(time.Microsecond, false) // the first sleep registers the socket
			end.sleep(s, other)
			drain(fd)
			send(t, other)
			p := []unix.PollFd{{Fd: int32(s.epoll), Events: unix.POLLIN}}
			if n, err := unix.Poll(p, 0); n != 0 || err != nil {
				t.Errorf("a packet while nobody sleeps: %d, %v", n, err)
			}
			sleep(t, s, -1, false) // and the next sleep sees it
		})
	}
}

// TestBusy: after many receives without a sleep the epoll has the descriptors of Add only, and the next sleep sees
// the others again.
func TestBusy(t *testing.T) {
	s, fd, other := newPair(t)
	added := addPair(t, s)
	inEpoll := func() (first, second bool) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", s.epoll))
		if err != nil {
			t.Fatal(err)
		}
		has := func(fd int) bool { return regexp.MustCompile(fmt.Sprintf(`(?m)^tfd:\s+%d\s`, fd)).Match(b) }
		return has(fd), has(added[0])
	}
	for range 3 {
		for _, w := range sleepKinds {
			send(t, other)
			sleep(t, s, w.d, false)
			drain(fd)
			for range busy - 1 {
				s.Busy()
			}
			sleep(t, s, 0, false) // a sleep begins the count again
			for range busy - 1 {
				s.Busy()
			}
			if first, second := inEpoll(); !first || !second {
				t.Fatalf("%s: descriptors in the epoll before the limit: %v %v", w.name, first, second)
			}
			s.Busy()
			if first, second := inEpoll(); first || !second {
				t.Fatalf("%s: descriptors in the epoll after %d receives without a sleep: %v %v", w.name, busy, first, second)
			}
			send(t, other)
			sleep(t, s, w.d, false)
			if drain(fd) != 1 {
				t.Fatalf("%s: the datagram is lost", w.name)
			}
			send(t, added[1])
			sleep(t, s, w.d, false)
			if !s.Added() || drain(added[0]) != 1 {
				t.Fatalf("%s: the datagram at the descriptor of Add is lost", w.name)
			}
		}
	}
}

// TestBusyAsleep: receives while another goroutine sleeps do not remove the descriptor that this goroutine waits for.
func TestBusyAsleep(t *testing.T) {
	for _, w := range sleepKinds[:2] {
		t.Run(w.name, func(t *testing.T) {
			s, fd, other := newPair(t)
			for range 200 {
				asleep := make(chan struct{})
				var done sync.WaitGroup
				done.Go(func() {
					close(asleep)
					sleep(t, s, w.d, false)
				})
				<-asleep
				for range 2 * busy {
					s.Busy()
				}
				send(t, other)
				done.Wait()
				if drain(fd) != 1 {
					t.Fatal("the datagram is lost")
				}
			}
		})
	}
}
