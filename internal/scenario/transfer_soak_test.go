package scenario_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link/fault"
	judge "github.com/goroce/roce/verify"
)

// judged is how many devices are judged by the rules of the standard: those of the first two seeds.
const judged = 4 // two for each seed

// corrupted are the rules that packets break after corruption on the network.
var corrupted = []judge.RuleID{"icrc", "bth-short", "bth-opcode", "bth-version", "bth-pad", "bth-reserved", "ip-header", "ip-fragment",
	"ip-checksum", "udp-length", "udp-checksum"}

// TestBadNetwork transfers over a network with all kinds of faults: no data are lost, nothing fails, and the devices obey
// the standard.
func TestBadNetwork(t *testing.T) {
	rates := fault.Rates{Loss: 0.01, Dup: 0.01, Reorder: 0.01, Delay: 0.01, Corrupt: 0.01, ECN: 0.05}
	seeds := uint64(10)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				open := func(addr string, seed uint64) *roce.Device {
					c := n.config(addr)
					c.Ports[0] = ok(fault.Wrap(c.Ports[0], fault.Config{Seed: seed, Tx: rates, Rx: rates}))(t)
					if seed < judged {
						c.Ports[0] = judge.Tap(t, c.Ports[0], judge.Config{Ignore: corrupted})
					}
					return n.open(c)
				}
				da, db := open("10.0.0.1", 2*seed), open("10.0.0.2", 2*seed+1)
				const size = 1 << 20
				var wg sync.WaitGroup
				for i := range 3 {
					a, b := newPeer(t, da, size), newPeer(t, db, 2*size)
					connect(t, a, b)
					fill(a.buf, i)
					wg.Go(func() {
						for range 3 {
							clear(b.buf)
							b.recv(0, size)
							a.post(roce.Send, 0, size, nil, 0)
							b.post(roce.Read, size, size, a, 0)
							b.wait()
							b.wait()
							a.wait()
							if !bytes.Equal(a.buf, b.buf[:size]) || !bytes.Equal(a.buf, b.buf[size:]) {
								t.Errorf("pair %d: the data differs", i)
							}
							first := binary.NativeEndian.Uint64(a.buf[8:])
							for k := range uint64(20) { // exactly once
								wr := b.wr(roce.FetchAdd, 0, 8, a, 8)
								wr.CompareAdd = 1
								check(t, b.qp.PostSend(wr))
								b.wait()
								if got, want := binary.NativeEndian.Uint64(b.buf), first+k; got != want {
									t.Errorf("pair %d: FETCH_ADD %d found %#x, want %#x", i, k, got, want)
								}
							}
							fill(a.buf, i)
						}
					})
				}
				wg.Wait()
				c, d := da.Counters(), db.Counters()
				if c.ICRCErr == 0 || c.RetransPkts == 0 || d.DuplicateRequest == 0 {
					t.Errorf("the network was too good: %+v", c.Counters)
				}
			})
		})
	}
}

// TestConnectionSoak connects and disconnects at random, with short contexts and a bad network. Afterwards no object is
// left.
func TestConnectionSoak(t *testing.T) {
	rates := fault.Rates{Loss: 0.05, Dup: 0.05, Reorder: 0.05, Delay: 0.05}
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				open := func(addr string, seed uint64) *roce.Device {
					c := n.config(addr)
					c.Ports[0] = ok(fault.Wrap(c.Ports[0], fault.Config{Seed: seed, Tx: rates, Rx: rates, DelayTime: time.Second}))(t)
					if seed < judged {
						c.Ports[0] = judge.Tap(t, c.Ports[0], judge.Config{})
					}
					return n.open(c)
				}
				devices := []*roce.Device{open("10.0.0.1", 2*seed), open("10.0.0.2", 2*seed+1)}
				ctx, cancel := context.WithCancel(context.Background())
				var wg sync.WaitGroup
				var mu sync.Mutex
				rng := rand.New(rand.NewPCG(seed, 0))
				chance := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
				outcomes := map[string]int{}
				count := func(what string) { mu.Lock(); defer mu.Unlock(); outcomes[what]++ }
				patience := func() (context.Context, context.CancelFunc) {
					return context.WithTimeout(ctx, time.Duration(chance(60_000))*time.Millisecond)
				}
				end := func(c *roce.Conn) {
					time.Sleep(time.Duration(chance(10_000)) * time.Millisecond)
					switch chance(3) {
					case 0: // leave it to the other side, for a while
						select {
						case <-c.Done():
						case <-time.After(time.Minute):
						}
					case 1:
						ctx, cancel := patience()
						defer cancel()
						c.Disconnect(ctx)
					}
					check(t, c.Close())
				}
				var listeners []*roce.Listener
				for _, d := range devices {
					l := ok(d.Listen(ctx, ":7471", roce.ListenConfig{Backlog: 4}))(t)
					listeners = append(listeners, l)
					wg.Go(func() {
						for {
							r, err := l.Accept(ctx)
							if err != nil {
								return
							}
							wg.Go(func() {
								time.Sleep(time.Duration(chance(8000)) * time.Millisecond)
								if chance(4) == 0 {
									r.Reject(nil)
									return
								}
								ctx, cancel := patience()
								defer cancel()
								if c, err := r.Accept(ctx, roce.AcceptConfig{}); err == nil {
									count("accepted")
									end(c)
								}
							})
						}
					})
				}
				var dials sync.WaitGroup
				for i := range 200 {
					dials.Go(func() {
						time.Sleep(time.Duration(chance(60_000)) * time.Millisecond)
						ctx, cancel := patience()
						defer cancel()
						addr := []string{"10.0.0.2:7471", "10.0.0.1:7471"}[i%2]
						c, err := devices[chance(2)].Dial(ctx, addr, roce.DialConfig{})
						var reject *roce.RejectError
						switch {
						case err == nil:
							count("connected")
							end(c)
						case errors.As(err, &reject):
							count("rejected")
						case errors.Is(err, context.DeadlineExceeded):
							count("impatient")
						default:
							t.Errorf("Dial: %v", err)
						}
					})
				}
				time.Sleep(10 * time.Minute) // everything has given up by now
				cancel()
				for _, l := range listeners {
					l.Close()
				}
				time.Sleep(time.Hour)
				for _, d := range devices {
					if m, e, w := remembered(d); m+e+w > 0 {
						t.Errorf("%d connections, %d ends and %d paths are remembered", m, e, w)
					}
				}
				dials.Wait()
				wg.Wait()
				for _, d := range devices {
					if n := queuePairs(d); n > 0 {
						t.Errorf("%d queue pairs are left", n)
					}
				}
				t.Logf("%v", outcomes)
				if outcomes["connected"] == 0 || outcomes["rejected"] == 0 || outcomes["impatient"] == 0 {
					t.Errorf("outcomes %v", outcomes)
				}
			})
		})
	}
}
