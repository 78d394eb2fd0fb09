package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// zeroCopyDriver describes a driver with zero copy.
type zeroCopyDriver struct {
	largest int    // the largest MTU with which it accepts a program that does not support fragments
	beyond  string // the mode with an MTU of 4200
	carries int    // the MTU of the Port in that mode
	adds    bool   // it adds unused queues for the program
	pieces  int    // the largest MTU of a Port that sends in pieces
	loses   bool   // it can lose every frame: see losesFrames
}

var zeroCopyDrivers = map[string]zeroCopyDriver{
	"virtio_net": {oneBuffer, "native, scatter-gather, copy", 4200, true, 9000, true},
	"igb":        {3046, "generic, copy", 3822, false, 3046, false},
}

// trusted turns zero copy on for tests on cards: see interop/vm/boot.sh.
func trusted(c Config) Config {
	if _, _, ok := netlab.Cards(); ok && c.ZeroCopy == ZeroCopyAuto {
		c.ZeroCopy = ZeroCopyOn
	}
	return c
}

// driverOfCards returns the description of the driver of the cards. The cards are still in the namespace of the test.
func driverOfCards(t testing.TB) zeroCopyDriver {
	card, _, _ := netlab.Cards()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	name := ethtool.Driver(fd, card)
	d, known := zeroCopyDrivers[name]
	if !known {
		t.Fatalf("zeroCopyDrivers has no driver %q", name)
	}
	return d
}

// awaitCard waits until a card has a carrier. igb resets the card when a Port opens. Its driver keeps frames in the TX ring
// while it has not reported the carrier to the kernel, some milliseconds after ethtool, and so Stats, says that the link is
// up; it sends them only after the next Flush. Many tests call Flush once.
func awaitCard(t testing.TB, s *netlab.Side, p *Port) {
	t.Helper()
	if _, _, ok := netlab.Cards(); !ok {
		return
	}
	l, err := s.Netlink().LinkByName(s.Interface)
	if err != nil {
		t.Fatal(err)
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		return // the test wants it down
	}
	s.AwaitCarrier(t)
	if !p.Stats().LinkUp {
		t.Errorf("%s has a carrier, and the Port reports the link as down", s.Interface)
	}
}

// TestZeroCopy: the modes of a card whose driver supports zero copy. Packets of every size up to the MTU are sent in
// both directions, more of them than a ring has entries.
func TestZeroCopy(t *testing.T) {
	netlab.NeedCards(t)
	driver := driverOfCards(t)
	for _, test := range []struct {
		mtu     int // of the cards
		config  Config
		mode    string
		carries int // the MTU of the Ports
	}{
		{1500, Config{}, "native, zero copy", 1500},
		{1500, Config{ZeroCopy: ZeroCopyOff}, "native, copy", 1500},
		{1500, Config{RingSize: 64}, "native, zero copy", 1500},
		{driver.largest, Config{}, "native, zero copy", driver.largest},
		{4200, Config{}, driver.beyond, driver.carries},
	} {
		t.Run(fmt.Sprintf("MTU %d %s rings of %d", test.mtu, test.mode, test.config.RingSize), func(t *testing.T) {
			a, b := netlab.Pair(t, netlab.Config{MTU: test.mtu})
			pa, pb := start(t, a, test.config), start(t, b, test.config)
			for _, p := range []*Port{pa, pb} {
				if i := p.Info(); i.Mode != test.mode || i.MTU != test.carries {
					t.Errorf("mode %q, MTU %d; want %q and %d; notes %q", i.Mode, i.MTU, test.mode, test.carries, i.Notes)
				}
			}
			sizes(t, pa, pb, path(t, a, b, false, 0), test.carries)
			sizes(t, pb, pa, path(t, b, a, true, 0), test.carries)
		})
	}
}

