package rsocket

import (
	"cmp"
	"math"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/settings"
)

// Config configures streams. The zero value means librdmacm's defaults. Calls fail with EINVAL
// for a value beyond its limits.
type Config struct {
	// SendBuffer and RecvBuffer are the sizes of the buffers of each side in
	// bytes (RDMA_WMEM, RDMA_RMEM): 4 KiB to 1 GiB. 0: 128 KiB. The receive buffer is
	// rounded up to an even number.
	SendBuffer, RecvBuffer int

	// SendDepth and RecvDepth are the numbers of messages that may be in
	// flight in each direction (RDMA_SQSIZE, RDMA_RQSIZE): 16 to 32768. 0:
	// 384.
	SendDepth, RecvDepth int

	// Maps is the number of pieces of memory that the peer may map for
	// [Conn.WriteAt] of this side (RDMA_IOMAPSIZE): up to 128, or a multiple of
	// 256 up to 32512. 0: none.
	Maps int

	// Linger bounds the time that [Conn.Close] and [Conn.CloseWrite] wait until the peer
	// has all written data. 0: 10 s.
	Linger time.Duration

	// Backlog bounds the sum of a [Listener]'s handshakes in progress and of the streams
	// that wait for Accept. 0: 128.
	Backlog int

	// TrafficClass is the IP TOS of outgoing connections.
	TrafficClass uint8

	// Local is the source address of [Dial]. Invalid: the one of the route to the peer.
	Local netip.Addr
}

// Defaults and limits of librdmacm.
const (
	defaultBuffer = 128 << 10
	defaultDepth  = 384
	minDepth      = 16
	maxDepth      = 1 << 15
	minBuffer     = 2 * lowWater
	maxBuffer     = 1 << 30
	defaultLinger = 10 * time.Second

	defaultBacklog = 128

	maxMessage  = 64 << 10 // bytes of one message
	lowWater    = 2048     // RS_SNDLOWAT
	inlineMax   = 64
	earlyLen    = 4096 // bytes that the peer may send before the buffers exist
	ctrlReserve = 4    // work requests reserved for control messages
)

// complete returns the configuration with the defaults filled in. It fails with EINVAL if a value
// is beyond its limits.
func (c Config) complete() (Config, error) {
	const op = "configure"
	err := settings.Complete(op,
		settings.Number{Name: "Config.SendBuffer", Value: &c.SendBuffer, Default: defaultBuffer, Least: minBuffer, Most: maxBuffer},
		settings.Number{Name: "Config.RecvBuffer", Value: &c.RecvBuffer, Default: defaultBuffer, Least: minBuffer, Most: maxBuffer},
		settings.Number{Name: "Config.SendDepth", Value: &c.SendDepth, Default: defaultDepth, Least: minDepth, Most: maxDepth},
		settings.Number{Name: "Config.RecvDepth", Value: &c.RecvDepth, Default: defaultDepth, Least: minDepth, Most: maxDepth},
		settings.Number{Name: "Config.Maps", Value: &c.Maps, Most: maxMaps},
		settings.Number{Name: "Config.Backlog", Value: &c.Backlog, Default: defaultBacklog, Least: 1, Most: math.MaxInt32})
	switch {
	case err != nil:
	case c.Maps != unscale(scale(c.Maps)):
		err = errs.New(op, syscall.EINVAL, "Config.Maps is %d, must be at most 128 or a multiple of 256", c.Maps)
	case c.Linger < 0:
		err = errs.New(op, syscall.EINVAL, "Config.Linger is %v, must not be negative", c.Linger)
	}
	c.RecvBuffer += c.RecvBuffer & 1
	c.Linger = cmp.Or(c.Linger, defaultLinger)
	return c, err
}
