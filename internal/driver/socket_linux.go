// Package driver has the shared parts of drivers of Linux sockets: waiting for the sockets, the state of the link,
// socket buffers, finding the interface, and errors.
package driver

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/internal/madqueue"
	"github.com/goroce/roce/link"
)

// Socket is the socket of a Port that receives by recvmmsg and sends by sendmmsg. A Port
// embeds it: Wait, Wake, OnLink, SplitMADs and Filter implement link.Port, link.MADSplitter and link.Filterer.
type Socket struct {
	FD      int       // -1: not opened yet
	Desc    link.Info // without Mode
	Gate    gate.Gate // held while FD is in use
	Count   *link.Counters
	Sleeper *doze.Sleeper
	MADs    *Socket // for management datagrams; nil: they arrive with the data
	Reads   madqueue.Schedule

	// Divide makes the kernel deliver management datagrams to MADs. nil: SplitMADs has called it, or there is nothing
	// to do. It belongs to the owner of the Port.
	Divide    func() error
	undivided atomic.Pointer[string] // for MADMode

	Queues []*Socket               // of the first queue of a device: all of them
	Attach func(s *Screened) error // attaches the early drop to the socket; nil: removes it
	Screen *Screen                 // of the first queue: early drop

	// Fail makes an error from an errno, with advice.
	Fail func(op string, errno unix.Errno) *errs.Error

	Dropped atomic.Uint32 // the kernel's count of drops when it was last read

	Backlog atomic.Bool   // Recv has packets left that the kernel has already delivered
	room    atomic.Uint32 // a Room that packets wait for
	asleep  atomic.Bool   // a goroutine is in Wait
}

// Room is where a sender waits for room.
type Room uint32

const (
	NoWait  Room = iota
	Starved      // in the socket: Wait also ends when the socket has room
	Crowded      // below the socket, of which the kernel tells nothing: Wait ends after roomTick
)

// roomTick is the longest wait of a sender without room below the socket before it tries again. A card of 10 Gb/s sends
// a ring of 256 packets of 1 KiB in about twice this time.
const roomTick = 100 * time.Microsecond

// MADBuffer is the receive buffer of the management queue in bytes, if that of the data is not smaller. It holds the
// requests of thousands of peers that connect at once. In a larger one a request would wait so long behind a flood that
// its sender repeats it.
const MADBuffer = 4 << 20

// Split makes mads the socket of the management datagrams.
func (s *Socket) Split(mads *Socket) {
	s.MADs = mads
	s.Sleeper.Add(mads.FD)
}

// Undivided says that Divide failed. It is a format with the error.
const Undivided = "management datagrams share the queue of the data: %v"

// SplitMADs implements link.MADSplitter.
func (s *Socket) SplitMADs() {
	if s.Divide == nil || !s.Gate.Enter() {
		return
	}
	defer s.Gate.Leave()
	if err := s.Divide(); err != nil {
		note := fmt.Sprintf(", "+Undivided, err)
		s.undivided.Store(&note)
	}
	s.Divide = nil
}

// MADMode is what Info().Mode says about management datagrams.
func (s *Socket) MADMode() string {
	if note := s.undivided.Load(); note != nil {
		return *note
	}
	return ""
}

// Wait implements link.Port.
func (s *Socket) Wait(d time.Duration) error {
	if !s.Gate.Enter() {
		return link.ErrClosed
	}
	defer s.Gate.Leave()
	s.asleep.Store(true) // before it looks at what is left: see Left
	defer s.asleep.Store(false)
	switch {
	case s.left():
		d = 0 // still sleep, to take a Wake
	case s.Awaits() == Crowded && (d < 0 || d > roomTick):
		d = roomTick
	}
	pause := s.Reads.Pause()
	if pause > 0 && (d < 0 || d > pause) {
		d = pause
	}
	s.Sleeper.Sole(pause > 0)
	_, errno := s.Sleeper.Sleep(d, s.Awaits() == Starved)
	if s.Sleeper.Added() {
		s.Reads.Ready()
	}
	if errno != 0 {
		return s.Fail("wait", errno)
	}
	if s.Gate.Closed() {
		return link.ErrClosed
	}
	return nil
}

// left reports whether Recv has packets left that the kernel has already delivered.
func (s *Socket) left() bool {
	return s.Backlog.Load() || s.MADs != nil && (s.Reads.Holds() || s.MADs.Backlog.Load())
}

// Left ends a Wait in progress if Recv has packets left. Recv calls it at its end: another goroutine may sleep meanwhile,
// and the kernel has nothing more to wake it.
func (s *Socket) Left() {
	if s.left() && s.asleep.Load() {
		s.Wake()
	}
}

