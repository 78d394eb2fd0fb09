//go:build linux

// Command soak runs all operations for a long time, over each link in turn, on a network that
// loses, duplicates and reorders packets:
//
//	go run ./interop/soak -duration 2h
//	go run ./interop/soak -duration 2m -links raw -seed 7
//
// A round on a link consists of: every operation, by the tests of interop/conformance/suite;
// streams and messages over short connections, by packages rsocket and message; a numbered
// stream of SENDs during which the link goes down and up again; a peer in a separate
// process that is killed by SIGKILL; and addresses that are added and removed.
//
// It fails on wrong data, and on a completion that is missing or comes twice. It also fails if
// heap, goroutines or descriptors grow from round to round, for which it runs at least two rounds,
// and if the peer has more of them than before its connections.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/conformance/suite"
	"github.com/goroce/roce/interop/netns"
)

type options struct {
	duration time.Duration
	links    []string
	seed     uint64
}

// peerVariable is the environment variable that makes the program the peer; its value is the link.
const peerVariable = "ROCE_SOAK_PEER"

func main() {
	if link := os.Getenv(peerVariable); link != "" {
		if err := peer(link); err != nil {
			fmt.Fprintln(os.Stderr, "soak: peer:", err)
			os.Exit(1)
		}
		return
	}
	if err := realMain(); err != nil {
		fmt.Fprintln(os.Stderr, "--- FAIL: soak:", err)
		os.Exit(1)
	}
	fmt.Println("pass  soak")
}

func realMain() error {
	o := options{}
	links := flag.String("links", "raw,udp,xdp,mem", "`drivers`, in turn, separated by commas")
	flag.DurationVar(&o.duration, "duration", 2*time.Minute, "how long the test runs; it finishes the last round")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of all random choices")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	o.links = strings.Split(*links, ",")
	for _, link := range o.links {
		if link != "mem" && !slices.Contains(roce.InterfaceDrivers(), link) {
			return fmt.Errorf("-links: %q is neither mem nor one of %s", link, strings.Join(roce.InterfaceDrivers(), ", "))
		}
	}
	if os.Geteuid() != 0 && *links != "mem" {
		return errors.New("root is needed for network namespaces (-links mem needs none)")
	}
	ctx, stop := progress.Context(context.Background(), "soak")
	defer stop()
	netns.Sweep(ctx)
	m := progress.New("soak", os.Stdout)
	m.Lasts(o.duration)
	err := o.soak(ctx, m)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	m.Close(err)
	return err
}

// soak runs rounds until the time is over.
func (o *options) soak(ctx context.Context, m *progress.Meter) error {
	each := time.Minute
	if o.duration < 5*time.Minute {
		each = 10 * time.Second
	}
	s := &soak{rng: rand.New(rand.NewPCG(o.seed, 0)), began: time.Now(), tests: suite.All(), meter: m}
	defer func() { s.pair.Remove() }()
	s.say()
	tick := time.NewTicker(each)
	defer tick.Stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-tick.C:
				s.say()
			case <-ended:
				return
			}
		}
	}()
	end := s.began.Add(o.duration)
	compared := false // whether growth was checked, for which a link needs a second round
	for round := 0; !compared || time.Now().Before(end); round++ {
		for i, link := range o.links {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if compared && time.Now().After(end) {
				break
			}
			began := time.Now()
			if err := s.round(ctx, link, end); err != nil {
				return fmt.Errorf("%s, round %d, seed %d: %w", link, round, o.seed, err)
			}
			m.Step(0, fmt.Sprintf("%-4s round %d, %.1f s", link, round, time.Since(began).Seconds()))
			compared = round*len(o.links)+i >= len(o.links)
			if err := s.checkGrowth(compared); err != nil {
				return fmt.Errorf("after %s, round %d: %w", link, round, err)
			}
		}
	}
	s.say()
	return ctx.Err()
}
