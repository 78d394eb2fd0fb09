//go:build linux

package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/goroce/roce/bench/internal/harness"
)

// shards is streams on one device, each on a separate shard and goroutine.
type shards struct {
	spec    harness.Spec
	dev     device
	streams []*stream
}

func (s *shards) Prepare() (any, error) {
	var err error
	if s.dev, err = open(s.spec); err != nil {
		return nil, err
	}
	var offers []offer
	for i, one := range s.streams {
		if err := one.prepare(s.dev, i); err != nil {
			return nil, err
		}
		offers = append(offers, one.offer())
	}
	return offers, nil
}

func (s *shards) Connect(b json.RawMessage) error {
	var peers []json.RawMessage
	if err := json.Unmarshal(b, &peers); err != nil {
		return err
	}
	if len(peers) != len(s.streams) {
		return fmt.Errorf("%d streams here, %d there", len(s.streams), len(peers))
	}
	for i, one := range s.streams {
		if err := one.Connect(peers[i]); err != nil {
			return err
		}
	}
	return nil
}

// Run runs the streams. The counters of the device and the process come from the first.
func (s *shards) Run(ctx context.Context) (harness.Measure, error) {
	each, failed := make([]harness.Measure, len(s.streams)), make([]error, len(s.streams))
	var running sync.WaitGroup
	for i, one := range s.streams {
		running.Go(func() { each[i], failed[i] = one.Run(ctx) })
	}
	running.Wait()
	m := harness.Sum(each)
	m.Packets, m.Mallocs, m.Retrans, m.Drops = each[0].Packets, each[0].Mallocs, each[0].Retrans, each[0].Drops
	return m, errors.Join(failed...)
}

func (s *shards) Close() error { return s.dev.Close() }