// Wake implements link.Port.
func (s *Socket) Wake() {
	if s.Gate.Enter() {
		s.Sleeper.Wake()
		s.Gate.Leave()
	}
}

// Await makes Wait wait for room, too, including a Wait in progress. A sender that waits for the same room again does
// not wake its own next Wait.
func (s *Socket) Await(r Room) {
	if Room(s.room.Swap(uint32(r))) != r {
		s.Wake()
	}
}

// Unblock undoes Await.
func (s *Socket) Unblock() {
	if s.Awaits() != NoWait {
		s.room.Store(uint32(NoWait))
	}
}

// Awaits returns what Await was called for last.
func (s *Socket) Awaits() Room { return Room(s.room.Load()) }

// OnLink implements link.Port.
func (s *Socket) OnLink(f func(up bool)) { s.Count.OnLink(f) }

// LinkState asks the kernel about the interface. It returns nil if the link is up or unknown; otherwise the error
// says that the interface is removed, down or without carrier. The caller holds the gate.
func (s *Socket) LinkState(op string) error {
	if s.Desc.Index == 0 {
		return nil
	}
	if errno := ethtool.State(s.FD, s.Desc.Index); errno != 0 {
		return s.Fail(op, errno)
	}
	return nil
}

// Look asks the kernel whether the link is up. The caller holds the gate.
func (s *Socket) Look() { s.Count.Look(func() bool { return s.LinkState("state") != nil }) }

// Alive notes that a packet came or went: if the link was down it may be up again. The packet may also be older
// than the failure, so Alive asks the kernel.
func (s *Socket) Alive() {
	if s.Count.Down() {
		s.Look()
	}
}

// Filter implements link.Filterer. It drops early only during a flood, and has no
// limit for management datagrams, because they have a separate queue once one has come.
func (s *Socket) Filter(link.MADLimit) (link.Filter, error) {
	s.Screen = NewScreen(s.Count, func(to *Screened) (err error) {
		for _, q := range s.Queues {
			if q.Gate.Enter() {
				err = cmp.Or(err, q.Attach(to))
				q.Gate.Leave()
			}
		}
		return err
	})
	return s.Screen, nil
}

// Stats returns the counters. It asks the kernel whether the link is up, and calls drops for
// the Port and its management queue to add what the kernel has dropped.
func (s *Socket) Stats(drops func(*Socket)) link.Stats {
	if s.Gate.Enter() {
		s.Look()
		drops(s)
		if s.MADs != nil {
			drops(s.MADs)
		}
		s.Gate.Leave()
	}
	return s.Count.Stats()
}

// Close waits until no call is in progress and closes the sockets. A second call returns link.ErrClosed.
func (s *Socket) Close() error {
	if !s.Gate.Close() {
		return link.ErrClosed
	}
	s.Sleeper.Wake()
	s.Gate.Drain()
	s.Free()
	return nil
}

// Free closes the sockets of a Port that no other goroutine uses. The owner of the Port may
// still be in a receive from the management queue.
func (s *Socket) Free() {
	if m := s.MADs; m != nil {
		m.Gate.Close()
		m.Gate.Drain()
		unix.Close(m.FD)
	}
	s.Sleeper.Close()
	if s.FD >= 0 {
		unix.Close(s.FD)
	}
}

// Notef adds a note about a missing feature to Info().Notes.
func (s *Socket) Notef(format string, a ...any) {
	s.Desc.Notes = append(s.Desc.Notes, fmt.Sprintf(format, a...))
}

// FailStep makes an error of a step of opening.
func (s *Socket) FailStep(step string, err error) *errs.Error {
	e := s.Fail("open", Errno(err))
	e.Err = errs.Kind(e.Err, fmt.Errorf("%s: %w", step, err))
	return e
}

// SetBuffers sets the sizes of the socket's buffers in bytes, or the largest that the process may have.
func (s *Socket) SetBuffers(receive, send int) error {
	for _, b := range []struct {
		name               string
		force, opt, wanted int
		limit              string
	}{
		{"receive", unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receive, "rmem_max"},
		{"send", unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, send, "wmem_max"},
	} {
		if unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, b.force, b.wanted) == nil {
			continue
		}
		if err := unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, b.opt, b.wanted); err != nil {
			return s.FailStep(b.name+" buffer", err)
		}
		// The kernel doubles the requested size, to account for overhead.
		if got, err := unix.GetsockoptInt(s.FD, unix.SOL_SOCKET, b.opt); err == nil && got < 2*b.wanted {
			s.Notef("%s buffer is %d KiB instead of %d KiB: needs CAP_NET_ADMIN or a larger net.core.%s",
				b.name, got/2>>10, b.wanted>>10, b.limit)
		}
	}
	return nil
}
