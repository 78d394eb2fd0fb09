package rsocket

import (
	"time"

	"github.com/goroce/roce"
)

// Config says how streams are made. The zero value is librdmacm's defaults.
type Config struct {
	// SendBuffer and RecvBuffer are the sizes of the buffers of each side in
	// bytes (RDMA_WMEM, RDMA_RMEM). 0: 128 KiB. The receive buffer is rounded up to
	// an even number.
	SendBuffer, RecvBuffer int

	// SendDepth and RecvDepth are how many messages may be under way in each
	// direction (RDMA_SQSIZE, RDMA_RQSIZE): 16 to 32768. 0: 384.
	SendDepth, RecvDepth int

	// Maps is how many pieces of memory the peer may map for [Conn.WriteAt]
	// here (RDMA_IOMAPSIZE): up to 128, or a multiple of 256 up to 32512. 0: none.
	Maps int

	// Linger bounds how long Close waits for the peer to get everything that
	// was written. 0: 10 s.
	Linger time.Duration

	// Backlog bounds the streams at which a [Listener] is at work: handshakes under
	// way, and streams that were not accepted yet. 0: 128.
	Backlog int

	// TrafficClass is the IP TOS of outgoing connections.
	TrafficClass uint8
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

	maxMessage  = 64 << 10 // bytes of one message
	lowWater    = 2048     // RS_SNDLOWAT
	inlineMax   = 64
	earlyLen    = 4096 // bytes that the peer may send before the buffers are made
	ctrlReserve = 4    // work requests set apart for control messages
)

// complete returns the configuration with the defaults filled in and everything
// within its limits.
func (c Config) complete() Config {
	f := c
	within := func(p *int, zero, least, most int) {
		if *p == 0 {
			*p = zero
		}
		*p = max(least, min(*p, most))
	}
	within(&f.SendBuffer, defaultBuffer, minBuffer, maxBuffer)
	within(&f.RecvBuffer, defaultBuffer, minBuffer, maxBuffer)
	f.RecvBuffer += f.RecvBuffer & 1
	within(&f.SendDepth, defaultDepth, minDepth, maxDepth)
	within(&f.RecvDepth, defaultDepth, minDepth, maxDepth)
	within(&f.Maps, 0, 0, maxMaps)
	f.Maps = unscale(scale(f.Maps))
	if f.Linger <= 0 {
		f.Linger = defaultLinger
	}
	return f
}

// caps are the queue sizes of a stream's queue pair.
func (c Config) caps() roce.Caps {
	return roce.Caps{MaxSendWR: c.SendDepth, MaxRecvWR: c.RecvDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: inlineMax}
}
