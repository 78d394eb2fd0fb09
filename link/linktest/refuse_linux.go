package linktest

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// Sender is the system call by which a driver sends.
type Sender = func(fd int, msgs []unix.Mmsghdr) (int, unix.Errno)

// Refuse returns a Sender that calls f with the size of each message in bytes, and fails for the
// message with the errno that f returns. For 0 it sends the message.
func Refuse(send Sender, f func(size int) unix.Errno) Sender {
	return func(fd int, msgs []unix.Mmsghdr) (int, unix.Errno) {
		for i := range msgs {
			size := 0
			for _, v := range unsafe.Slice(msgs[i].Hdr.Iov, int(msgs[i].Hdr.Iovlen)) {
				size += int(v.Len)
			}
			switch errno := f(size); {
			case errno != 0 && i == 0:
				return 0, errno
			case errno != 0:
				return send(fd, msgs[:i])
			}
		}
		return send(fd, msgs)
	}
}

// Refused is a Port From, whose messages the test can make the kernel refuse, and its peer To.
type Refused struct {
	From, To link.Port
	Refuse   func(f func(size int) unix.Errno)
	Freeze   func(clock func() time.Time) // makes From use a clock
}

// isSuper reports whether a message of so many bytes is a super-packet here.
func isSuper(size int) bool { return size > 2000 }

// refuseSupers makes the kernel refuse super-packets with one errno, and other messages with another one.
func (r *Refused) refuseSupers(super, other unix.Errno) {
	r.Refuse(func(size int) unix.Errno {
		if isSuper(size) {
			return super
		}
		return other
	})
}

// refusedRun is how many packets of 1 KiB the method run sends.
const refusedRun = 30

// TestRefused tests a driver of super-packets while the kernel refuses messages for
// some time: the driver loses only those messages, recovers, sleeps meanwhile, and
// sends super-packets afterwards.
func TestRefused(t *testing.T, open func(t *testing.T) Refused) {
	tests := []struct {
		name string
		run  func(t *testing.T, r Refused)
		mode bool // Info().Mode changes
	}{
		{"Firewall", refusedByFirewall, false},
		{"Moment", refusedForAMoment, false},
		{"Lasting", refusedForLong, false},
		{"SuperPackets", superPacketsRefused, true},
		{"NoProof", superPacketsNotToBlame, false},
		{"NoMemory", noMemoryForSuperPackets, false},
		{"Sleeps", sleepsWhenEmpty, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := open(t)
			mode := r.From.Info().Mode
			r.well(t, "before")
			test.run(t, r)
			if now := r.From.Info().Mode; (now != mode) != test.mode {
				t.Errorf("mode %q, was %q", now, mode)
			}
		})
	}
}

// run commits a run of packets and flushes.
func (r *Refused) run(t *testing.T) error {
	t.Helper()
	path := Between(t, false, r.From, r.To)
	for i := range refusedRun {
		Send(t, r.From, path, bth.PSN(i), pattern(i, 1024))
	}
	return r.From.Flush()
}

// turns flushes and waits, as a shard does, until done returns true. It returns the number of
// iterations.
func (r *Refused) turns(t *testing.T, done func(link.Stats) bool) (n int) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !done(r.From.Stats()); n++ {
		if time.Now().After(deadline) {
			t.Fatalf("stuck: %+v", r.From.Stats())
		}
		if err := r.From.Wait(time.Second); err != nil {
			t.Fatal(err)
		}
		r.From.Flush()
	}
	return n
}

// well checks that a run of packets is sent, in one system call at most.
func (r *Refused) well(t *testing.T, when string) {
	t.Helper()
	before := r.From.Stats()
	if err := r.run(t); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	InOrder(t, r.To, refusedRun)
	if s := r.From.Stats(); s.TxPackets-before.TxPackets != refusedRun || s.TxBatches-before.TxBatches > 1 || s.TxBytes-before.TxBytes < refusedRun*1024 {
		t.Errorf("%s: %d packets in %d system calls", when, s.TxPackets-before.TxPackets, s.TxBatches-before.TxBatches)
	}
}

func refusedByFirewall(t *testing.T, r Refused) {
	n := uint64(0)
	for _, errno := range []unix.Errno{unix.EPERM, unix.EACCES} {
		for range 5 {
			r.Refuse(func(int) unix.Errno { return errno })
			if err := r.run(t); err == nil {
				t.Errorf("%v: Flush says nothing", errno)
			}
			if n += refusedRun; r.From.Stats().TxErrors != n {
				t.Errorf("%v: %+v", errno, r.From.Stats())
			}
			r.Refuse(nil)
			r.well(t, "afterwards")
			// A firewall's rate limit may let the separate packets pass. That does not prove that
			// the kernel refuses super-packets.
			r.refuseSupers(errno, 0)
			r.run(t)
			n += refusedRun
			r.Refuse(nil)
			r.well(t, "behind a limit")
		}
	}
}

