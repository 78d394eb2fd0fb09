// Command collective runs collective operations over eight nodes, each posted as one task list:
// a barrier, a broadcast along a binomial tree and an all-reduce by recursive doubling. The
// program of a node posts the list and waits for its end; the device waits for the messages
// in between. Each result is checked against a plain loop over the numbers of all nodes, and
// each operation runs once more with a program that posts every step itself, for comparison.
//
//	collective [-rounds 200] [-numbers 512] [-load 4]
//
// The nodes are devices of one process on a network in memory, so all of them compete for the
// processors of the host. In the second half of the runs, -load goroutines keep the processors busy.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 200, "how often each operation is run")
	numbers := flag.Int("numbers", 512, "64-bit integers of the broadcast and the all-reduce")
	load := flag.Int("load", 4, "goroutines that compute in the second half of the runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds, *numbers, *load); err != nil {
		log.Fatal(err)
	}
}

// run prints the table of all operations.
func run(ctx context.Context, rounds, numbers, load int) error {
	if rounds < 1 || numbers < 1 || load < 0 {
		return fmt.Errorf("%d rounds, %d numbers and a load of %d: want at least 1, 1 and 0", rounds, numbers, load)
	}
	var clusters [2]cluster
	for i, way := range ways {
		c, err := newCluster(ctx, numbers, way.lists)
		if err != nil {
			return err
		}
		defer c.close()
		clusters[i] = c
	}
	fmt.Printf("median of %d rounds over %d nodes, %d numbers\n%-10s", rounds, size, numbers, "")
	loads := []int{0, load}
	for _, burners := range loads {
		for _, way := range ways {
			fmt.Printf(" %22s", fmt.Sprintf("%s, load %d", way.name, burners))
		}
	}
	fmt.Println()
	for _, op := range operations {
		fmt.Printf("%-10s", op.name)
		for _, burners := range loads {
			for i, way := range ways {
				t, err := measure(clusters[i], op, rounds, burners, func(n *node) error { return way.run(n, ctx, op.plan(n)) })
				if err != nil {
					return fmt.Errorf("%s, %s: %w", op.name, way.name, err)
				}
				fmt.Printf(" %22v", t.Round(100*time.Nanosecond))
			}
		}
		fmt.Println()
	}
	return nil
}

// ways are the two ways in which a node runs an operation.
var ways = [2]struct {
	name  string
	lists bool
	run   func(*node, context.Context, plan) error
}{{"one list", true, (*node).runList}, {"step by step", false, (*node).runSteps}}

// measure runs an operation on all nodes and returns the median time of a round.
func measure(nodes cluster, op operation, rounds, burners int, run func(*node) error) (time.Duration, error) {
	defer burn(burners)()
	times := make([]time.Duration, rounds)
	for round := range times {
		for _, n := range nodes {
			n.fill(round)
		}
		var entered atomic.Int32
		errs := make([]error, len(nodes))
		var wg sync.WaitGroup
		began := time.Now()
		for i, n := range nodes {
			wg.Go(func() {
				entered.Add(1)
				errs[i] = run(n)
				if got := entered.Load(); errs[i] == nil && op.synchronizes && got != size {
					errs[i] = fmt.Errorf("left when %d of %d nodes had entered", got, size)
				}
			})
		}
		wg.Wait()
		times[round] = time.Since(began)
		for i, err := range errs {
			if err != nil {
				return 0, fmt.Errorf("round %d, node %d: %w", round, i, err)
			}
		}
		for _, n := range nodes {
			if err := op.check(n, round); err != nil {
				return 0, fmt.Errorf("round %d, node %d: %w", round, n.rank, err)
			}
		}
	}
	slices.Sort(times)
	return times[rounds/2], nil
}

// burn keeps n goroutines busy until stop is called. They yield every few microseconds, like the goroutines of a
// server that does a short computation for each request.
func burn(n int) (stop func()) {
	var over atomic.Bool
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for x := uint64(1); !over.Load(); {
				for range 20000 {
					x = x*6364136223846793005 + 1
				}
				runtime.Gosched()
			}
		})
	}
	return func() {
		over.Store(true)
		wg.Wait()
	}
}
