package message

import (
	"fmt"
	"math"
	"syscall"
)

// Config says how connections are made. The zero value is a good choice. All memory
// of a connection follows from it; nothing that the peer says changes it.
type Config struct {
	// MaxMessage is the largest message this side receives, in bytes. 0: 64 KiB.
	// At most 1 GiB.
	MaxMessage int

	// MaxSend is the largest message this side sends, in bytes. What the peer
	// receives is a limit, too: see [Conn.MaxSend]. 0: MaxMessage. At most 1 GiB.
	MaxSend int

	// Depth is how many messages this side holds that nobody has received yet,
	// and how many it sends at a time. Memory for Depth messages of MaxMessage
	// bytes is set aside, and for Depth, but at most 64, of MaxSend bytes.
	// 0: 32. At most 4096.
	Depth int

	// Transfers is how many pieces of 64 KiB of Write and Read calls may be under
	// way. 0: 16. At most 1024.
	Transfers int

	// Backlog bounds the connections at which a [Listener] is at work: handshakes
	// in progress, and connections that were not accepted yet. 0: 128.
	Backlog int
}

const (
	defaultMessage   = 64 << 10
	defaultDepth     = 32
	defaultTransfers = 16
	maxDepth         = 1 << 12
	maxMessage       = 1 << 30
	maxTransfers     = 1 << 10
	maxSending       = 64 // messages under way at a time
	pieceLen         = 64 << 10
	ctrlDepth        = 4 // receives beside Depth, for messages that only return credits
)

// complete returns the configuration with the defaults filled in and every value
// within its limits. EINVAL if the buffers do not fit into the address space.
func (c Config) complete() (Config, error) {
	f := c
	for _, v := range [...]struct {
		p          *int
		zero, most int
	}{{&f.MaxMessage, defaultMessage, maxMessage}, {&f.Depth, defaultDepth, maxDepth}, {&f.Transfers, defaultTransfers, maxTransfers}} {
		if *v.p <= 0 {
			*v.p = v.zero
		}
		*v.p = min(*v.p, v.most)
	}
	if f.MaxSend <= 0 {
		f.MaxSend = f.MaxMessage
	}
	f.MaxSend = min(f.MaxSend, maxMessage)
	const most = min(math.MaxInt, 1<<40)
	if size := int64(f.receives())*int64(f.MaxMessage) + int64(f.sends())*int64(f.MaxSend); size > most {
		return f, fmt.Errorf("message: %d messages of %d bytes to receive and %d of %d to send make %d bytes of buffers: %w",
			f.receives(), f.MaxMessage, f.sends(), f.MaxSend, size, syscall.EINVAL)
	}
	return f, nil
}

// sends is how many messages are under way at most.
func (c Config) sends() int { return min(c.Depth, maxSending) }

// receives is how many receives are posted.
func (c Config) receives() int { return c.Depth + ctrlDepth }

// maxSendWR is how many work requests are under way at most: messages, transfers and
// the message that only returns credits.
func (c Config) maxSendWR() int { return c.sends() + c.Transfers + 1 }
