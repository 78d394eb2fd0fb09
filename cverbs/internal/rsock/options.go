package rsock

import (
	"cmp"
	"math"
	"syscall"
	"time"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/rsocket"
)

// Option is an option of a socket: enum roce_rs_option.
type Option uint32

const (
	SendBuffer Option = iota // 0 is the default of this and the next three
	RecvBuffer
	SendDepth
	RecvDepth
	Maps
	ReuseAddr
	V6Only
	KeepAlive // 1: probes are sent
	KeepIdle  // seconds
	TOS       // of outgoing connections
	MaxSegment
	Error
	Drops // of a datagram rsocket: datagrams that it has dropped

	settable = MaxSegment // the options before it can be set
)

// options are the values of the settable options.
type options struct{ value [settable]int64 }

// Limits of [rsocket.Config]. SetOption clips values to them, as sockets do.
const (
	minBuffer, maxBuffer = 4 << 10, 1 << 30
	minDepth, maxDepth   = 16, 1 << 15
	fineMaps, maxMaps    = 128, 127 << 8
)

// The default values of options. Buffers and depths have the defaults of package rsocket.
const (
	defaultBuffer  = 128 << 10
	defaultDepth   = 384
	keepIdle       = 2 * 60 * 60
	defaultSegment = 2048 // until the path is known
)

var defaults = options{[settable]int64{SendBuffer: defaultBuffer, RecvBuffer: defaultBuffer, SendDepth: defaultDepth, RecvDepth: defaultDepth, KeepIdle: keepIdle}}

// config returns the configuration of streams.
func (o *options) config() rsocket.Config {
	return rsocket.Config{SendBuffer: int(o.value[SendBuffer]), RecvBuffer: int(o.value[RecvBuffer]),
		SendDepth: int(o.value[SendDepth]), RecvDepth: int(o.value[RecvDepth]), Maps: int(o.value[Maps]), TrafficClass: uint8(o.value[TOS])}
}

// keepAlive turns the probes of a stream on or off.
func (o *options) keepAlive(c *rsocket.Conn) error {
	return c.SetKeepAlivePeriod(time.Duration(o.value[KeepAlive]*o.value[KeepIdle]) * time.Second)
}

// SetOption is rsetsockopt. EINVAL: the value is invalid, or the socket is connected and its queues exist.
func (a *Sockets) SetOption(h abi.Handle, o Option, value int64) error {
	s, err := a.find(h)
	switch {
	case err != nil:
		return err
	case o >= settable:
		return syscall.ENOPROTOOPT
	case value < 0 || value > math.MaxInt32:
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.options.value[o]
	switch o {
	case SendBuffer, RecvBuffer: // a hint: existing buffers keep their size
		*v = min(max(value, minBuffer), maxBuffer)
		return s.reconfigure()
	case SendDepth, RecvDepth, Maps:
		if s.state == connecting || s.state == connected {
			return syscall.EINVAL
		}
		if *v = min(max(value, minDepth), maxDepth); o == Maps {
			*v = mapsFor(value)
		}
		return s.reconfigure()
	case ReuseAddr:
		*v = min(value, 1)
		if s.id != nil && s.state == idle {
			return failure(s.id.SetReuseAddr(value != 0))
		}
	case TOS:
		if value > math.MaxUint8 {
			return syscall.EINVAL
		}
		*v = value
	case KeepIdle:
		if value == 0 {
			return syscall.EINVAL
		}
		fallthrough
	case KeepAlive:
		if *v = value; o == KeepAlive {
			*v = min(value, 1)
		}
		if s.conn != nil {
			return failure(s.options.keepAlive(s.conn))
		}
	default:
		*v = min(value, 1)
	}
	return nil
}

// reconfigure changes the options of future streams of a listener: programs set options after rlisten, too.
// Called with the socket locked.
func (s *socket) reconfigure() error {
	for _, l := range s.listeners {
		if err := l.SetConfig(s.options.config()); err != nil {
			return failure(err)
		}
	}
	return nil
}

// mapsFor returns the size of a table for n mappings: the sizes of large tables come in steps.
func mapsFor(n int64) int64 {
	if n > fineMaps {
		n = (n + 0xFF) &^ 0xFF
	}
	return min(n, maxMaps)
}

// Option is rgetsockopt.
func (a *Sockets) Option(h abi.Handle, o Option) (int64, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case o < settable:
		return s.options.value[o], nil
	case o == MaxSegment && s.conn != nil:
		attr, _ := s.conn.QP().Query()
		return int64(cmp.Or(attr.PathMTU.Bytes(), defaultSegment)), nil
	case o == MaxSegment:
		return defaultSegment, nil
	case o == Error:
		err := s.takeError()
		if err == nil && s.conn != nil {
			err = failure(s.conn.Err())
		}
		errno, _ := err.(syscall.Errno)
		return int64(errno), nil
	}
	return 0, syscall.ENOPROTOOPT
}
