package lnd

import (
	"cmp"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Config has the parameters of a node. The zero value has the defaults of the kernel's module.
type Config struct {
	PeerCredits     int           // queue depth of requests, and the largest that a peer may request (peer_credits), 1 to 255; 0: 8
	HighWater       int           // credits owed that cause a NOOP, at depth PeerCredits (peer_credits_hiw); 0: half
	MaxFrags        int           // fragments of a descriptor, 1 to 257; 0: 257
	ConcurrentSends int           // sends in flight on a connection (concurrent_sends); 0: PeerCredits
	SendWork        int           // depth of the send queue in work requests; 0: as many as ConcurrentSends can need, up to 8192
	Timeout         time.Duration // limit for an operation; 0: 49 s
	Keepalive       time.Duration // time without a send after which a NOOP is sent; 0: 100 s, negative: never
	Checksum        wire.ChecksumKind
	Race            RaceRule
}

// Limits of the configuration.
const (
	defaultCredits   = 8
	maxCredits       = 255
	maxWork          = wire.MaxFragments + extraWork // work requests of one message
	maxSendWork      = 8192
	defaultTimeout   = 49 * time.Second
	defaultKeepalive = 100 * time.Second
	minConnect       = 5 * time.Second
)

// WithDefaults returns c with defaults in place of zero fields. Other fields are brought within their limits.
func (c Config) WithDefaults() Config {
	c.PeerCredits = min(max(cmp.Or(c.PeerCredits, defaultCredits), 1), maxCredits)
	c.HighWater = min(max(cmp.Or(c.HighWater, c.PeerCredits/2), c.PeerCredits/2, 1), max(c.PeerCredits-1, 1))
	c.MaxFrags = min(max(cmp.Or(c.MaxFrags, wire.MaxFragments), 1), wire.MaxFragments)
	c.ConcurrentSends = min(max(cmp.Or(c.ConcurrentSends, c.PeerCredits), 1), maxCredits)
	c.SendWork = max(cmp.Or(c.SendWork, min(c.ConcurrentSends*maxWork, maxSendWork)), maxWork)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Keepalive = cmp.Or(c.Keepalive, defaultKeepalive)
	return c
}

// Params returns the parameters that the node proposes to a peer.
func (c Config) Params() wire.ConnParams {
	return wire.ConnParams{QueueDepth: uint16(c.PeerCredits), MaxFrags: uint16(c.MaxFrags), MaxMessage: wire.MaxMessage}
}

// ConnectTimeout returns how long an attempt to connect may wait for the peer's answer.
func (c Config) ConnectTimeout() time.Duration { return max(minConnect, c.WithDefaults().Timeout/4) }

// Receives returns how many receives a connection of this depth must have posted.
func Receives(depth int) int { return 2*depth + 2 }
