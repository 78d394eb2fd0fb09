package udp

import (
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/scarce"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/raw"
)

// drops returns a function that returns how many packets the kernel dropped at each of the two
// sockets of a Port.
func drops(p *Port) func() (data, mads uint64) {
	return func() (data, mads uint64) {
		countDrops(&p.base)
		if p.MADs != nil {
			countDrops(p.MADs)
			mads = uint64(p.MADs.Dropped.Load())
		}
		return uint64(p.Dropped.Load()), mads
	}
}

// TestMADs: see linktest. Packets come one by one and as super-packets, over both IP
// versions, to a Port on an interface and to one on an address.
func TestMADs(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for _, v := range []struct {
		name      string
		v6, plain bool
		to        Config
	}{
		{name: "IPv4"}, {name: "IPv6", v6: true}, {name: "IPv4 plain", plain: true}, {name: "IPv6 plain", v6: true, plain: true},
		{name: "IPv4 address", to: Config{Addr: b.IP4}}, {name: "IPv6 address", v6: true, to: Config{Addr: b.IP6}},
		{name: "no GRO", to: Config{NoGRO: true}}, {name: "no IPv6", to: Config{noIPv6: true}},
	} {
		t.Run(v.name, func(t *testing.T) {
			linktest.TestMADs(t, func(t *testing.T, buffer int) linktest.MADs {
				c := v.to
				c.RxBuffer = buffer
				m := linktest.MADs{Path: path(t, a, b, v.v6, func(c *frame.PathConfig) { c.SrcPort = 0xC000 })}
				a.Do(t, func() {
					var err error
					if m.From, err = raw.Open(raw.Config{Interface: a.Interface, NoGSO: v.plain}); err != nil {
						t.Fatal(err)
					}
				})
				t.Cleanup(func() { m.From.Close() })
				to := start(t, b, c)
				m.To, m.Drops = to, drops(to)
				return m
			})
		})
	}
}

// TestSplitFails: see linktest.
func TestSplitFails(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for _, c := range append(scarce.Setsockopts([]int{unix.SOL_SOCKET}, []int{unix.SO_REUSEPORT}),
		scarce.Call{Name: "bind", Number: unix.SYS_BIND, Arg1: -1, Arg2: -1, Errno: unix.ENOMEM}) {
		t.Run(c.Name, func(t *testing.T) {
			to := start(t, b, Config{})
			m := linktest.MADs{From: startRaw(t, a), To: to, Drops: drops(to), Path: path(t, a, b, false, func(c *frame.PathConfig) { c.SrcPort = 0xC000 })}
			linktest.TestSplitFails(t, m, func(f func()) { scarce.Without(t, c, func(f func()) { f() }, f) })
		})
	}
}

// TestSteering: the program chooses one of n sockets by queue pair, and a separate one for
// management datagrams.
func TestSteering(t *testing.T) {
	for _, n := range []uint32{1, 3} {
		vm, err := bpf.NewVM(steering(n, n))
		if err != nil {
			t.Fatal(err)
		}
		for qpn, want := range map[bth.QPN]uint32{0: 0, bth.QPNGSI: n, 2: 2 % n, 0x11: 0x11 % n, 0xABCDEF: 0xABCDEF % n, 0x010001: 0x010001 % n,
			bth.QPNMulticast: 0, bth.QPNMulticast - 1: (1<<24 - 2) % n} {
			b := make([]byte, bth.BTHLen)
			bth.PutBTH(b, bth.RCSendOnly, 0, 0, bth.DefaultPKey, qpn, 0)
			b[4] = 0xFF // reserved
			if got, err := vm.Run(b); err != nil || uint32(got) != want {
				t.Errorf("of %d: QPN %v goes to %d, %v, want %d", n, qpn, got, err, want)
			}
		}
		for short := range 8 {
			if got, err := vm.Run(make([]byte, short)); err != nil || got != 0 {
				t.Errorf("%d bytes go to %d, %v", short, got, err)
			}
		}
	}
}
