//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/conformance/ours"
	"github.com/goroce/roce/interop/conformance/suite"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
)

// rates are the faults of the network in each direction.
var rates = fault.Rates{Loss: 0.02, Dup: 0.02, Reorder: 0.02}

// soak is a run.
type soak struct {
	rng   *rand.Rand
	began time.Time
	tests []suite.Test
	next  int        // index of the next test
	pair  netns.Pair // empty until a link needs it
	meter *progress.Meter

	count struct{ rounds, tests, streams, messages, bytes, connections, flaps, kills, addresses atomic.Int64 }
	idle  usage
}

// usage is the resource use of this process when nothing is open.
type usage struct {
	heap        uint64
	goroutines  int
	descriptors int
}

// say prints a line with the counts.
func (s *soak) say() {
	c, u := &s.count, measure()
	fmt.Fprintf(s.meter, "%8v  %d rounds, %d tests, %d connections, %d streams, %d messages, %d MiB verified, %d link flaps, %d peers killed, %d address changes; heap %d MiB, %d goroutines, %d descriptors\n",
		time.Since(s.began).Round(time.Second), c.rounds.Load(), c.tests.Load(), c.connections.Load(), c.streams.Load(), c.messages.Load(), c.bytes.Load()>>20,
		c.flaps.Load(), c.kills.Load(), c.addresses.Load(), u.heap>>20, u.goroutines, u.descriptors)
}

func measure() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	d, _ := os.ReadDir("/proc/self/fd")
	return usage{m.HeapAlloc, runtime.NumGoroutine(), len(d)}
}

// Growth since the first round that does not count as a leak: caches, and memory of the runtime.
const (
	moreHeap        = 16 << 20
	moreGoroutines  = 2
	moreDescriptors = 4
)

// checkGrowth compares the resource use after a round with that after the first round over
// each link.
func (s *soak) checkGrowth(warm bool) error {
	if warm {
		return s.idle.grown()
	}
	runtime.GC()
	u := measure()
	s.idle = usage{max(s.idle.heap, u.heap), max(s.idle.goroutines, u.goroutines), max(s.idle.descriptors, u.descriptors)}
	return nil
}

// grown waits until the resource use is no more than was. It returns an error if that takes too
// long.
func (was usage) grown() error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		runtime.GC()
		u := measure()
		if u.heap <= was.heap+moreHeap && u.goroutines <= was.goroutines+moreGoroutines && u.descriptors <= was.descriptors+moreDescriptors {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("heap %d → %d KiB, goroutines %d → %d, descriptors %d → %d", was.heap>>10, u.heap>>10,
				was.goroutines, u.goroutines, was.descriptors, u.descriptors)
		}
	}
}

// round runs all tests once over one link.
func (s *soak) round(ctx context.Context, driver string, end time.Time) error {
	defer s.count.rounds.Add(1)
	if driver == "mem" {
		return s.operations(ctx, memSides(s.rng.Uint64()), end)
	}
	if s.pair == (netns.Pair{}) {
		var err error
		if s.pair, err = netns.NewPair(ctx, "soak", device); err != nil {
			return err
		}
	}
	if err := s.operations(ctx, s.pairSides(driver, s.rng.Uint64()), end); err != nil {
		return err
	}
	return s.live(ctx, driver)
}

// sides opens the two sides of a test. For a clean test the network has no faults.
type sides func(suite.Test) (a, b verbs.Node, err error)

// memSides are devices on a switch in the process.
func memSides(seed uint64) sides {
	return func(test suite.Test) (verbs.Node, verbs.Node, error) {
		s := ours.NewSwitch()
		side := func(last byte) suite.Opener {
			return func(test suite.Test) (verbs.Node, error) {
				seed++
				return s.Open(last, lossy(test.Clean, seed))
			}
		}
		return suite.Both(test, side(1), side(2))
	}
}

// pairSides are devices at both ends of the veth pair, in this process.
func (s *soak) pairSides(driver string, seed uint64) sides {
	return func(test suite.Test) (verbs.Node, verbs.Node, error) {
		side := func(end int) suite.Opener {
			return func(test suite.Test) (verbs.Node, error) {
				seed++
				return ours.Open(open(s.pair[end], driver, test.Clean, seed))
			}
		}
		return suite.Both(test, side(near), side(far))
	}
}

// lossy returns the wrapper of a port on a network with faults, or nil for a clean network.
func lossy(clean bool, seed uint64) func(link.Port) (link.Port, error) {
	if clean {
		return nil
	}
	return func(p link.Port) (link.Port, error) { return fault.Wrap(p, fault.Config{Seed: seed, Tx: rates}) }
}

// slice is how many tests of the suite a round runs; the next round continues after them.
const slice = 40

// operations runs tests of the suite: each operation, with its data and completions
// verified.
func (s *soak) operations(ctx context.Context, open sides, end time.Time) error {
	for range slice {
		if ctx.Err() != nil || s.next >= len(s.tests) && time.Now().After(end) {
			return ctx.Err()
		}
		test := s.tests[s.next%len(s.tests)]
		s.next++
		done := s.meter.Begin(test.Name)
		err := runTest(test, open)
		for range nakLosses {
			if err == nil || !strings.Contains(err.Error(), nakLost) {
				break
			}
			err = runTest(test, open)
		}
		done()
		if err != nil {
			return fmt.Errorf("%s: %w", test.Name, err)
		}
		s.count.tests.Add(1)
	}
	return nil
}

// A responder in ERR sends nothing. If the NAK that it has sent before is lost, the requester
// ends with RETRY_EXC_ERR instead of the error of the NAK. A test that fails in this way is
// repeated a few times.
const (
	nakLost   = "RETRY_EXC_ERR, want "
	nakLosses = 4
)

// runTest runs one test on two new sides.
func runTest(test suite.Test, open sides) error {
	a, b, err := open(test)
	if err != nil {
		return err
	}
	if r := suite.Run(test, a, b); r.Verdict == suite.Fail {
		return errors.New(strings.Join(r.Notes, "; "))
	}
	return nil
}
