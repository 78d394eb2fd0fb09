package linktest

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// screen tests early drop during a flood. After Flooded a driver receives only packets from the
// addresses of peers, packets to queue pairs that accept every source, packets to queue pairs that
// are paused or were removed (because a super-packet may also have packets for the former), packets
// to groups, and management datagrams. At other times it receives every packet.
func screen(t *testing.T, m MADs) {
	p, ok := m.To.(link.Filterer)
	if !ok {
		t.Skip("no early drop")
	}
	control, err := p.Filter(link.MADLimit{})
	if err != nil {
		t.Fatal(err)
	}
	f := control.(link.FloodFilter)
	peer := m.Path.Config().Src
	other := peer
	other[15]++
	const (
		any, foreign, paused, gone, late, strange bth.QPN = 0x11, 0x31, 0x41, 0x51, 0x61, 0xABCDEF
	)
	f.Admit(any, bth.GID{})
	f.Admit(foreign, other)
	f.Admit(paused, bth.GID{})
	f.Pause(paused)
	f.Admit(gone, peer)
	f.Admit(gone, peer)
	f.Forget(gone)
	all := []bth.QPN{bth.QPNGSI, any, foreign, paused, gone, late, strange, bth.QPNMulticast}
	var check func(when string, want ...bth.QPN)
	check = func(when string, want ...bth.QPN) {
		t.Helper()
		began := time.Now()
		const each = 3
		if len(want) < len(all) {
			f.Flooded() // again, because early drop may have ended
		}
		for _, n := range all {
			sendTo(t, m.From, m.Path, n, each, 32)
		}
		const last = bth.QPNGSI // arrives in a queue of its own, so the data are waited for separately
		got := map[bth.QPN]int{}
		fr := make([]link.Frame, link.Batch)
		within(t, m.To, when, func() {
			for got[last] < each || got[any] < each || got[bth.QPNMulticast] < each {
				if m.To.Wait(-1) != nil {
					return
				}
				for _, n := range queuePairs(t, m.To, fr) {
					got[n]++
				}
			}
		})
		if time.Since(began) > time.Second/2 { // early drop may have ended: try again
			check(when, want...)
			return
		}
		slices.Sort(want)
		if g := slices.Sorted(maps.Keys(got)); !slices.Equal(g, want) {
			t.Errorf("%s: packets to %v were received, want %v", when, g, want)
		}
		for n, k := range got {
			if k != each {
				t.Errorf("%s: %d packets to %v, want %d", when, k, n, each)
			}
		}
	}
	check("before a flood", all...)
	f.Flooded()
	mixed := func(when string, first bth.QPN) {
		t.Helper()
		const each = 4
		for range each {
			putTo(t, m.From, m.Path, first, 0, 32)
			putTo(t, m.From, m.Path, any, 0, 32)
		}
		flush(t, m.From)
		fr := make([]link.Frame, link.Batch)
		within(t, m.To, when, func() {
			for got := 0; got < each && m.To.Wait(-1) == nil; {
				for _, n := range queuePairs(t, m.To, fr) {
					if n == any {
						got++
					}
				}
			}
		})
	}
	mixed("behind datagrams to a queue pair that is paused", paused)
	mixed("behind packets to a queue pair that is gone", gone)
	passes := []bth.QPN{bth.QPNGSI, any, paused, gone, bth.QPNMulticast}
	check("during a flood", passes...)
	if n := m.To.Stats().RxFloods; n == 0 {
		t.Error("the flood is not counted")
	}
	f.Admit(late, bth.GID{})
	check("with a new queue pair", append(passes, late)...)
	f.Admit(late, other)
	check("with a queue pair of another peer", passes...)
	f.Admit(late, peer)
	check("with a queue pair of the peer", all...)
	f.Admit(late, peer)
	f.Admit(gone, peer)
	f.Forget(late)
	check("with another queue pair of the peer", all...)
	f.Forget(gone)
	check("without a queue pair of the peer", append(passes, late)...)
	const many = 600
	for i := range bth.QPN(many) {
		f.Admit(0x1000+i, bth.GID{})
	}
	check("with more queue pairs than there is room for", all...)
	for i := range bth.QPN(many) {
		f.Admit(0x1000+i, other)
	}
	check("with many queue pairs of one peer", append(passes, late)...)
	for i := range bth.QPN(many) {
		f.Forget(0x1000 + i)
	}
	for i := range byte(90) {
		from := other
		from[14] = i
		f.Admit(0x1000+bth.QPN(i), from)
	}
	check("with many peers", bth.QPNGSI, any, bth.QPNMulticast)
	again := time.Now()
	for got := 0; got == 0; { // it ends by itself
		if time.Since(again) > time.Minute {
			t.Fatal("the screen does not end")
		}
		sendTo(t, m.From, m.Path, strange, 1, 32)
		fr := make([]link.Frame, link.Batch)
		if err := m.To.Wait(10 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		got = len(queuePairs(t, m.To, fr))
	}
}
