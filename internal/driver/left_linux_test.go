package driver

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/link"
)

// TestLeft: if a Recv leaves packets that the kernel has already delivered, a goroutine that sleeps meanwhile wakes up: nothing
// in the kernel wakes it.
func TestLeft(t *testing.T) {
	one := func([]link.Frame) (int, error) { return 1, nil }
	none := func([]link.Frame) (int, error) { return 0, nil }
	for name, recv := range map[string]func(*Socket){
		"data":                 func(s *Socket) { s.Backlog.Store(true) },
		"management datagrams": func(s *Socket) { s.MADs.Backlog.Store(true) },
		"held datagrams":       func(s *Socket) { s.Reads.Recv(make([]link.Frame, 4), one, one) },
		"and what comes next":  func(s *Socket) { s.Reads.Recv(make([]link.Frame, 4), none, none); s.Backlog.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fds[1])
			s := &Socket{FD: fds[0], MADs: new(Socket)}
			if s.Sleeper, err = doze.New(fds[0]); err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fds[0])
			defer s.Sleeper.Close()
			slept := make(chan error)
			go func() { slept <- s.Wait(-1) }()
			for !s.asleep.Load() {
				runtime.Gosched()
			}
			recv(s)
			s.Left()
			if err := <-slept; err != nil {
				t.Error(err)
			}
		})
	}
}
