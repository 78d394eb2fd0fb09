package impair

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/netlab"
)

// TestStuck: an interface that takes no frames is waited for once, not for each frame: meanwhile nothing passes in the other
// direction. If each were waited for, the test would take hours.
func TestStuck(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	s := &socket{fd: pair[0], reserved: -1}
	s.init()
	data, head := make([]byte, 1000), gso.VnetHeader{}
	const frames = 100_000
	for range frames {
		s.send(data, &head, 1)
	}
	s.flush()
	fit := s.count.Sent
	if fit == 0 || fit+s.count.Unsent != frames {
		t.Fatalf("%d sent, %d unsent", fit, s.count.Unsent)
	}
	room := make([]byte, 2000)
	for range fit {
		if _, err := unix.Read(pair[1], room); err != nil {
			t.Fatal(err)
		}
	}
	s.send(data, &head, 1)
	s.flush()
	if s.count.Sent != fit+1 {
		t.Errorf("it takes frames again: %d sent, want %d", s.count.Sent, fit+1)
	}
}

// TestRenamed: an interface that gets another name is neither gone nor down.
func TestRenamed(t *testing.T) {
	_, _, near, _ := netlab.Bridged(t, netlab.Config{})
	s, err := open(Interface{Name: near.Interface, Netns: near.Netns()}, 1<<16, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if up, err := s.up(); err != nil || !up {
		t.Fatalf("up %v, %v", up, err)
	}
	done := make(chan error, 1)
	go func() {
		for i := range 50 {
			if err := near.Netlink().LinkSetName(near.Link(), [2]string{"other0", near.Interface}[i%2]); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				netlab.Lacking(t, "renaming of interfaces that are up", err)
			}
			return
		default:
		}
		if up, err := s.up(); err != nil || !up {
			t.Fatalf("up %v, %v", up, err)
		}
	}
}
