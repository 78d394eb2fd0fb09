package raw

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// onSocketPair returns a Port that sends to a pair of datagram sockets, and the other end of the
// pair. Unlike the queue of a packet socket, the queue of the pair fills up easily.
func onSocketPair(t *testing.T) (*Port, int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Port{base: base{FD: pair[0], Gate: gate.New(), Count: new(link.Counters)}}
	if p.Sleeper, err = doze.New(p.FD); err != nil {
		t.Fatal(err)
	}
	p.tx.init(1500)
	p.rx.init(link.Batch)
	t.Cleanup(func() { p.Close(); unix.Close(pair[1]) })
	return p, pair[1]
}

// TestNoRoom: a sender without room sleeps in Wait until there is some, and
// sends everything, in order.
func TestNoRoom(t *testing.T) {
	p, other := onSocketPair(t)
	path := linktest.Path(t, false, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
	const n = 3000
	turns := 0
	sent := make(chan error, 1)
	full := make(chan bool)
	go func(full chan bool) {
		for i := 0; i < n || p.tx.waiting() > 0; turns++ {
			for i < n && linktest.Put(p, path, bth.PSN(i), nil) {
				p.Commit()
				i++
			}
			if err := p.Flush(); err != nil {
				sent <- err
				return
			}
			if p.tx.waiting() > 0 {
				if full != nil {
					close(full)
					full = nil
				}
				if err := p.Wait(-1); err != nil {
					sent <- err
					return
				}
			}
		}
		sent <- nil
	}(full)
	<-full
	buf := make([]byte, 2048)
	for got := 0; got < n; {
		fds := []unix.PollFd{{Fd: int32(other), Events: unix.POLLIN}}
		if k, err := unix.Poll(fds, 5000); k != 1 && err != unix.EINTR {
			t.Fatalf("%d of %d packets arrived: %v", got, n, err)
		}
		for {
			k, err := unix.Read(other, buf)
			if err != nil {
				break
			}
			psn, _ := linktest.Check(t, frame.LayoutEthernet, link.Frame{Data: buf[:k]})
			if psn != bth.PSN(got) {
				t.Fatalf("packet %d has PSN %v", got, psn)
			}
			got++
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	s := p.Stats()
	if s.TxPackets != n || s.TxRetries == 0 || s.TxDrops+s.TxErrors != 0 {
		t.Errorf("Stats() = %+v", s)
	}
	if turns > 2*n {
		t.Errorf("%d turns for %d packets: Wait did not wait", turns, n)
	}
}

// TestNoRoomDuringWait: if a send finds no room while another goroutine is in Wait, that Wait
// returns, and the next one waits for room.
func TestNoRoomDuringWait(t *testing.T) {
	p, other := onSocketPair(t)
	path := linktest.Path(t, false, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
	waiting := make(chan error)
	go func() {
		err := p.Wait(-1) // returns because it must now wait for room, too
		if err == nil {
			waiting <- nil
			err = p.Wait(-1) // for room
		}
		waiting <- err
	}()
	for linktest.Put(p, path, 0, nil) {
		p.Commit()
	}
	for range 2 {
		select {
		case err := <-waiting:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(linktest.Patience):
			t.Fatal("Wait did not return")
		}
		buf := make([]byte, 2048)
		for err := error(nil); err == nil; {
			_, err = unix.Read(other, buf)
		}
	}
}
