package hostnet

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// routeChecks has a netlink socket for [Interface.HasRoute], and recent results.
type routeChecks struct {
	mu     sync.Mutex
	fd     int // -1: there is none
	seq    uint32
	seed   maphash.Seed
	recent [64]routeCheck // by the hash of the ends
}

// routeCheck is a result of HasRoute.
type routeCheck struct {
	ends [2]netip.Addr
	ok   bool
	at   time.Time
}

// routeCheckAge is how long HasRoute returns an earlier result.
const routeCheckAge = time.Second

func newRouteChecks() *routeChecks {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		fd = -1
	}
	return &routeChecks{fd: fd, seed: maphash.MakeSeed()}
}

func (c *routeChecks) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		unix.Close(c.fd)
	}
	c.fd = -1
}

// HasRoute reports whether a socket that is bound to the interface has a route from src to dst. Without one Linux
// treats an IPv4 address as a neighbour on the link: a packet to it costs the host a neighbour entry and a broadcast.
// HasRoute returns true if it cannot find out, and for IPv6, because the kernel drops such a packet. It is faster than
// Route, and does not wait for other requests. The result may be a second old.
func (i *Interface) HasRoute(src, dst netip.Addr) bool {
	if !src.Is4() || !dst.Is4() {
		return true
	}
	c, ends := i.checks, [2]netip.Addr{src, dst}
	c.mu.Lock()
	defer c.mu.Unlock()
	r, now := &c.recent[maphash.Comparable(c.seed, ends)%uint64(len(c.recent))], time.Now()
	if r.ends != ends || now.Sub(r.at) > routeCheckAge {
		*r = routeCheck{ends, c.ask(src, dst, i.index), now}
	}
	return r.ok
}

// ask asks the kernel.
func (c *routeChecks) ask(src, dst netip.Addr, index int) bool {
	if c.fd < 0 {
		return true
	}
	c.seq++
	var room [512]byte // more than the kernel's answer
	if _, err := unix.Write(c.fd, routeRequest(room[:0], c.seq, src, dst, index)); err != nil {
		return true
	}
	for { // the kernel has answered already; skip answers to earlier requests
		n, err := unix.Read(c.fd, room[:])
		if err != nil {
			return true
		}
		if errno, ok := answerTo(room[:n], c.seq); ok {
			return errno != unix.EHOSTUNREACH && errno != unix.ENETUNREACH
		}
	}
}

// routeRequest appends an RTM_GETROUTE. With RTM_F_FIB_MATCH the kernel returns the route of its table, or EHOSTUNREACH if it
// found none. Without it, or before Linux 4.13, it returns the way that a packet would take.
func routeRequest(b []byte, seq uint32, src, dst netip.Addr, index int) []byte {
	attr := func(typ uint16, value []byte) {
		b = native.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
		b = append(native.AppendUint16(b, typ), value...)
	}
	b = native.AppendUint32(b, 0) // the length
	b = native.AppendUint16(b, unix.RTM_GETROUTE)
	b = native.AppendUint16(b, unix.NLM_F_REQUEST)
	b = native.AppendUint32(b, seq)
	b = native.AppendUint32(b, 0)
	b = append(b, unix.AF_INET, 32, 32, 0, 0, 0, 0, 0) // struct rtmsg: lengths of the two prefixes
	b = native.AppendUint32(b, unix.RTM_F_FIB_MATCH)
	s, d := src.As4(), dst.As4()
	attr(unix.RTA_DST, d[:])
	attr(unix.RTA_SRC, s[:])
	attr(unix.RTA_OIF, native.AppendUint32(nil, uint32(index)))
	native.PutUint32(b, uint32(len(b)))
	return b
}

// answerTo returns the errno of the kernel's answer to a request, 0 for success. ok is false if b has no such answer.
func answerTo(b []byte, seq uint32) (errno unix.Errno, ok bool) {
	if len(b) < unix.SizeofNlMsghdr || native.Uint32(b[8:]) != seq {
		return 0, false
	}
	eachMessage(b, func(typ uint16, body []byte) {
		if typ == unix.NLMSG_ERROR && len(body) >= 4 {
			errno = unix.Errno(-int32(native.Uint32(body)))
		}
	})
	return errno, true
}
