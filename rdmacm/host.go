package rdmacm

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/inside"
)

// Host has the devices of a machine, one or several, and the ports in use on
// it; librdmacm finds these by itself. The address of an ID determines its
// device.
type Host struct {
	devices []*roce.Device
	polled  []*roce.Device // the polled ones among devices
	stops   []func()

	numbers atomic.Uint64 // number of IDs so far

	mu     sync.Mutex
	ports  map[portKey][]*binding
	ids    map[*ID]struct{}
	pds    map[*roce.Device]*roce.PD
	closed bool

	unread atomic.Pointer[func(*roce.Device, roce.QPN) func() bool] // see UnreadFunc; nil: none
}

// NewHost makes a host with devices. If several can reach a peer, the host
// tries them in this order. The caller still owns the devices.
func NewHost(devices ...*roce.Device) (*Host, error) {
	if len(devices) == 0 || slices.Contains(devices, nil) {
		return nil, fail("new host", syscall.ENODEV, "at least one device is needed")
	}
	h := &Host{devices: slices.Clone(devices), ports: map[portKey][]*binding{}, ids: map[*ID]struct{}{}, pds: map[*roce.Device]*roce.PD{}}
	for _, d := range devices {
		if agentOf(d).NIC().Polled() {
			h.polled = append(h.polled, d)
		}
		h.stops = append(h.stops, agentOf(d).Watch(func(err error) { h.changed(d, err) }))
	}
	return h, nil
}

// Devices lists the devices (rdma_get_devices).
func (h *Host) Devices() []*roce.Device { return slices.Clone(h.devices) }

// Close destroys the remaining IDs and the protection domains that were made for them; a domain
// with memory regions is freed with its last region. The devices stay open. A second Close
// returns net.ErrClosed.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return roce.ErrClosed
	}
	h.closed = true
	left := slices.Collect(maps.Keys(h.ids))
	h.mu.Unlock()
	for _, stop := range h.stops {
		stop()
	}
	for _, id := range left {
		id.DestroyEP()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pd := range h.pds {
		inside.ReleasePD(pd)
	}
	return nil
}

// pd returns the default protection domain of a device.
func (h *Host) pd(d *roce.Device) *roce.PD {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pds[d] == nil {
		h.pds[d] = d.AllocPD()
	}
	return h.pds[d]
}

// changed handles a change of the addresses of a device or, if err is not nil, the end of the
// device.
func (h *Host) changed(d *roce.Device, err error) {
	h.mu.Lock()
	ids := slices.Collect(maps.Keys(h.ids))
	h.mu.Unlock()
	for _, id := range ids {
		if err == nil {
			id.addrsChanged(d)
		} else {
			id.deviceGone(d, err)
		}
	}
}

// has reports whether a device has an address.
func has(d *roce.Device, a netip.Addr) bool { return slices.Contains(d.GIDs(), bth.GIDFrom(a)) }

// deviceOf returns the device with an address, or nil.
func (h *Host) deviceOf(a netip.Addr) *roce.Device {
	if i := slices.IndexFunc(h.devices, func(d *roce.Device) bool { return has(d, a) }); i >= 0 {
		return h.devices[i]
	}
	return nil
}

// portKey is a port of a port space: the spaces are independent.
type portKey struct {
	ps   cm.PortSpace
	port uint16
}

// binding is a port that an ID has, and the fields that decide whether another ID may share it.
// Guarded by the host.
type binding struct {
	key       portKey
	addr      netip.Addr     // unspecified: any
	dst       netip.AddrPort // the peer, for an ID that will connect
	afOnly    bool
	reuse     bool
	listening bool
}

// The range of ephemeral ports (ip_local_port_range).
const ephemeralLow, ephemeralHigh = 32768, 60999

// bind takes a port; for 0 it chooses one. Linux: cma_get_port.
func (h *Host) bind(b *binding, rnd uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.key.port != 0 {
		if err := h.conflict(b, b.reuse); err != nil {
			return err
		}
		h.ports[b.key] = append(h.ports[b.key], b)
		return nil
	}
	const n = ephemeralHigh - ephemeralLow + 1
	ours := h.ours(b.addr)
	for _, any := range []bool{false, true} {
		for i := range uint64(n) {
			b.key.port = uint16(ephemeralLow + (rnd+i)%n)
			if (any || ours(b.key.port)) && h.unique(b) {
				h.ports[b.key] = append(h.ports[b.key], b)
				return nil
			}
		}
	}
	b.key.port = 0
	return fail("bind", syscall.EADDRNOTAVAIL, "all ports from %d to %d are taken", ephemeralLow, ephemeralHigh)
}

// ours returns a function that reports whether this process may choose a port, if processes
// share the address. With several shared addresses the function may return false for every
// port.
func (h *Host) ours(addr netip.Addr) func(port uint16) bool {
	var agents []*gsi.Agent
	for _, d := range h.devices {
		if addr.IsUnspecified() || has(d, addr) {
			agents = append(agents, agentOf(d))
		}
	}
	return func(port uint16) bool {
		return !slices.ContainsFunc(agents, func(g *gsi.Agent) bool { return !g.HasPort(port) })
	}
}

// conflict returns an error if b cannot share its port with the other IDs of the port:
// EADDRNOTAVAIL if either side is bound to a wildcard, EADDRINUSE if both have the same
// address. Linux: cma_check_port.
func (h *Host) conflict(b *binding, reuse bool) error {
	for _, o := range h.ports[b.key] {
		switch {
		case o == b, reuse && o.reuse && !o.listening, b.afOnly && o.afOnly && b.addr.Is4() != o.addr.Is4():
		case b.addr.IsUnspecified() || o.addr.IsUnspecified():
			return fail("bind", syscall.EADDRNOTAVAIL, "%v port %d is bound to %v", b.key.ps, b.key.port, o.addr)
		case b.addr == o.addr:
			return fail("bind", syscall.EADDRINUSE, "%v port %d is bound to %v", b.key.ps, b.key.port, o.addr)
		}
	}
	return nil
}

// unique reports whether every other ID of the port differs from b by its
// address or its peer. Linux: cma_port_is_unique.
func (h *Host) unique(b *binding) bool {
	for _, o := range h.ports[b.key] {
		known := b.dst.IsValid() && o.dst.IsValid()
		differ := !b.addr.IsUnspecified() && !o.addr.IsUnspecified() && b.addr != o.addr
		if !(known && b.dst != o.dst) && !differ {
			return false
		}
	}
	return true
}

// listen checks that no other ID of the port could receive the requests of a listener.
func (h *Host) listen(b *binding) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.conflict(b, false); err != nil {
		return err
	}
	b.listening = true
	return nil
}

// update calls f with the host locked.
func (h *Host) update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *Host) unbind(b *binding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rest := slices.DeleteFunc(h.ports[b.key], func(o *binding) bool { return o == b })
	h.ports[b.key] = rest
	if len(rest) == 0 {
		delete(h.ports, b.key)
	}
}

func (h *Host) enter(id *ID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return roce.ErrClosed
	}
	h.ids[id] = struct{}{}
	return nil
}
