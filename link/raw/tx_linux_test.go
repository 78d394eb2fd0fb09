package raw

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// onSocketPair returns a Port that sends into a pair of datagram sockets, whose
// queue fills up as that of a packet socket hardly ever does, and the other end.
func onSocketPair(t *testing.T) (*Port, int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Port{fd: pair[0], gate: gate.New()}
	if p.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	p.tx.init(1500)
	p.rx.init(1500)
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
		for i := 0; i < n || p.tx.queued > 0; turns++ {
			for i < n && linktest.Put(p, path, bth.PSN(i), nil) {
				p.Commit()
				i++
			}
			if err := p.Flush(); err != nil {
				sent <- err
				return
			}
			if p.tx.queued > 0 {
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

// TestNoRoomDuringWait: a Wait in progress learns that there is no room.
func TestNoRoomDuringWait(t *testing.T) {
	p, other := onSocketPair(t)
	path := linktest.Path(t, false, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
	waiting := make(chan error)
	go func() {
		err := p.Wait(-1) // until it is told to look for room too
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
		case <-time.After(5 * time.Second):
			t.Fatal("Wait did not return")
		}
		buf := make([]byte, 2048)
		for err := error(nil); err == nil; {
			_, err = unix.Read(other, buf)
		}
	}
}

// TestRun: what may go as one super-packet, and what may not.
func TestRun(t *testing.T) {
	type slots []struct {
		size int
		edit func(b []byte) // nil: the next Identification
	}
	for _, v6 := range []bool{false, true} {
		ip := 14
		for _, test := range []struct {
			name  string
			slots slots
			want  int
		}{
			{"one", slots{{100, nil}}, 1},
			{"two", slots{{100, nil}, {100, nil}}, 2},
			{"last is shorter", slots{{100, nil}, {100, nil}, {4, nil}, {4, nil}}, 3},
			{"next is longer", slots{{100, nil}, {104, nil}}, 1},
			{"other destination", slots{{100, nil}, {100, func(b []byte) { b[5]++ }}}, 1},
			{"ECN mark", slots{{100, nil}, {100, func(b []byte) { b[ip+1] ^= 0x30 }}}, 1},
			{"TTL or hop limit", slots{{100, nil}, {100, func(b []byte) {
				if v6 {
					b[ip+7]--
				} else {
					b[ip+8]--
				}
			}}}, 1},
			{"other source port", slots{{100, nil}, {100, nil}, {100, func(b []byte) { b[len(b)-100-7]++ }}}, 2},
			{"UDP checksum", slots{{100, nil}, {100, func(b []byte) { b[len(b)-100-1] = 1 }}}, 1},
		} {
			var x tx
			x.init(1500)
			for i, s := range test.slots {
				b := packet(t, v6, 0, s.size)
				if e, _ := look(b); !v6 {
					b[e.ip+5] += byte(i)
					setLengths(b, e, s.size)
				}
				if s.edit != nil {
					s.edit(b)
				}
				x.slots[i].n = copy(x.slots[i].b, b)
				x.queued++
			}
			n, _, body := x.run(0)
			total := 0
			for _, s := range test.slots[:n] {
				total += s.size
			}
			if n != test.want || n > 1 && body != total {
				t.Errorf("v6=%v, %s: run of %d with %d bytes, want %d with %d", v6, test.name, n, body, test.want, total)
			}
		}
	}
	// An Identification out of order, as a packet that was held back has.
	var x tx
	x.init(1500)
	for i := range 2 {
		x.slots[i].n = copy(x.slots[i].b, packet(t, false, 0, 100))
	}
	x.queued = 2
	if n, _, _ := x.run(0); n != 1 {
		t.Errorf("packets with one Identification run together")
	}
}

func TestRunLimits(t *testing.T) {
	var x tx
	x.init(9000)
	for i := range x.slots {
		b := packet(t, true, 0, 4100)
		x.slots[i].n = copy(x.slots[i].b, b)
	}
	x.queued = len(x.slots)
	n, e, body := x.run(0)
	if whole := e.body - e.ip + body; whole > maxSuper || whole+4100 <= maxSuper || n != body/4100 {
		t.Errorf("run of %d packets, %d bytes", n, whole)
	}
	if m := x.build(); m != len(x.slots) { // no vnet header, no GSO
		t.Errorf("%d messages without GSO, want %d", m, len(x.slots))
	}
	x.vnet = true
	x.gso.Store(true)
	if m := x.build(); m != (len(x.slots)+n-1)/n {
		t.Errorf("%d messages with GSO, want %d", m, (len(x.slots)+n-1)/n)
	}
}
