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
// asleep has run. A management datagram that is lost is repeated after seconds only.
type courier struct {
	place   *Place
	wake    chan struct{} // has a token when something waits
	waiting [Slots]atomic.Int32

	// The socket that datagrams to a slot are sent from, plus 1; 0: there has been none. What waits
	// at a process for being read takes room of the sender's socket, so each slot has another one:
	// a process that is stopped must not take the room of others.
	opening sync.Mutex
	from    [Slots]atomic.Int32
	closed  bool // no socket is made any more

	mu     sync.Mutex
	queues [Slots][]parcel
	spare  [][]byte
}

// parcel is a datagram that waits.
type parcel struct {
	data  []byte
	count uint64 // packets in it
	since int64
}

const (
	maxParcels  = 32 // that wait for a process
	parcelTime  = 500 * time.Millisecond
	parcelPause = 200 * time.Microsecond
)

// send sends a datagram to a slot, at once or soon.
func (c *courier) send(to Slot, data []byte, count uint64, name *unix.RawSockaddrUnix, size uint32) {
	if c.waiting[to].Load() == 0 { // otherwise it comes after those
		if errno := c.try(to, data, name, size); errno != unix.EAGAIN {
			c.count(errno, count)
			return
		}
	}
	c.mu.Lock()
	full := len(c.queues[to]) >= maxParcels
	if !full {
		var b []byte
		if k := len(c.spare); k > 0 {
			b, c.spare = c.spare[k-1], c.spare[:k-1]
		}
		c.queues[to] = append(c.queues[to], parcel{append(b[:0], data...), count, clock()})
		c.waiting[to].Add(1)
	}
	c.mu.Unlock()
	if full {
		c.count(unix.EAGAIN, count)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
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

// run sends what waits, until the Place is closed.
func (c *courier) run() {
	o := c.place.newOut()
	for {
		select {
		case <-c.place.done:
			return
		case <-c.wake:
		}
		for c.round(o) {
			select {
			case <-c.place.done:
				return
			case <-time.After(parcelPause):
			}
		}
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
			if errno == unix.EAGAIN && now-q[n].since < int64(parcelTime) {
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
