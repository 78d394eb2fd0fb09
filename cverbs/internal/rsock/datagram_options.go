package rsock

import (
	"math"
	"syscall"

	"github.com/goroce/roce/cverbs/internal/abi"
)

// datagramOptions are the values of options. As with sockets of the kernel and in librdmacm, a size of a buffer has
// twice the value that the program has set.
type datagramOptions struct{ value [RecvDepth + 1]int64 }

var defaultDatagramOptions = datagramOptions{[RecvDepth + 1]int64{SendBuffer: defaultBuffer, RecvBuffer: defaultBuffer, SendDepth: defaultDepth, RecvDepth: defaultDepth}}

// depths returns the numbers of send and receive buffers of a queue pair.
func (o *datagramOptions) depths() (sends, recvs int) {
	depth := func(depth, buffer Option) int { return max(1, int(min(o.value[depth], o.value[buffer]/maxMessage))) }
	return depth(SendDepth, SendBuffer), depth(RecvDepth, RecvBuffer)
}

// SetOption is rsetsockopt for the options that the UDP socket of the caller does not have. EINVAL: the value is
// invalid, or the depth of an existing queue would change.
func (a *Datagrams) SetOption(h abi.Handle, o Option, value int64) error {
	s, err := a.find(h)
	switch {
	case err != nil:
		return err
	case o > RecvDepth:
		return syscall.ENOPROTOOPT
	case value < 0 || value > math.MaxInt32:
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.options.value[o]
	switch {
	case o == SendBuffer, o == RecvBuffer:
		if len(s.pairs) == 0 { // otherwise it is a hint: existing buffers keep their size
			*v = min(max(2*value, minBuffer), maxBuffer)
		}
		return nil
	case len(s.pairs) > 0:
		return syscall.EINVAL
	}
	*v = min(max(value, minDepth), maxDepth)
	return nil
}

// Option is rgetsockopt for the same options, and for [Drops] and [Error].
func (a *Datagrams) Option(h abi.Handle, o Option) (int64, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case o <= RecvDepth:
		return s.options.value[o], nil
	case o == Drops:
		return s.drops, nil
	case o == Error:
		errno, _ := s.takeError().(syscall.Errno)
		return int64(errno), nil
	}
	return 0, syscall.ENOPROTOOPT
}
