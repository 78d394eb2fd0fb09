package cmprobe_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/tools/cmprobe"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func TestReject(t *testing.T) {
	sd, cd := tooltest.Pair(t, fault.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan netip.AddrPort, 1)
	done := make(chan error, 1)
	rejected := 0
	go func() {
		done <- cmprobe.Reject(ctx, sd, tooltest.Server4+":0", []byte("no"), 0, func(a netip.AddrPort) { ready <- a },
			func(netip.AddrPort) { rejected++ })
	}()
	addr := (<-ready).String()
	for range 3 {
		r, err := cmprobe.Probe(t.Context(), cd, addr, nil, 10*time.Second)
		if err != nil || r.Verdict != cmprobe.Rejected || r.Reason != 28 || string(r.Private) != "no" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	_, err := cd.ResolveUD(t.Context(), addr, roce.ResolveConfig{})
	if refused, ok := errors.AsType[*roce.ResolveError](err); !ok || refused.Status != cm.SIDRReject || !strings.HasPrefix(string(refused.PrivateData), "no\x00") {
		t.Errorf("a request for a UD queue pair: %v", err)
	}
	cancel()
	if err := <-done; err != nil || rejected != 4 {
		t.Errorf("%v, %d rejected", err, rejected)
	}
}
