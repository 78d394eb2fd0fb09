package gsi

import (
	"encoding/binary"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// madLimiter bounds how many management datagrams a device handles. One costs as much as dozens
// of packets of a connection, and every host can send them: without a bound a flood of them
// would take the processor away from the connections.
//
// The limiter admits datagrams at a rate, and bursts of up to madBurst of that rate. If the
// rate is so low that this is less than two datagrams for each share, a burst is those. When
// half of a burst is used up, each source has a share of the rate: a flood from one source
// does not keep others from connecting. While connections of the shard transfer data the
// rate is a fraction, slowdown, of what it is otherwise: at the full rate handling
// datagrams and the program's answers to requests would take most of a processor.
type madLimiter struct {
	gap    time.Duration        // between two datagrams
	all    mono.Time            // until when those taken so far have used the rate up
	shares [madShares]mono.Time // the same of the sources that hash to one share
	seed   uint64               // secret: a stranger must not know which sources share
	last   mono.Time            // when a datagram came last
	burst  time.Duration        // what could be used up then
}

const (
	defaultMADRate = 200_000
	madBurst       = 250 * time.Millisecond
	madShares      = 64
	slowdown       = 32
	dataAge        = 10 * time.Millisecond // so long after a packet data are being transferred
)

func newMADLimiter(rate int, seed uint64) madLimiter {
	if rate <= 0 {
		rate = defaultMADRate
	}
	return madLimiter{gap: max(time.Second/time.Duration(rate), 1), seed: seed | 1}
}

// limit returns what the limiter allows, for drivers that drop early what it would drop.
func (l *madLimiter) limit() link.MADLimit {
	rate := func(gap time.Duration) link.MADRate { return link.MADRate{Gap: gap, Burst: burstOf(gap)} }
	return link.MADLimit{Idle: rate(l.gap), Busy: rate(l.gap * slowdown), BusyFor: dataAge}
}

// burstOf returns how much of a rate may be used up at once.
func burstOf(gap time.Duration) time.Duration { return max(madBurst, 2*madShares*gap) }

// admit reports whether a datagram of a source is handled, and counts it if so. dataAt is when
// a connection transferred data last; 0 is never.
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

// setBurst begins to use a burst. If it is shorter than the one before, because the data have
// ended, no more of it can be used up than there is.
func (l *madLimiter) setBurst(burst time.Duration) {
	if burst < l.burst {
		l.all = min(l.all, l.last.Add(burst))
		for i := range l.shares {
			l.shares[i] = min(l.shares[i], l.last.Add(burst/2))
		}
	}
	l.burst = burst
}