// TestZeroCopyAuto: by default a card of a driver that can lose every frame with zero copy has copy mode, and a note.
func TestZeroCopyAuto(t *testing.T) {
	netlab.NeedCards(t)
	driver := driverOfCards(t)
	a, b := netlab.Pair(t, netlab.Config{})
	peer := start(t, b, Config{})
	var ports []link.Port
	a.Do(t, func() {
		var err error
		if ports, err = OpenQueues(Config{Interface: a.Interface, Addrs: addrs(a)}, 2); err != nil {
			t.Fatal(err)
		}
	})
	defer all(ports).Close()
	awaitCard(t, a, ports[0].(*Port))
	linktest.Send(t, ports[0], path(t, a, b, false, 0), 7, nil)
	if err := ports[0].Flush(); err != nil {
		t.Fatal(err)
	}
	linktest.Collect(t, peer, 1)
	mode, notes := "native, zero copy, queue 0 of 2", []string(nil)
	if driver.loses {
		mode, notes = "native, copy, queue 0 of 2", []string{noteLostFrames}
	}
	if i := ports[0].Info(); i.Mode != mode || !slices.Equal(i.Notes, notes) {
		t.Errorf("mode %q, notes %q; want %q and %q", i.Mode, i.Notes, mode, notes)
	}
}

func TestZeroCopyInvalid(t *testing.T) {
	if _, err := Open(Config{Interface: "lo", ZeroCopy: ZeroCopyOn + 1}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a ZeroCopy that does not exist: %v", err)
	}
}

// TestLosesFrames: virtio_net is not trusted as a module, and trusted as a part of the kernel. What cannot be found out is not trusted.
func TestLosesFrames(t *testing.T) {
	module, builtIn, none := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{module, builtIn} {
		if err := os.MkdirAll(dir+"/virtio_net/parameters", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(module+"/virtio_net/initstate", []byte("live\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		driver, modules string
		want            bool
	}{
		{"virtio_net", module, true},
		{"virtio_net", builtIn, false},
		{"virtio_net", none, true}, // no sysfs
		{"igb", module, false},
		{"igb", none, false},
		{"", module, true}, // not known
		{"", builtIn, false},
	} {
		if got := headerOfModule(test.driver, test.modules); got != test.want {
			t.Errorf("headerOfModule(%q) = %v, want %v", test.driver, got, test.want)
		}
	}
}

// TestLearn: an attempt to open is repeated only without something that the last attempt had.
func TestLearn(t *testing.T) {
	var past attempts
	for i, step := range []struct {
		err   error
		again bool
		want  lacks
	}{
		{nil, false, lacks{}},
		{unix.EPERM, false, lacks{}},
		{fmt.Errorf("%w: %w", errPieces, unix.EINVAL), true, lacks{pieces: true}},
		{fmt.Errorf("%w: %w", errPieces, unix.EINVAL), false, lacks{pieces: true}},
		{fmt.Errorf("%w", errLostFrames), true, lacks{pieces: true, zeroCopy: true}},
		{errLostFrames, false, lacks{pieces: true, zeroCopy: true}},
	} {
		if again := past.learn(step.err); again != step.again || past.lack != step.want {
			t.Errorf("step %d: learn(%v) = %v, then %+v; want %v and %+v", i, step.err, again, past.lack, step.again, step.want)
		}
	}
	past = attempts{}
	if !past.learn(errLostFrames) || !past.learn(errPieces) || past.learn(errPieces) {
		t.Errorf("in the other order: %+v", past.lack)
	}
}

// sizes sends a packet of each size from 0 to the MTU in steps, and checks what arrives.
func sizes(t *testing.T, from, to *Port, way *frame.Path, mtu int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("sender %+v, receiver %+v", from.Stats(), to.Stats())
		}
	}()
	most := mtu - way.HeaderLen(frame.LayoutIP) - linktest.Overhead
	payload := make([]byte, most+1)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	var sent [][]byte
	for n := 0; n <= most; n += 4 {
		sent = append(sent, payload[n%2:n%2+n])
	}
	// The smallest ring has 64 entries. The card has no buffers for two batches: for those that the receiver has just given
	// back, and for those that it still has. igb drops a packet for which it has none.
	const batch = 16
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
	}{{"copy", Config{ZeroCopy: ZeroCopyOff}}, {"zero", Config{}}} {
		open := func(b *testing.B) (from, to link.Port) {
			x, y := netlab.Pair(b, netlab.Config{MTU: zeroCopyDrivers["virtio_net"].largest})
			return start(b, x, mode.config), start(b, y, mode.config)
		}
		b.Run(mode.name+"/stream", func(b *testing.B) { linktest.BenchmarkPort(b, open) })
		b.Run(mode.name+"/trip", func(b *testing.B) { linktest.BenchmarkRoundTrip(b, open) })
	}
}

