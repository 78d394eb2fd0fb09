package roce

import (
	"time"

	"github.com/goroce/roce/cm"
)

// ConnLimits bounds what peers can make the connection manager of a device keep and
// say. In each field 0 stands for the default.
//
// A peer is a stranger until it has answered: all that is known of it is an address
// that anybody can write on a packet. A source of such packets is an IPv4 address, or
// the /64 of an IPv6 address.
type ConnLimits struct {
	// MaxConns bounds the connections in all, those that have just ended and lookups
	// included. Beyond it Dial fails with ENOMEM. 0: 65536.
	MaxConns int

	// MaxHalfOpen bounds the connections and requests of peers that are not confirmed
	// or answered. When there are so many, and also when the backlog of a listener is
	// full, a new request takes the place of the oldest of the source that has most; if
	// that is its own source, it is dropped, and repeated by its sender. 0: 4096.
	MaxHalfOpen int
	// HalfOpenTimeout bounds how long an accepted connection waits for the peer's
	// confirmation, and with it [ConnRequest.Accept]. A peer that asks for more time
	// gets up to 66 s, once. It is an eighth of that while there are too many, for sources
	// that have no other connection. 0: 10 s.
	HalfOpenTimeout time.Duration
	// RequestTimeout bounds how long a request waits to be accepted or rejected, whether
	// the program has taken it or not; [ListenConfig] may say otherwise. 0: a minute.
	RequestTimeout time.Duration

	// ReplyRate and TotalReplyRate bound the answers per second to one source of packets
	// that belong to no connection, and to all of them. An answer that no packet
	// provoked, as a repeated one, counts 16 times. A source that has confirmed another
	// connection has TotalReplyRate for itself, and each answer counts once. Answers beyond are
	// not sent, and counted. 0: 256 and 2048.
	ReplyRate, TotalReplyRate int

	// MADRate bounds the management datagrams per second that the device looks at, each
	// of which costs as much as dozens of packets; connecting and disconnecting takes
	// three. Some may come at once; when a lot do, the sources share them. Those beyond are
	// dropped and counted. 0: 200 000.
	MADRate int

	// CloseTimeout bounds how long [Device.Close] waits for the peers of its connections
	// to confirm that they are over, while it repeats itself. 0: 300 ms. Less: it tells
	// them once.
	CloseTimeout time.Duration
}

// defaultCloseTimeout lets six copies of a message leave, see [cm.Manager.Close].
const defaultCloseTimeout = 300 * time.Millisecond

func (l *ConnLimits) config(c cm.Config) cm.Config {
	c.MaxConns, c.MaxHalfOpen, c.HalfOpenTimeout, c.RequestTimeout = l.MaxConns, l.MaxHalfOpen, l.HalfOpenTimeout, l.RequestTimeout
	c.ReplyRate, c.TotalReplyRate = l.ReplyRate, l.TotalReplyRate
	return c
}
