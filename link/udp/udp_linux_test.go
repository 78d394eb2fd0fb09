package udp

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// onLoopback opens a Port on an address of the loopback interface.
func onLoopback(t testing.TB, last byte, change func(*Config)) link.Port {
	t.Helper()
	addr := linktest.Loopback(last)
	c := Config{Addr: addr}
	if change != nil {
		change(&c)
	}
	p, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return linktest.At(p, addr, netip.Addr{})
}

// variants are the configurations in which a Port is tested.
var variants = []struct {
	name   string
	change func(*Config)
}{
	{"GSO,GRO", nil},
	{"GSO", func(c *Config) { c.NoGRO = true }},
	{"GRO", func(c *Config) { c.NoGSO = true }},
	{"plain", func(c *Config) { c.NoGSO, c.NoGRO = true, true }},
}

func TestPort(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
				return onLoopback(t, 1, v.change), onLoopback(t, 2, v.change)
			})
		})
	}
}

func BenchmarkLoopback(b *testing.B) {
	for _, v := range []int{0, 3} {
		b.Run(variants[v].name, func(b *testing.B) {
			linktest.BenchmarkPort(b, func(b *testing.B) (link.Port, link.Port) {
				return onLoopback(b, 3, variants[v].change), onLoopback(b, 4, variants[v].change)
			})
		})
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	linktest.BenchmarkRoundTrip(b, func(b *testing.B) (link.Port, link.Port) {
		return onLoopback(b, 5, nil), onLoopback(b, 6, nil)
	})
}
