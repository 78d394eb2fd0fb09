package share

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/notify"
)

// courier sends datagrams for which another process had no room. The kernel queues few datagrams at
// a socket (net.unix.max_dgram_qlen, 10 by default), and so many can arrive before a sleeping
// process runs. A peer repeats a lost management datagram only after seconds, and a datagram of a
// UD queue pair never. The courier joins waiting datagrams, so that a burst of small ones has room.
type courier struct {
	place   *Place
	wake    notify.Chan // has a token when a parcel waits
	waiting [Slots]atomic.Int32
	stalled [Slots]atomic.Bool // parcels had not moved for stallTime, and none has moved since

	// The sending socket for each slot, plus 1; 0: none yet. Datagrams that the receiver has not
	// read take room of the sender's socket. So each slot has its own: a stopped process must not
	// take the room of others.
	opening sync.Mutex
	from    [Slots]atomic.Int32
	closed  bool // no new sockets are made

	patience time.Duration // time that a parcel waits for a process that reads nothing

	mu     sync.Mutex
	queues [Slots][]parcel
	moved  [Slots]int64 // when the last parcel left
	spare  [][]byte
}

// parcel holds waiting datagrams, which leave as one.
type parcel struct {
	data  []byte
	count uint64 // packets in it
	since int64  // when the first of them was added
}

const (
	maxParcels  = 32 // waiting for a process
	parcelTime  = 500 * time.Millisecond
	parcelPause = 200 * time.Microsecond
	stallTime   = 250 * time.Millisecond
	closingTime = 300 * time.Millisecond // time that Close waits for parcels to leave
)

// send sends a datagram to a slot at once, or leaves it to the courier's goroutine.
func (c *courier) send(to Slot, data []byte, count uint64, name *unix.RawSockaddrUnix, size uint32) {
	if c.waiting[to].Load() == 0 { // otherwise it must leave after the waiting parcels
		if errno := c.try(to, data, name, size); errno != unix.EAGAIN {
			if errno == 0 && c.stalled[to].Load() {
				c.stalled[to].Store(false)
			}
			c.count(errno, count)
			return
		}
	}
	c.mu.Lock()
	kept := c.keep(to, data, count)
	c.mu.Unlock()
	if !kept {
		c.count(unix.EAGAIN, count)
		return
	}
	c.wake.Notify()
}

// crowded is [Outlet.Crowded]. Half of the room is for packets whose senders
// do not call Crowded.
func (c *courier) crowded(to Slot) bool {
	return c.waiting[to].Load() > maxParcels/2 && !c.stalled[to].Load()
}

// keep queues a datagram, and reports whether there was room. The caller has locked mu.
func (c *courier) keep(to Slot, data []byte, count uint64) bool {
	q := c.queues[to]
	if k := len(q); k > 0 && len(q[k-1].data)+len(data) <= maxDatagram {
		last := &q[k-1]
		last.data, last.count = append(last.data, data...), last.count+count
		return true
	}
	if len(q) >= maxParcels {
		return false
	}
	var b []byte
	if k := len(c.spare); k > 0 {
		b, c.spare = c.spare[k-1], c.spare[:k-1]
	}
	c.queues[to] = append(q, parcel{append(b[:0], data...), count, clock()})
	c.waiting[to].Add(1)
	return true
}

func (c *courier) try(to Slot, data []byte, name *unix.RawSockaddrUnix, size uint32) unix.Errno {
	from := c.from[to].Load()
	if from == 0 {
		from = c.open(to)
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(from-1), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(name)), uintptr(size))
	return errno
}

// open makes the sending socket for a slot, and returns it plus 1. If the process has no
// descriptors left, open returns the socket of the process's first slot.
func (c *courier) open(to Slot) int32 {
	c.opening.Lock()
	defer c.opening.Unlock()
	if from := c.from[to].Load(); from != 0 || c.closed {
		return from
	}
	var fd int
	err := c.place.ns.do(func() (err error) {
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return int32(c.place.pass[0]) + 1
	}
	c.from[to].Store(int32(fd) + 1)
	return int32(fd) + 1
}

// close closes the sockets.
func (c *courier) close() {
	c.opening.Lock()
	defer c.opening.Unlock()
	c.closed = true
	for to := range c.from {
		if from := c.from[to].Swap(0); from != 0 {
			unix.Close(int(from) - 1)
		}
	}
}

func (c *courier) count(errno unix.Errno, packets uint64) {
	t := &c.place.traffic
	if errno == 0 {
		t.sent.Add(packets)
	} else {
		t.dropped.Add(packets)
	}
}

// run sends waiting parcels until the Place is closed. It then still sends the remaining parcels if
// the other process reads, because their packets belong to completed work requests.
func (c *courier) run() {
	o := c.place.newOut()
	for !c.ended() {
		for c.round(o) && !c.ended() {
			time.Sleep(parcelPause)
		}
		select {
		case <-c.place.done:
		case <-c.wake:
		}
	}
	c.patience = stallTime
	for end := clock() + int64(closingTime); c.round(o) && clock() < end; {
		time.Sleep(parcelPause)
	}
}

// ended reports whether the Place is closed.
func (c *courier) ended() bool { return notify.Closed(c.place.done) }

// round tries to send waiting parcels, and reports whether some still wait.
func (c *courier) round(o *outlet) (left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := clock()
	for to := range c.queues {
		q := c.queues[to]
		n := 0
		for ; n < len(q); n++ {
			errno := c.try(Slot(to), q[n].data, &o.names[to], o.sizes[to])
			still := time.Duration(now - max(q[n].since, c.moved[to]))
			switch {
			case errno == 0:
				c.moved[to] = now
				c.stalled[to].Store(false)
			case errno == unix.EAGAIN && still >= stallTime:
				c.stalled[to].Store(true)
			}
			if errno == unix.EAGAIN && still < c.patience {
				left = true
				break
			}
			c.count(errno, q[n].count)
			c.spare = append(c.spare, q[n].data)
		}
		if n > 0 {
			c.queues[to] = q[:copy(q, q[n:])]
			c.waiting[to].Add(-int32(n))
		}
	}
	c.spare = c.spare[:min(len(c.spare), maxParcels)]
	return left
}
