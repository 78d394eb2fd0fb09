package acceptor_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/acceptor"
)

// One continues until a real peer connects, whatever strangers send: OfPeer is true for every failure that a
// stranger can cause.
func TestOneAmongStrangers(t *testing.T) {
	for _, tt := range []struct {
		name      string
		limits    roce.ConnLimits
		strangers int
		change    func(*rand.Rand, *cm.REQ)
	}{
		{"more than there is room for", roce.ConnLimits{MaxHalfOpen: 4}, 50, func(*rand.Rand, *cm.REQ) {}},
		{"no time to answer", roce.ConnLimits{RequestTimeout: time.Nanosecond, HalfOpenTimeout: time.Millisecond}, 3, func(*rand.Rand, *cm.REQ) {}},
		{"any fields", roce.ConnLimits{}, 2000, func(r *rand.Rand, m *cm.REQ) {
			b := func() uint8 { return uint8(r.Uint32()) }
			for range 1 + r.IntN(6) {
				switch r.IntN(13) {
				case 0:
					m.QPN = bth.QPN(r.Uint32()) & bth.PSNMask >> (r.IntN(4) * 8)
				case 1:
					m.MTU = bth.MTU(b() & 15)
				case 2:
					m.StartingPSN = bth.PSN(r.Uint32()) & bth.PSNMask
				case 3:
					m.RetryCount, m.RNRRetryCount = b()&7, b()&7
				case 4:
					m.ResponderResources, m.InitiatorDepth = b(), b()
				case 5:
					m.Primary.LocalGID[r.IntN(16)] = b()
				case 6:
					m.Primary.RemoteGID[r.IntN(16)] = b()
				case 7:
					m.Primary.HopLimit, m.Primary.TrafficClass = b(), b()
				case 8:
					m.Primary.AckTimeout = b() & 31
				case 9:
					m.Alternate = m.Primary
					m.Alternate.LocalGID[r.IntN(16)] = b()
				case 10:
					m.PKey = bth.PKey(r.Uint32())
				case 11:
					m.LocalResponseTimeout, m.RemoteResponseTimeout, m.MaxCMRetries = b()&31, b()&31, b()&15
				case 12:
					m.Private[r.IntN(len(m.Private))] = b()
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newLimitedNetwork(t, tt.limits)
				l, err := n.server.Listen(t.Context(), service, roce.ListenConfig{})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				served := make(chan error, 1)
				go func() {
					c, err := acceptor.One(t.Context(), l, func(ctx context.Context, r *roce.ConnRequest) (*roce.Conn, error) {
						ctx, stop := context.WithTimeout(ctx, time.Millisecond) // there are many
						defer stop()
						return r.Accept(ctx, roce.AcceptConfig{})
					})
					if err == nil {
						c.Close()
					}
					served <- err
				}()
				r := rand.New(rand.NewPCG(1, 2))
				for i := range tt.strangers {
					n.forgeAs(nil, func(m *cm.REQ) { tt.change(r, m) })
					if i%4 == 3 {
						synctest.Wait()
						time.Sleep(time.Millisecond)
					}
					select {
					case err := <-served:
						t.Fatalf("after %d strangers: %v", i+1, err)
					default:
					}
				}
				time.Sleep(time.Second)
				select {
				case err := <-served:
					t.Fatalf("after the strangers: %v", err)
				default:
				}
			})
		})
	}
}
