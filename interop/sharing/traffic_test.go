//go:build linux

package sharing

import (
	"net/netip"
	"os"
	"testing"
)

const firstPort = 7000

// Processes on one address have connections with processes on another address, in both directions,
// with lost packets, and with each other.
func TestTraffic(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		n, conns := pick(5, 16), pick(4, 4)
		lossy := func(o *Open) { o.Loss = 0.02 }
		all := append(a.members(t, n, lossy), b.members(t, n, lossy)...)
		for i, p := range all {
			p.echo(firstPort + uint16(i))
		}
		report(t, all, func(i int, p *process) (to []string) {
			for k, q := range all {
				if (i < n) != (k < n) {
					to = append(to, q.at())
				}
			}
			return to
		}, conns)
		report(t, all, func(i int, p *process) (to []string) {
			for k, q := range all {
				if (i < n) == (k < n) {
					to = append(to, q.at())
				}
			}
			return to
		}, 1)
		for _, p := range all {
			p.call("Close", nil, nil)
		}
		a.nothing(t)
		b.nothing(t)
	})
}

// report makes each process exchange messages with the processes that to returns, and logs the
// results.
func report(t *testing.T, all []*process, to func(i int, p *process) []string, conns int) {
	t.Helper()
	index := map[*process]int{}
	for i, p := range all {
		index[p] = i
	}
	results := make([]Exchanged, len(all))
	together(all, func(p *process) {
		i := index[p]
		results[i] = p.exchange(Exchange{To: to(i, p), Conns: conns, Messages: 8, Size: 5000})
	})
	var slowest Exchanged
	for _, r := range results {
		slowest.Conns += r.Conns
		slowest.Dialed = max(slowest.Dialed, r.Dialed)
		slowest.Took = max(slowest.Took, r.Took)
	}
	var v Vitals
	all[0].call("Vitals", nil, &v)
	t.Logf("%d connections: connected after %v, done after %v; of one process with others: %+v", slowest.Conns, slowest.Dialed, slowest.Took, v.Shared)
}

// Processes share the loopback address of IPv6.
func TestIPv6(t *testing.T) {
	t.Parallel()
	s := address(netip.IPv6Loopback())
	base := uint16(20000 + os.Getpid()%30000)
	all := s.members(t, 4)
	for i, p := range all {
		p.echo(base + uint16(i))
	}
	report(t, all, func(int, *process) (to []string) {
		for _, q := range all {
			to = append(to, q.at())
		}
		return to
	}, 2)
}
