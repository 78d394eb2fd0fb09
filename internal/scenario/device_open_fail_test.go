package scenario_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// watchedPort counts how often it is closed, and can be of another card.
type watchedPort struct {
	link.Port
	closed *int
	mtu    int
}

func (p watchedPort) Close() error {
	*p.closed++
	return p.Port.Close()
}

func (p watchedPort) Info() link.Info {
	i := p.Port.Info()
	i.MTU += p.mtu
	return i
}

// If a device cannot be opened, it closes each port once, and the error says why.
func TestOpenFails(t *testing.T) {
	none := netip.Addr{}
	for name, spoil := range map[string]func(c *roce.Config){
		"no addresses":               func(c *roce.Config) { c.Addrs = nil },
		"no address":                 func(c *roce.Config) { c.Addrs = []netip.Addr{none} },
		"multicast address":          func(c *roce.Config) { c.Addrs = []netip.Addr{netip.MustParseAddr("ff02::1")} },
		"ports of different cards":   func(c *roce.Config) { p := c.Ports[1].(watchedPort); p.mtu = 7; c.Ports[1] = p },
		"congestion without a speed": func(c *roce.Config) { c.Congestion = &roce.DCQCN{} },
	} {
		n := newNetwork(t)
		c := n.multi("10.0.0.1", 2, destQPN)
		var closed [2]int
		c.Ports = []link.Port{watchedPort{c.Ports[0], &closed[0], 0}, watchedPort{c.Ports[1], &closed[1], 0}}
		spoil(&c)
		d, err := roce.Open(c)
		if err == nil {
			t.Errorf("%s: no error", name)
			d.Close()
			continue
		}
		if d != nil {
			t.Errorf("%s: a device and the error %v", name, err)
		}
		if !errors.Is(err, syscall.EINVAL) || !typed(err) {
			t.Errorf("%s: the error %v (%T), want EINVAL", name, err, err)
		}
		if closed != [2]int{1, 1} {
			t.Errorf("%s: the ports were closed %v times", name, closed)
		}
	}
}

// lendingPort lends memory, or fails to.
type lendingPort struct {
	link.Port
	err  error
	lent int
}

func (p *lendingPort) AllocMemory(n int) ([]byte, func(), error) {
	if p.err != nil {
		return nil, nil, p.err
	}
	p.lent++
	return make([]byte, n), func() { p.lent-- }, nil
}

func (p *lendingPort) BeginInPlace(*frame.Path, int, []byte, int) (head, trailer []byte, crc bth.CRC, ok bool) {
	return nil, nil, crc, false
}

// The link gets its memory back if the region cannot be made, and when the region is closed; afterwards nothing accesses
// it.
func TestAllocMRFromLink(t *testing.T) {
	withoutEarlyDrop(t)
	n := newNetwork(t)
	c := n.config("10.0.0.1")
	port := &lendingPort{Port: c.Ports[0]}
	c.Ports[0] = port
	d := n.open(c)
	pd := d.AllocPD()
	port.err = syscall.ENOMEM
	_, err := pd.AllocMR(64, 0)
	wantErr(t, "no memory left", err, syscall.ENOMEM)
	port.err = nil
	_, err = pd.AllocMR(64, roce.RemoteWrite)
	wantErr(t, "rights", err, syscall.EINVAL)
	setLimits(d, 0, 0, 0, 0)
	_, err = pd.AllocMR(64, 0)
	wantErr(t, "no region left", err, syscall.ENOMEM)
	setLimits(d, 9, 9, 9, 9)
	if port.lent != 0 {
		t.Errorf("%d pieces of memory did not go back", port.lent)
	}
	m := ok(pd.AllocMR(64, roce.LocalWrite))(t)
	if port.lent != 1 || m.Load64(8) != 0 {
		t.Errorf("%d pieces lent, word %d", port.lent, m.Load64(8))
	}
	check(t, m.Close())
	if port.lent != 0 || m.Bytes() != nil {
		t.Errorf("after Close %d pieces are lent, Bytes has %d bytes", port.lent, len(m.Bytes()))
	}
	if !panics(func() { m.Load64(0) }) || !panics(func() { m.Store64(0, 1) }) {
		t.Error("memory of the link was reached after Close")
	}
	wantErr(t, "close again", m.Close(), roce.ErrClosed)
	check(t, pd.Close())
	check(t, d.Close())
}
