package rdmaclient_test

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce/internal/tools/rdmaclient"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func TestExchange(t *testing.T) {
	for _, f := range []fault.Config{{}, {Seed: 3, Tx: fault.Rates{Dup: 0.2}}} {
		sd, cd := tooltest.Pair(t, f)
		ready := make(chan netip.AddrPort, 1)
		served := make(chan error, 1)
		go func() {
			served <- rdmaclient.Server(t.Context(), sd, tooltest.Server4+":7471", func(a netip.AddrPort) { ready <- a })
		}()
		if err := rdmaclient.Client(t.Context(), cd, (<-ready).String()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
