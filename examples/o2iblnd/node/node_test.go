package node_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
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
	hub   *mem.Hub
	loss  float64
	close []func()
}

// simulate runs a test in virtual time (synctest).
func simulate(t *testing.T, loss float64, f func(t *testing.T, w *network)) {
	synctest.Test(t, func(t *testing.T) {
		w := &network{hub: mem.NewHub(mem.Config{MTU: 4200}), loss: loss}
		defer func() {
			for _, f := range w.close {
				f()
			}
		}()
		f(t, w)
	})
}

func (w *network) open(t *testing.T, host int, cfg node.Config) *node.Node {
	t.Helper()
	n, _ := w.openDevice(t, host, cfg)
	return n
}

func (w *network) openDevice(t *testing.T, host int, cfg node.Config) (*node.Node, *roce.Device) {
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
	w.close = append(w.close, func() { n.Close(); dev.Close() })
	return n, dev
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

// store is a target that keeps the data of PUTs by their match bits.
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

// exchange puts and gets data of all sizes concurrently and compares it.
func exchange(t *testing.T, from *node.Node, to wire.NID, rounds int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
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
	simulate(t, 0, func(t *testing.T, w *network) {
		a, b := w.open(t, 1, node.Config{}), w.open(t, 2, node.Config{})
		for _, p := range []struct{ from, to *node.Node }{{a, b}, {b, a}} {
			info, err := p.from.Ping(t.Context(), p.to.NID())
			check(t, err)
			if len(info.Interfaces) != 2 || info.Interfaces[1].NID != p.to.NID() || info.Interfaces[1].Status != wire.StatusUp {
				t.Errorf("ping says %+v", info)
			}
		}
	})
}

// TestExchange moves data of all sizes in both directions, with more operations at once than there are credits.
func TestExchange(t *testing.T) {
	for name, c := range map[string]struct {
		loss float64
		a, b node.Config
	}{
		"fastreg":       {},
		"fragments":     {b: node.Config{FragmentSize: 4096}, a: node.Config{FragmentSize: 4096}},
		"fmr":           {a: node.Config{Pool: node.PoolConfig{Mode: node.FMR, DirtyWatermark: 4, Cache: true}}},
		"checksums":     {a: node.Config{LND: lnd.Config{Checksum: wire.SignedChecksum}}, b: node.Config{LND: lnd.Config{Checksum: wire.UnsignedChecksum}}},
		"loss":          {loss: 0.04},
		"one credit":    {a: node.Config{LND: lnd.Config{PeerCredits: 1}}},
		"deeper":        {a: node.Config{LND: lnd.Config{PeerCredits: 32}}},
		"accept races":  {a: node.Config{LND: lnd.Config{Race: lnd.RaceAccept}}, b: node.Config{LND: lnd.Config{Race: lnd.RaceAccept}}},
		"mixed races":   {a: node.Config{LND: lnd.Config{Race: lnd.RaceByNumber}}},
		"privileged":    {a: node.Config{Privileged: true}, b: node.Config{Privileged: true}},
		"few fragments": {a: node.Config{LND: lnd.Config{MaxFrags: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, c.loss, func(t *testing.T, w *network) {
				a, b := w.open(t, 1, c.a), w.open(t, 2, c.b)
				a.Attach(new(store).target())
				b.Attach(new(store).target())
				var both sync.WaitGroup // both sides connect at once
				both.Go(func() { exchange(t, a, b.NID(), 3) })
				both.Go(func() { exchange(t, b, a.NID(), 3) })
				both.Wait()
			})
		})
	}
}

// TestRestart closes a node, or cuts its power, during transfers. The operations of the other node
// fail, and it connects again when the first node is back.
func TestRestart(t *testing.T) {
	for _, how := range []string{"closed", "killed"} {
		t.Run(how, func(t *testing.T) {
			simulate(t, 0, func(t *testing.T, w *network) {
				a := w.open(t, 1, node.Config{})
				b, device := w.openDevice(t, 2, node.Config{})
				b.Attach(new(store).target())
				exchange(t, a, b.NID(), 1)
				var puts sync.WaitGroup
				failed, moved := make(chan error, 8), make(chan bool)
				for i := range 8 {
					puts.Go(func() {
						for {
							if _, err := a.Put(t.Context(), b.NID(), storePortal, uint64(i), pattern(1<<20, i), true); err != nil {
								failed <- err
								return
							}
							select {
							case moved <- true:
							default:
							}
						}
					})
				}
				for range 10 { // each goroutine has a transfer under way
					<-moved
				}
				if how == "killed" {
					device.Close()
				}
				b.Close()
				puts.Wait()
				for range 8 {
					if err := <-failed; err == nil {
						t.Error("an operation without a peer ended well")
					}
				}
				device.Close()
				again := w.open(t, 2, node.Config{})
				again.Attach(new(store).target())
				exchange(t, a, again.NID(), 2)
			})
		})
	}
}
