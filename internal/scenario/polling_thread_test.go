package scenario_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// TestPollingOneThread: if only one goroutine of a program runs at a time, and one of them polls for the answers of another one, both get on
// about as fast as if they waited. The peer may wait or poll, and the program may compute between two polls.
func TestPollingOneThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds, size, factor = 200, 64, 15
	pause := func(gap time.Duration) {
		for end := time.Now().Add(gap); gap > 0 && time.Now().Before(end); {
		}
	}
	take := func(p *peer, polls bool, gap time.Duration) {
		if !polls {
			p.wait()
			return
		}
		for wcs := make([]roce.WC, 1); p.cq.Poll(wcs) == 0; {
			pause(gap)
		}
	}
	// median is how long a message of a and its answer take.
	median := func(a, b *peer, polls, peerPolls bool, gap time.Duration) time.Duration {
		for range rounds {
			a.recv(0, size)
			b.recv(0, size)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range rounds {
				take(b, peerPolls, 0)
				b.post(roce.Send, 0, size, nil, 0)
				take(b, peerPolls, 0)
			}
		})
		var took []time.Duration
		for range rounds {
			began := time.Now()
			a.post(roce.Send, 0, size, nil, 0)
			take(a, polls, gap)
			take(a, polls, gap)
			took = append(took, time.Since(began))
		}
		wg.Wait()
		slices.Sort(took)
		return took[rounds/2]
	}
	for _, test := range []struct {
		name         string
		polled, spin bool // the device has no background goroutine; the peer polls, too
		queues       int
		gap          time.Duration // between two polls
	}{
		{name: "the peer waits"},
		{name: "the peer polls", spin: true},
		{name: "polled device", polled: true},
		{name: "several shards", queues: 3},
		{name: "a poll every millisecond", gap: time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := roce.InterfaceConfig{Queues: test.queues, Options: roce.Options{Polled: test.polled}}
			a := newPeerOn(t, onLoopback(t, 81, c), max(test.queues-1, 0), size)
			b := newPeer(t, onLoopback(t, 82, roce.InterfaceConfig{}), size)
			connect(t, a, b)
			waits := median(a, b, false, false, 0)
			polls := median(a, b, true, test.spin, test.gap)
			if polls > factor*waits+10*test.gap {
				t.Errorf("a message and its answer take %v if both wait, and %v if the program polls", waits, polls)
			}
		})
	}
}
