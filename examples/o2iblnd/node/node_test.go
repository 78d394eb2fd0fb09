package node_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/node"
	"github.com/goroce/roce/examples/o2iblnd/wire"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
)

// network is a wire in the process, with losses.
type network struct {
	hub  *mem.Hub
	loss float64
}

func (w *network) open(t *testing.T, host int, cfg node.Config) *node.Node {
	t.Helper()
	ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(host)})
	mp, err := w.hub.Port(fmt.Sprint(t.Name(), host, time.Now().UnixNano()), roce.DerivedMAC(ip))
	check(t, err)
	var port link.Port = mp
	if w.loss > 0 {
		port, err = fault.Wrap(mp, fault.Config{Seed: uint64(host), Rx: fault.Rates{Loss: w.loss}})
		check(t, err)
	}
	dev, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}})
	check(t, err)
	cfg.Addr = ip
	n, err := node.Open(dev, cfg)
	check(t, err)
	t.Cleanup(func() { n.Close(); dev.Close() })
	return n
}

func newNetwork(loss float64) *network {
	return &network{hub: mem.NewHub(mem.Config{MTU: 4200}), loss: loss}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// store is a target that keeps what is put into it under each match bits.
type store struct {
	mu   sync.Mutex
	data map[uint64][]byte
}

const storePortal = 7

func (s *store) target() *node.Target {
	s.data = map[uint64][]byte{}
	return &node.Target{Portal: storePortal, Ignore: ^uint64(0),
		Put: func(h *wire.LNetHeader) []byte {
			s.mu.Lock()
			defer s.mu.Unlock()
			b := make([]byte, h.PayloadLen)
			s.data[h.MatchBits] = b
			return b
		},
		Get: func(h *wire.LNetHeader) []byte {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.data[h.MatchBits]
		}}
}

var sizes = []int{1, 160, 3976, 3977, 4096, 65536, 1<<20 - 1, 1 << 20}

// exchange puts and gets all sizes at once and compares.
func exchange(t *testing.T, from *node.Node, to wire.NID, rounds int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range rounds {
		for _, size := range sizes {
			all.Go(func() {
				match := uint64(i)<<32 | uint64(size)
				want := pattern(size, i)
				if n, err := from.Put(ctx, to, storePortal, match, want, true); err != nil || n != size {
					t.Errorf("put of %d bytes: %d acknowledged, %v", size, n, err)
					return
				}
				got := make([]byte, size)
				if n, err := from.Get(ctx, to, storePortal, match, got); err != nil || n != size {
					t.Errorf("get of %d bytes: %d, %v", size, n, err)
				} else if !bytes.Equal(got, want) {
					t.Errorf("get of %d bytes: other data", size)
				}
			})
		}
	}
	all.Wait()
}

func TestPing(t *testing.T) {
	w := newNetwork(0)
	a, b := w.open(t, 1, node.Config{Trace: func(s string) { t.Log(s) }}), w.open(t, 2, node.Config{Trace: func(s string) { t.Log("b", s) }})
	for _, p := range []struct{ from, to *node.Node }{{a, b}, {b, a}} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		info, err := p.from.Ping(ctx, p.to.NID())
		check(t, err)
		if len(info.Interfaces) != 2 || info.Interfaces[1].NID != p.to.NID() || info.Interfaces[1].Status != wire.StatusUp {
			t.Errorf("ping says %+v", info)
		}
	}
}

func TestExchange(t *testing.T) {
	for name, c := range map[string]struct {
		loss float64
		cfg  node.Config
	}{
		"fastreg":   {0, node.Config{}},
		"fragments": {0, node.Config{FragmentSize: 4096}},
		"fmr":       {0, node.Config{Pool: node.PoolConfig{Mode: node.FMR, DirtyWatermark: 4, Cache: true}}},
		"checksums": {0, node.Config{LND: lnd.Config{Checksum: wire.SignedChecksum}}},
		"loss":      {0.04, node.Config{}},
		"one":       {0, node.Config{LND: lnd.Config{PeerCredits: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(c.loss)
			a, b := w.open(t, 1, c.cfg), w.open(t, 2, c.cfg)
			b.Attach(new(store).target())
			exchange(t, a, b.NID(), 3)
		})
	}
}
