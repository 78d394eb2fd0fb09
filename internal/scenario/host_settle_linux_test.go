package scenario_test

import (
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
)

// Two hosts have just started: the kernel still looks for duplicates of the addresses of their default GIDs. Queue pairs with these GIDs
// connect when it has finished, although they give up after a short time without an answer.
func TestConnectWhileSettling(t *testing.T) {
	for _, driver := range []string{"udp", "raw", "xdp"} {
		t.Run(driver, func(t *testing.T) {
			x, y := netlab.Pair(t, netlab.Config{})
			for _, s := range []*netlab.Side{x, y} {
				s.Detect(t, 700*time.Millisecond, s.LinkLocal)
			}
			a := newPeer(t, openOn(t, x, roce.InterfaceConfig{Driver: driver}), 4096)
			b := newPeer(t, openOn(t, y, roce.InterfaceConfig{Driver: driver}), 4096)
			for _, p := range []*peer{a, b} {
				if g := p.dev.GIDs(); len(g) != 3 || !g[0].Addr().IsLinkLocalUnicast() {
					t.Fatalf("GIDs %v, want the default GID first", g)
				}
			}
			joinWith(t, a, b, 14, 2) // 67 ms
			for i := range 3 {
				a.post(roce.Write, i, 64, b, i)
				if wc := a.wait(); wc.Status != roce.StatusSuccess {
					t.Fatalf("WRITE %d: %v", i, wc)
				}
			}
		})
	}
}
