package lnd

import (
	"cmp"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Config has the parameters of a node. The zero value has the defaults of the kernel's module.
type Config struct {
	PeerCredits     int           // queue depth that is asked for and allowed (peer_credits), 8 to 255; 0: 8
	HighWater       int           // credits owed that cause a NOOP, at depth PeerCredits (peer_credits_hiw); 0: half
	MaxFrags        int           // of a descriptor, 1 to 257; 0: 257
	ConcurrentSends int           // sends in flight on a connection (concurrent_sends); 0: PeerCredits
	SendWork        int           // work requests that the send queue holds; 0: as many as ConcurrentSends can need, up to 8192
	Timeout         time.Duration // of an operation; 0: 49 s
	Keepalive       time.Duration // without any send before a NOOP; 0: 100 s, negative: never
	Checksum        wire.ChecksumKind
	Race            RaceRule
}

// Limits of the configuration.
const (
	defaultCredits   = 8
	maxCredits       = 255
	maxWork          = wire.MaxFragments + extraWork // of one message
	maxSendWork      = 8192
	defaultTimeout   = 49 * time.Second
	defaultKeepalive = 100 * time.Second
	minConnect       = 5 * time.Second
)

// WithDefaults returns c with its zero fields filled in and the others brought within their limits.
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

// Params returns what the configuration proposes to a peer.
func (c Config) Params() wire.ConnParams {
	return wire.ConnParams{QueueDepth: uint16(c.PeerCredits), MaxFrags: uint16(c.MaxFrags), MaxMessage: wire.MaxMessage}
}

// ConnectTimeout returns how long an attempt to connect may wait for the peer's answer.
func (c Config) ConnectTimeout() time.Duration { return max(minConnect, c.WithDefaults().Timeout/4) }

// Receives returns how many receives a connection of this depth must have posted.
func Receives(depth int) int { return 2*depth + 2 }
