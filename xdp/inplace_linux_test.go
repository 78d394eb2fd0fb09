package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

const inPlaceMemory = 64 << 10

// alloc allocates memory of a Port and fills it with a pattern.
func alloc(t *testing.T, p *Port, n int) []byte {
	t.Helper()
	b, free, err := p.AllocMemory(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// sendInPlace is linktest.Send, but sends the payload in place.
func sendInPlace(t *testing.T, p *Port, path *frame.Path, psn bth.PSN, payload []byte) {
	t.Helper()
	head, trailer, crc, ok := p.BeginInPlace(path, bth.BTHLen, payload, bth.ICRCLen)
	if !ok {
		t.Fatalf("%d bytes cannot be sent in place", len(payload))
	}
	if lent := p.Lent(); len(lent) != path.HeaderLen(frame.LayoutEthernet)+bth.BTHLen {
		t.Errorf("Lent() has %d bytes", len(lent))
	}
	bth.PutBTH(head, bth.RCSendOnly, 0, 0, bth.DefaultPKey, linktest.QPN, psn)
	bth.PutICRC(trailer, crc.UpdateBTH(head).Update(payload))
	p.Commit()
}

// TestInPlace: a frame with a payload in place, at any offset and across as many chunks as
// possible, is equal to the frame with a copied payload.
func TestInPlace(t *testing.T) {
	large := 4200
	if _, _, ok := netlab.Cards(); ok {
		large = min(large, driverOfCards(t).pieces)
	}
	for _, mtu := range []int{1500, large} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			a, b := netlab.Pair(t, netlab.Config{MTU: mtu})
			from, to := start(t, a, Config{Memory: inPlaceMemory, InPlace: 1}), start(t, b, Config{})
			if m := from.Info().Mode; m != "native, scatter-gather, copy, payload in place" {
				t.Errorf("mode %q", m)
			}
			way := path(t, a, b, true, 0) // over IPv6, because the Identification of IPv4 packets differs
			most := mtu - way.HeaderLen(frame.LayoutIP) - linktest.Overhead
			mem := alloc(t, from, inPlaceMemory/2)
			var sent [][]byte
			for _, n := range []int{4, 256, 1024, most &^ 3} {
				for _, at := range []int{0, 1, 2048 - n, 2048 - n/2, 4096 - n, 4097 - n, 4095, 4096, 8192 - n/2} {
					if at >= 0 && n > 0 {
						sent = append(sent, mem[at:at+n])
					}
				}
			}
			fr := make([]link.Frame, link.Batch)
			receive := func() (frames [][]byte) {
				if err := from.Flush(); err != nil {
					t.Fatal(err)
				}
				for deadline := time.Now().Add(linktest.Patience); len(frames) < len(sent); {
					within10s(t, to)
					if time.Now().After(deadline) {
						t.Fatalf("%d of %d frames arrived; sender %+v, receiver %+v", len(frames), len(sent), from.Stats(), to.Stats())
					}
					n, err := to.Recv(fr)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range fr[:n] {
						linktest.Check(t, frame.LayoutEthernet, f)
						frames = append(frames, bytes.Clone(f.Data))
					}
				}
				return frames
			}
			for i, payload := range sent {
				linktest.Send(t, from, way, bth.PSN(i), payload)
			}
			copied := receive()
			for i, payload := range sent {
				sendInPlace(t, from, way, bth.PSN(i), payload)
			}
			if got := receive(); !slices.EqualFunc(got, copied, bytes.Equal) {
				t.Errorf("MTU %d: frames sent in place differ from those that were copied", mtu)
			}
			if s := from.Stats(); int(s.TxInPlace) != len(sent) || int(s.TxPackets) != 2*len(sent) || s.TxErrors+s.TxDrops+s.TxOversize != 0 {
				t.Errorf("Stats() = %+v", s)
			}
		})
	}
}

// within10s waits at most 10 s for a frame.
func within10s(t *testing.T, p *Port) {
	t.Helper()
	if err := p.Wait(10e9); err != nil {
		t.Fatal(err)
	}
}