func refusedForAMoment(t *testing.T, r Refused) {
	now := time.Now()
	r.Freeze(func() time.Time { return now }) // so that the refusal does not last long even on a slow machine
	for _, errno := range []unix.Errno{unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR} {
		for range 4 {
			before, calls := r.From.Stats(), 0
			r.Refuse(func(int) unix.Errno {
				if calls++; calls <= 12 && (errno != unix.EINTR || calls < 5) {
					return errno
				}
				return 0
			})
			if err := r.run(t); err != nil {
				t.Fatal(err)
			}
			r.turns(t, func(s link.Stats) bool { return s.TxPackets-before.TxPackets+s.TxDrops-before.TxDrops >= refusedRun })
			r.Refuse(nil)
			if s := r.From.Stats(); s.TxDrops+s.TxErrors > 0 {
				t.Fatalf("%v: %+v", errno, s)
			}
			InOrder(t, r.To, refusedRun)
		}
	}
	r.well(t, "afterwards")
}

func refusedForLong(t *testing.T, r Refused) {
	for _, errno := range []unix.Errno{unix.ENOBUFS, unix.ENOMEM} {
		before := r.From.Stats().TxDrops
		r.Refuse(func(int) unix.Errno { return errno })
		if err := r.run(t); err != nil {
			t.Fatal(err)
		}
		turns := r.turns(t, func(s link.Stats) bool { return s.TxDrops-before == refusedRun })
		if turns > 200 { // each waits 100 microseconds, and after five milliseconds the packets are given up
			t.Errorf("%v: %d turns until the packets are given up: a spin", errno, turns)
		}
		r.Refuse(nil)
		r.well(t, "afterwards")
	}
}

// superPacketsRefused: if the kernel refuses every super-packet, the driver sends their packets
// separately. After some refusals it does not try super-packets any more.
func superPacketsRefused(t *testing.T, r Refused) {
	mode, tried := r.From.Info().Mode, 0
	r.Refuse(func(size int) unix.Errno {
		if isSuper(size) {
			tried++
			return unix.EIO
		}
		return 0
	})
	for i := range 8 {
		if err := r.run(t); err != nil {
			t.Fatal(err)
		}
		InOrder(t, r.To, refusedRun)
		if now := r.From.Info().Mode; i == 0 && now != mode {
			t.Errorf("mode %q after the first time", now)
		}
	}
	if tried > 4 {
		t.Errorf("super-packets were tried %d times", tried)
	}
	if s := r.From.Stats(); s.TxDrops+s.TxErrors > 0 {
		t.Errorf("%+v", s)
	}
}

// superPacketsNotToBlame: if the kernel also refuses the separate packets, that does not prove that
// it refuses super-packets, and the driver goes on to use them.
func superPacketsNotToBlame(t *testing.T, r Refused) {
	for _, single := range []unix.Errno{unix.EMSGSIZE, unix.EINVAL, unix.EPERM} {
		for range 4 {
			r.refuseSupers(unix.EINVAL, single)
			r.run(t)
			r.Refuse(nil)
			r.well(t, "afterwards")
		}
	}
	// Separate packets that are sent later prove nothing, either.
	path := Between(t, false, r.From, r.To)
	for range 4 {
		r.refuseSupers(unix.EINVAL, unix.EMSGSIZE)
		r.run(t)
		r.Refuse(nil)
		for i := range refusedRun {
			Send(t, r.From, path, bth.PSN(i), pattern(i, 1024))
			r.From.Flush()
		}
		InOrder(t, r.To, refusedRun)
	}
	r.well(t, "in the end")
}

// noMemoryForSuperPackets: if the kernel has no memory for a super-packet, the driver sends its
// packets separately, and goes on to use super-packets.
func noMemoryForSuperPackets(t *testing.T, r Refused) {
	r.refuseSupers(unix.ENOMEM, 0)
	for range 4 {
		before := r.From.Stats().TxPackets
		if err := r.run(t); err != nil {
			t.Fatal(err)
		}
		r.turns(t, func(s link.Stats) bool { return s.TxPackets-before == refusedRun })
		InOrder(t, r.To, refusedRun)
	}
	r.Refuse(nil)
	r.well(t, "afterwards")
}

// sleepsWhenEmpty: after the driver has dropped the packets that waited for room, because of an
// error of a packet or of the link, Wait sleeps and does not wait for room.
func sleepsWhenEmpty(t *testing.T, r Refused) {
	for _, end := range []unix.Errno{unix.EPERM, unix.EMSGSIZE, unix.EINVAL, unix.ENETDOWN, 0} {
		r.Refuse(func(int) unix.Errno { return unix.EAGAIN })
		r.run(t)
		r.Refuse(func(int) unix.Errno { return end })
		r.From.Flush()
		r.Refuse(nil)
		if end == 0 {
			InOrder(t, r.To, refusedRun)
		}
		returns := 0
		for start := time.Now(); time.Since(start) < 100*time.Millisecond; returns++ {
			if err := r.From.Wait(100 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		if returns > 20 {
			t.Errorf("%v: Wait returned %d times in 100 ms with nothing to send", end, returns)
		}
	}
}
