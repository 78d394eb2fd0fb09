package message

import (
	"cmp"
	"math"
	"syscall"
	"time"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/settings"
)

// Config configures connections. The zero value is a good choice. It alone determines the
// memory of a connection, never the peer. Calls fail with EINVAL for a value beyond its
// limits.
type Config struct {
	// MaxMessage is the largest message that this side receives, in bytes. 0: 64
	// KiB. At most 1 GiB.
	MaxMessage int

	// MaxSend is the largest message that this side sends, in bytes. The peer's
	// MaxMessage is a limit, too: see [Conn.MaxSend]. 0: MaxMessage. At most 1
	// GiB.
	MaxSend int

	// Depth is the number of messages that this side holds until Recv, and the number
	// that it sends at a time. Each connection has memory for Depth messages of
	// MaxMessage bytes, and for Depth, but at most 64, messages of MaxSend bytes. 0: 32.
	// At most 4096.
	Depth int

	// Transfers is the number of pieces of 64 KiB of Write and Read calls that
	// may be in flight. The first such call allocates the memory for them. 0: 16.
	// At most 1024.
	Transfers int

	// Backlog bounds the sum of a [Listener]'s handshakes in progress and of the
	// connections that wait for Accept. 0: 128.
	Backlog int

	// Linger bounds the time that [Conn.Close] waits until the peer has every sent
	// message. 0: 10 s.
	Linger time.Duration
}

const (
	defaultMessage   = 64 << 10
	defaultDepth     = 32
	defaultTransfers = 16
	defaultBacklog   = 128
	defaultLinger    = 10 * time.Second
	maxDepth         = 1 << 12
	maxMessage       = 1 << 30
	maxTransfers     = 1 << 10
	maxSending       = 64 // messages in flight
	pieceLen         = 64 << 10
	ctrlDepth        = 4 // receives in addition to Depth, for messages that only return credits
)

// complete returns the configuration with the defaults filled in. It fails with EINVAL if a value
// is beyond its limits, or if the buffers do not fit into the address space.
func (c Config) complete() (Config, error) {
	const op = "configure"
	err := settings.Complete(op,
		settings.Number{Name: "Config.MaxMessage", Value: &c.MaxMessage, Default: defaultMessage, Least: 1, Most: maxMessage},
		settings.Number{Name: "Config.Depth", Value: &c.Depth, Default: defaultDepth, Least: 1, Most: maxDepth},
		settings.Number{Name: "Config.Transfers", Value: &c.Transfers, Default: defaultTransfers, Least: 1, Most: maxTransfers})
	if err == nil { // the default of MaxSend is known now
		err = settings.Complete(op, settings.Number{Name: "Config.MaxSend", Value: &c.MaxSend, Default: c.MaxMessage, Least: 1, Most: maxMessage},
			settings.Number{Name: "Config.Backlog", Value: &c.Backlog, Default: defaultBacklog, Least: 1, Most: math.MaxInt32})
	}
	if err == nil && c.Linger < 0 {
		err = errs.New(op, syscall.EINVAL, "Config.Linger is %v, must not be negative", c.Linger)
	}
	if err != nil {
		return c, err
	}
	c.Linger = cmp.Or(c.Linger, defaultLinger)
	const most = min(math.MaxInt, 1<<40)
	if size := int64(c.receives())*int64(c.MaxMessage) + int64(c.sends())*int64(c.MaxSend); size > most {
		return c, errs.New(op, syscall.EINVAL, "%d messages of %d bytes to receive and %d of %d to send make %d bytes of buffers",
			c.receives(), c.MaxMessage, c.sends(), c.MaxSend, size)
	}
	return c, nil
}

// sends returns the maximum of messages in flight.
func (c Config) sends() int { return min(c.Depth, maxSending) }

// receives returns the number of posted receives.
func (c Config) receives() int { return c.Depth + ctrlDepth }

// maxSendWR returns the maximum of work requests in flight: messages, transfers,
// the message that only returns credits, and the WRITEs of drain and settle.
func (c Config) maxSendWR() int { return c.sends() + c.Transfers + 3 }
