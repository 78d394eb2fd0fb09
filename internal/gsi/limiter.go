package gsi

import (
	"encoding/binary"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// madLimiter bounds the rate of management datagrams that a device handles. One costs as much
// as dozens of packets of a connection, and every host can send them: without a bound a flood
// would take the processor from the connections.
//
// The limiter admits datagrams at a rate, with bursts of up to madBurst of that rate, but at
// least two datagrams for each share. When half of a burst is used, each source has its own
// share of the rate, so that a flood from one source does not prevent others from
// connecting. While connections of the shard transfer data, the rate is divided by slowdown:
// at the full rate the datagrams, and the program's answers to requests, would take most of
// a processor.
type madLimiter struct {
	gap    time.Duration        // between two datagrams
	all    mono.Time            // the datagrams so far have used the rate up to this time
	shares [madShares]mono.Time // the same for the sources that hash to each share
	seed   uint64               // secret, so that a stranger does not know which sources have the same share
	last   mono.Time            // time of the last datagram
	burst  time.Duration        // length of the burst at the time last
}

const (
	defaultMADRate = 200_000
	madBurst       = 250 * time.Millisecond
	madShares      = 64
	slowdown       = 32
	dataAge        = 10 * time.Millisecond // time after a packet during which connections count as transferring data
)

func newMADLimiter(rate int, seed uint64) madLimiter {
	if rate <= 0 {
		rate = defaultMADRate
	}
	return madLimiter{gap: max(time.Second/time.Duration(rate), 1), seed: seed | 1}
}

// limit returns the limits of the limiter, for drivers that apply them early.
func (l *madLimiter) limit() link.MADLimit {
	rate := func(gap time.Duration) link.MADRate { return link.MADRate{Gap: gap, Burst: burstOf(gap)} }
	return link.MADLimit{Idle: rate(l.gap), Busy: rate(l.gap * slowdown), BusyFor: dataAge}
}

// burstOf returns the length of a burst at a rate.
func burstOf(gap time.Duration) time.Duration { return max(madBurst, 2*madShares*gap) }

// admit reports whether to handle a datagram of a source, and counts it if so. dataAt is the
// time when a connection last transferred data; 0 means never.
func (l *madLimiter) admit(now, dataAt mono.Time, from *bth.GID) bool {
	gap := l.gap
	if dataAt != 0 && now.Sub(dataAt) < dataAge {
		gap *= slowdown
	}
	burst := burstOf(gap)
	l.setBurst(burst)
	l.last = now
	all := max(l.all, now).Add(gap)
	used := all.Sub(now)
	if used > burst {
		return false
	}
	if used > burst/2 {
		source := cm.SourceOf(*from)
		hash := (binary.BigEndian.Uint64(source[:8])*l.seed ^ binary.BigEndian.Uint64(source[8:])) * l.seed
		share := &l.shares[hash>>32%madShares]
		until := max(*share, now).Add(gap * madShares)
		if until.Sub(now) > burst/2 {
			return false
		}
		*share = until
	}
	l.all = all
	return true
}

// setBurst changes the length of the burst. If the new one is shorter, because the transfer
// of data has ended, setBurst limits the used part to it.
func (l *madLimiter) setBurst(burst time.Duration) {
	if burst < l.burst {
		l.all = min(l.all, l.last.Add(burst))
		for i := range l.shares {
			l.shares[i] = min(l.shares[i], l.last.Add(burst/2))
		}
	}
	l.burst = burst
}