// TestInPlaceRefused: BeginInPlace refuses a payload that it cannot send in place; the caller then
// uses Begin.
func TestInPlaceRefused(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	way := path(t, a, b, false, 0)
	p := start(t, a, Config{Memory: inPlaceMemory, InPlace: 512})
	mem := alloc(t, p, 8192)
	for what, payload := range map[string][]byte{"memory from elsewhere": make([]byte, 1024), "less than worth while": mem[:511], "more than the MTU": mem[:4096], "nothing": nil} {
		if _, _, _, ok := p.BeginInPlace(way, bth.BTHLen, payload, bth.ICRCLen); ok || p.Lent() != nil {
			t.Errorf("%s is taken", what)
		}
	}
	if _, _, _, ok := p.BeginInPlace(way, bth.BTHLen, mem[:512], bth.ICRCLen); !ok {
		t.Error("512 bytes are not taken")
	}
	p.Close()
	if _, _, _, ok := p.BeginInPlace(way, bth.BTHLen, mem[:512], bth.ICRCLen); ok {
		t.Error("a closed port takes payload")
	}
	if _, _, err := p.AllocMemory(1); !errors.Is(err, link.ErrClosed) {
		t.Errorf("AllocMemory of a closed port: %v", err)
	}
	if mem[0] != 0 || mem[8191] != 0 {
		t.Error("memory of a closed port still has its contents")
	}

	for _, test := range []struct {
		c    Config
		want string
	}{
		{Config{Memory: 4096}, "native, scatter-gather, copy"}, // off by default in copy mode
		{Config{Memory: 4096, InPlace: 1, Generic: true}, "generic, copy"},
		{Config{InPlace: 1}, "native, copy"},
	} {
		c, want := test.c, test.want
		p := start(t, a, c)
		i := p.Info()
		if i.Mode != want || slices.ContainsFunc(i.Notes, func(s string) bool { return strings.Contains(s, "in place") }) != c.Generic {
			t.Errorf("%+v: mode %q, notes %q", c, i.Mode, i.Notes)
		}
		_, _, err := p.AllocMemory(4096)
		if c.Memory == 0 != errors.Is(err, link.ErrUnsupported) {
			t.Errorf("%+v: AllocMemory: %v", c, err)
		}
		p.Close()
	}
	for _, c := range []Config{{Interface: a.Interface, Memory: -1}, {Interface: a.Interface, InPlace: -1}} {
		a.Do(t, func() {
			if _, err := Open(c); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%+v: %v, want EINVAL", c, err)
			}
		})
	}
}

// TestInPlaceGivenBack: memory that is freed while packets with a payload in it are queued is
// not allocated again before these packets were sent or dropped.
func TestInPlaceGivenBack(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	p := start(t, a, Config{Memory: inPlaceMemory, InPlace: 1})
	way := path(t, a, b, false, 0)
	for _, up := range []bool{true, false} {
		a.SetUp(t, up)
		mem, free, err := p.AllocMemory(inPlaceMemory)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.AllocMemory(1); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("more than there is: %v, want ENOMEM", err)
		}
		for i := range 8 {
			sendInPlace(t, p, way, bth.PSN(i), mem[4000+i:5000+i])
		}
		free()
		if _, _, err := p.AllocMemory(inPlaceMemory); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("up %v: memory that packets are still to be sent from is given out: %v", up, err)
		}
		if err := p.Flush(); up != (err == nil) {
			t.Fatal(err)
		}
		// The Port reads the last completions in the next call that sends.
		again := func() bool {
			_, free, err := p.AllocMemory(inPlaceMemory)
			if err == nil {
				free()
			}
			return err == nil
		}
		for i := 0; !again(); i++ {
			if i == 1000 {
				t.Fatalf("up %v: memory is not given out again", up)
			}
			linktest.Send(t, p, way, 100, nil)
			p.Flush()
			p.Wait(1e6)
		}
	}
}
