package xdp

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// largestZeroCopy is the largest MTU with which virtio_net accepts a program that does not support fragments.
const largestZeroCopy = oneBuffer

// TestZeroCopy: the modes of a card whose driver supports zero copy. Packets of every size up to the MTU are sent in
// both directions, more of them than a ring has entries.
func TestZeroCopy(t *testing.T) {
	netlab.NeedCards(t)
	for _, test := range []struct {
		mtu    int
		config Config
		mode   string
	}{
		{1500, Config{}, "native, zero copy"},
		{1500, Config{Copy: true}, "native, copy"},
		{1500, Config{RingSize: 64}, "native, zero copy"},
		{largestZeroCopy, Config{}, "native, zero copy"},
		{4200, Config{}, "native, scatter-gather, copy"},
	} {
		t.Run(fmt.Sprintf("MTU %d %s rings of %d", test.mtu, test.mode, test.config.RingSize), func(t *testing.T) {
			a, b := netlab.Pair(t, netlab.Config{MTU: test.mtu})
			pa, pb := start(t, a, test.config), start(t, b, test.config)
			for _, p := range []*Port{pa, pb} {
				if i := p.Info(); i.Mode != test.mode || i.MTU != test.mtu {
					t.Errorf("mode %q, MTU %d; want %q and %d; notes %q", i.Mode, i.MTU, test.mode, test.mtu, i.Notes)
				}
			}
			sizes(t, pa, pb, path(t, a, b, false, 0), test.mtu)
			sizes(t, pb, pa, path(t, b, a, true, 0), test.mtu)
		})
	}
}

// sizes sends a packet of each size from 0 to the MTU in steps, and checks what arrives.
func sizes(t *testing.T, from, to *Port, way *frame.Path, mtu int) {
	t.Helper()
	most := mtu - way.HeaderLen(frame.LayoutIP) - linktest.Overhead
	payload := make([]byte, most+1)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	var sent [][]byte
	for n := 0; n <= most; n += 4 {
		sent = append(sent, payload[n%2:n%2+n])
	}
	const batch = 32 // fits the smallest ring
	for at := 0; at < len(sent); at += batch {
		part := sent[at:min(at+batch, len(sent))]
		for i, p := range part {
			linktest.Send(t, from, way, bth.PSN(at+i), p)
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		psns, got := linktest.Collect(t, to, len(part))
		for i, p := range part {
			if psns[i] != bth.PSN(at+i) || !bytes.Equal(got[i], p) {
				t.Fatalf("packet %d of %d bytes: PSN %v with %d bytes arrived, or others", at+i, len(p), psns[i], len(got[i]))
			}
		}
	}
}

// BenchmarkZeroCopy compares copy mode with zero copy on one pair of cards.
func BenchmarkZeroCopy(b *testing.B) {
	netlab.NeedCards(b)
	for _, mode := range []struct {
		name   string
		config Config
	}{{"copy", Config{Copy: true}}, {"zero", Config{}}} {
		open := func(b *testing.B) (from, to link.Port) {
			x, y := netlab.Pair(b, netlab.Config{MTU: largestZeroCopy})
			return start(b, x, mode.config), start(b, y, mode.config)
		}
		b.Run(mode.name+"/stream", func(b *testing.B) { linktest.BenchmarkPort(b, open) })
		b.Run(mode.name+"/trip", func(b *testing.B) { linktest.BenchmarkRoundTrip(b, open) })
	}
}

// TestSpareQueues: the driver of a card with unused queues adds some of them for the program. The Port serves them,
// too, and uses copy mode.
func TestSpareQueues(t *testing.T) {
	netlab.NeedCards(t)
	a, b := netlab.Pair(t, netlab.Config{})
	for _, s := range []*netlab.Side{a, b} {
		queues := s.Link().Attrs().NumRxQueues
		set := func(n int) {
			s.Do(t, func() {
				if out, err := exec.Command("ethtool", "-L", s.Interface, "combined", fmt.Sprint(n)).CombinedOutput(); err != nil {
					t.Fatalf("%d queues: %v: %s", n, err, out)
				}
			})
		}
		set(1)
		t.Cleanup(func() { set(queues) })
	}
	pa, pb := start(t, a, Config{}), start(t, b, Config{})
	for _, p := range []*Port{pa, pb} {
		if i := p.Info(); i.Mode != "native, copy" || len(p.queues) < 2 {
			t.Errorf("mode %q, queues %v, notes %q", i.Mode, p.queues, i.Notes)
		}
	}
	sizes(t, pa, pb, path(t, a, b, false, 0), 1500)
	sizes(t, pb, pa, path(t, b, a, true, 0), 1500)
}
