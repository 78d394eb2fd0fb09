package roce

import (
	"encoding/binary"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
)

// madLimiter bounds how many management datagrams a device looks at. To handle one costs
// as much as dozens of packets of a connection, and anybody can send them: without a bound
// a flood of them takes the processor away from the connections.
//
// Datagrams are taken at a rate, and as many at once as are due in madBurst. When half of
// that is used up, each source has a share of the rate of its own: a flood from one source
// does not keep others from connecting.
type madLimiter struct {
	gap    time.Duration        // between two datagrams
	all    mono.Time            // until when those taken so far have used the rate up
	shares [madShares]mono.Time // the same of the sources that hash to one share
	seed   uint64               // a stranger must not know who shares with whom
}

const (
	defaultMADRate = 200_000
	madBurst       = 250 * time.Millisecond
	madShares      = 64
)

func newMADLimiter(rate int, seed uint64) madLimiter {
	if rate <= 0 {
		rate = defaultMADRate
	}
	return madLimiter{gap: max(time.Second/time.Duration(rate), 1), seed: seed | 1}
}

// take reports whether a datagram of a source is looked at, and counts it if so.
func (l *madLimiter) take(now mono.Time, from *bth.GID) bool {
	all := max(l.all, now).Add(l.gap)
	used := all.Sub(now)
	if used > madBurst {
		return false
	}
	if used > madBurst/2 {
		source := cm.SourceOf(*from)
		hash := (binary.BigEndian.Uint64(source[:8])*l.seed ^ binary.BigEndian.Uint64(source[8:])) * l.seed
		share := &l.shares[hash>>32%madShares]
		until := max(*share, now).Add(l.gap * madShares)
		if until.Sub(now) > madBurst/2 {
			return false
		}
		*share = until
	}
	l.all = all
	return true
}
