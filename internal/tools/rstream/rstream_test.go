package rstream_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/internal/tools/rstream"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

// Both programs with both ends ours, over a good network and a bad one.
func TestBothEnds(t *testing.T) {
	for _, f := range []fault.Config{{}, {Seed: 3, Tx: fault.Rates{Loss: 0.01, Dup: 0.05}}} {
		for _, io := range []bool{false, true} {
			if io && raceEnabled {
				continue // it watches memory that the network writes
			}
			server, client := tooltest.Pair(t, f)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out strings.Builder
			cfg := rstream.Config{IO: io, Custom: true, Iterations: 4, Count: 5, Size: 30_001, Verify: true, Buffer: 1 << 16, Keepalive: time.Second}
			at := make(chan string, 1)
			served := make(chan error, 1)
			go func() {
				served <- rstream.Server(ctx, server, tooltest.Server4+":0", cfg, func(a netip.AddrPort) { at <- a.String() })
			}()
			loud := cfg
			loud.Out = &out
			if err := rstream.Client(ctx, client, <-at, loud); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Fatal(err)
			}
			if want := "custom    29k     5       4       1.1m"; !strings.Contains(out.String(), want) {
				t.Errorf("printed\n%s\nwant %q in it", out.String(), want)
			}
		}
	}
}