// TestSpareQueues: virtio_net on a card with unused queues adds some of them for the program. The Port serves them,
// too, and uses copy mode. On a card whose driver adds none it has zero copy.
func TestSpareQueues(t *testing.T) {
	netlab.NeedCards(t)
	driver := driverOfCards(t)
	a, b := netlab.Pair(t, netlab.Config{})
	for _, s := range []*netlab.Side{a, b} {
		var queues int // in use; netlink has the maximum, of which igb uses only a part
		s.Do(t, func() {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			queues = ethtool.Queues(fd, s.Interface).RX
		})
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
		mode := "native, zero copy"
		if driver.adds {
			mode = "native, copy"
		}
		if i := p.Info(); i.Mode != mode || len(p.queues) > 1 != driver.adds {
			t.Errorf("mode %q, queues %v, notes %q", i.Mode, p.queues, i.Notes)
		}
	}
	sizes(t, pa, pb, path(t, a, b, false, 0), 1500)
	sizes(t, pb, pa, path(t, b, a, true, 0), 1500)
}

// TestSlowReceiver: no packet arrives twice or changed at a Port that is read too seldom, so that the card runs out of frames at
// every entry of its ring. With igb this needs more frames than elsewhere: see xsk.FillFor.
func TestSlowReceiver(t *testing.T) {
	netlab.NeedCards(t)
	for _, size := range []int{64, 512} {
		t.Run(fmt.Sprintf("rings of %d", size), func(t *testing.T) {
			a, b := netlab.Pair(t, netlab.Config{})
			from, to := start(t, a, Config{}), start(t, b, Config{RingSize: size})
			way := path(t, a, b, false, 0)
			fr := make([]link.Frame, link.Batch)
			seen := make(map[bth.PSN]bool)
			sent := 0
			for range 12 {
				for range 2000 { // more than the rings of both sides and of the card have together
					for !linktest.Put(from, way, bth.PSN(sent), nil) {
						if err := from.Wait(time.Millisecond); err != nil {
							t.Fatal(err)
						}
					}
					from.Commit()
					sent++
				}
				if err := from.Flush(); err != nil {
					t.Fatal(err)
				}
				for quiet := 0; quiet < 3; {
					n, err := to.Recv(fr)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range fr[:n] {
						psn, _ := linktest.Check(t, frame.LayoutEthernet, f)
						if seen[psn] {
							t.Fatalf("PSN %v arrives twice, after %d of %d packets; receiver %+v", psn, len(seen), sent, to.Stats())
						}
						seen[psn] = true
					}
					if quiet++; n > 0 {
						quiet = 0
					} else if err := to.Wait(20 * time.Millisecond); err != nil {
						t.Fatal(err)
					}
				}
			}
			if len(seen) < 12*size {
				t.Errorf("%d of %d packets arrived, want more than %d; receiver %+v", len(seen), sent, 12*size, to.Stats())
			}
			// The card still works. Packets of the last turn may be left in the sender.
			for deadline, last := time.Now().Add(linktest.Patience), sent; ; sent++ {
				linktest.Send(t, from, way, bth.PSN(sent), nil)
				if err := from.Flush(); err != nil {
					t.Fatal(err)
				}
				if err := to.Wait(20 * time.Millisecond); err != nil {
					t.Fatal(err)
				}
				n, err := to.Recv(fr)
				if err != nil {
					t.Fatal(err)
				}
				if slices.ContainsFunc(fr[:n], func(f link.Frame) bool {
					psn, _ := linktest.Check(t, frame.LayoutEthernet, f)
					return psn >= bth.PSN(last)
				}) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("nothing more arrives; receiver %+v", to.Stats())
				}
			}
		})
	}
}
