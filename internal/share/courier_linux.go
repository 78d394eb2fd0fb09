package share

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// courier sends datagrams that another process had no room for. The kernel queues few of them at
// a socket (net.unix.max_dgram_qlen, 10 by default): as many as arrive before a process that is
// asleep has run. A management datagram that is lost is repeated after seconds only, a datagram
// of a UD queue pair never. Datagrams that wait are joined, so that a burst of small ones has room.
type courier struct {
	place   *Place
	wake    chan struct{} // has a token when something waits
	waiting [Slots]atomic.Int32
	stalled [Slots]atomic.Bool // what waited had not moved for stallTime, and nothing has moved since

	// The socket that datagrams to a slot are sent from, plus 1; 0: there has been none. What waits
	// at a process for being read takes room of the sender's socket, so each slot has another one:
	// a process that is stopped must not take the room of others.
	opening sync.Mutex
	from    [Slots]atomic.Int32
	closed  bool // no socket is made any more

	patience time.Duration // how long a parcel waits for a process that reads nothing

	mu     sync.Mutex
	queues [Slots][]parcel
	moved  [Slots]int64 // when the last parcel left
	spare  [][]byte
}

// parcel holds datagrams that wait. They leave as one.
type parcel struct {
	data  []byte
	count uint64 // packets in it
	since int64  // when the first of them came
}

const (
	maxParcels  = 32 // that wait for a process
	parcelTime  = 500 * time.Millisecond
	parcelPause = 200 * time.Microsecond
	stallTime   = 250 * time.Millisecond
	closingTime = 300 * time.Millisecond // that Close waits for parcels to leave
)

// send sends a datagram to a slot, at once or soon.
func (c *courier) send(to Slot, data []byte, count uint64, name *unix.RawSockaddrUnix, size uint32) {
	if c.waiting[to].Load() == 0 { // otherwise it comes after those
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
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// crowded is [Outlet.Crowded]. Half of the room is for what does not ask.
func (c *courier) crowded(to Slot) bool {
	return c.waiting[to].Load() > maxParcels/2 && !c.stalled[to].Load()
}

// keep has a datagram wait, and reports whether there was room. The caller has locked mu.
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

// open makes the socket that datagrams to a slot are sent from, and returns it plus 1. Without
// descriptors that is the socket of this process's first slot.
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

// run sends what waits, until the Place is closed. What waits then is sent still if the other
// process reads: it belongs to work requests that are complete.
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
func (c *courier) ended() bool {
	select {
	case <-c.place.done:
		return true
	default:
		return false
	}
}

// round tries to send what waits, and reports whether something still does.
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
