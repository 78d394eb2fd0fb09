package fipingpong

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func TestBothEnds(t *testing.T) {
	for _, f := range []fault.Config{{}, {Seed: 4, Tx: fault.Rates{Loss: 0.002, Dup: 0.05}}} {
		server, client := tooltest.Pair(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out strings.Builder
		at, served := make(chan string, 1), make(chan error, 1)
		go func() {
			served <- Server(ctx, server, "127.0.0.1:0", Config{Size: -1, Check: true}, func(a netip.AddrPort) { at <- a.String() })
		}()
		if err := Client(ctx, client, <-at, Config{Size: -1, Check: true, Out: &out}); err != nil {
			t.Fatal(err)
		}
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		if want := "1m      10      =10      20m     "; !strings.Contains(out.String(), want) {
			t.Errorf("printed\n%s\nwant %q in it", out.String(), want)
		}
	}
}

// readName reads an address that fi_pingpong of libfabric 1.17 sent.
func TestNameCaptured(t *testing.T) {
	b, _ := hex.DecodeString("000000100200000002002b67c00002020000000000000000")
	a, err := readName(bytes.NewReader(b))
	if want := netip.MustParseAddrPort("192.0.2.2:11111"); a != want || err != nil {
		t.Errorf("%v, %v; want %v", a, err, want)
	}
	if got := appendName(nil, a); !bytes.Equal(got, b) {
		t.Errorf("encoded %x, want %x", got, b)
	}
	six := netip.MustParseAddrPort("[fd77::2]:7471")
	if got, err := readName(bytes.NewReader(appendName(nil, six))); got != six || err != nil {
		t.Errorf("%v, %v; want %v", got, err, six)
	}
	b[7] = 9
	if _, err := readName(bytes.NewReader(b)); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("format 9: %v", err)
	}
}
