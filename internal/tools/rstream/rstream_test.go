package rstream_test

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/rstream"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

// Server and client of this stack work over a network without losses and over one with losses and duplicates.
func TestBothEnds(t *testing.T) {
	for _, f := range []fault.Config{{}, {Seed: 3, Tx: fault.Rates{Loss: 0.01, Dup: 0.05}}} {
		for _, io := range []bool{false, true} {
			if io && raceEnabled {
				continue // with IO, a program polls memory that the network writes
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

// If a client exits after its last acknowledgements were lost, the server passes: the client has all data.
func TestLastAckLost(t *testing.T) {
	for name, goodbye := range map[string]bool{"acknowledgements": false, "acknowledgements and goodbye": true} {
		t.Run(name, func(t *testing.T) {
			// If the scheduler runs the client's program first, the client disconnects before it acknowledges.
			for tries := 1; testLastAckLost(t, goodbye) == 0; tries++ {
				if tries == 50 {
					t.Fatal("no acknowledgement was lost")
				}
			}
		})
	}
}

// testLastAckLost returns how many acknowledgements were lost.
func testLastAckLost(t *testing.T, goodbye bool) (lost int) {
	var mu sync.Mutex
	var toServer bth.QPN // the destination of the first data; 0: not seen yet
	answering := false   // the server sends data
	lose := func(_ fault.Direction, p *bth.Packet) bool {
		mu.Lock()
		defer mu.Unlock()
		data := p.PayloadLen() >= 500
		switch {
		case data && toServer == 0:
			toServer = p.DestQPN()
		case data && p.DestQPN() != toServer:
			answering = true
		case answering && p.Op == bth.RCAck && p.DestQPN() == toServer:
			lost++
			return true
		case answering && goodbye && p.DestQPN() == 1:
			return true
		}
		return false
	}
	synctest.Test(t, func(t *testing.T) {
		server, client := tooltest.Pair(t, fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Dir: fault.Tx, Func: lose}}})
		cfg := rstream.Config{Custom: true, Iterations: 1, Count: 1, Size: 1000, Verify: true, Buffer: 1 << 16}
		at := make(chan string, 1)
		served := make(chan error, 1)
		go func() {
			served <- rstream.Server(t.Context(), server, tooltest.Server4+":0", cfg, func(a netip.AddrPort) { at <- a.String() })
		}()
		if err := rstream.Client(t.Context(), client, <-at, cfg); err != nil {
			t.Fatal(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		server.Close()
		client.Close()
	})
	return lost
}
