package roce

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/link"
)

// ErrNoDevice says that the network interface under the device was removed.
var ErrNoDevice = link.ErrNoDevice

// errGone is why nothing works any more on a device without its interface.
var errGone = &Error{"device", "its network interface was removed; close it", fmt.Errorf("%w: %w", ErrNoDevice, syscall.ENODEV)}

// trouble looks at an error of the port. That the link is down is a condition;
// that the interface is gone ends the device, once the lock is free. Others are
// counted.
func (s *shard) trouble(err error) {
	switch {
	case errors.Is(err, link.ErrNoDevice):
		if !s.dev.gone.Load() {
			s.notices = append(s.notices, notice{gone: true})
		}
	case errors.Is(err, link.ErrDown), errors.Is(err, link.ErrClosed):
	default:
		s.health.errors++
	}
}

// flush hands what was committed to the driver.
func (s *shard) flush() {
	s.flushed = s.commits
	if err := s.port.Flush(); err != nil {
		s.trouble(err)
	}
}

// vanish is the end of a device whose network interface was removed: everything
// posted is flushed, connections are over, and so is listening. No lock is held.
func (d *Device) vanish() {
	if d.closing.Load() || d.gone.Swap(true) {
		return
	}
	d.lockAll()
	for _, q := range d.demux.all() {
		q.flush()
	}
	conns := slices.Collect(maps.Keys(d.gsi.conns))
	told := d.gsi.everybody()
	d.unlockAll()
	for _, tell := range told {
		tell(errGone)
	}
	for _, c := range conns {
		c.Destroy()
	}
	d.raise(Event{Type: EventDeviceFatal})
	d.watchers.tell(errGone)
}

// present fails once the network interface was removed. Called with a shard
// locked: what is begun then is seen by vanish.
func (d *Device) present() error {
	if d.gone.Load() {
		return errGone
	}
	return nil
}

// interfaceState is what the host may change about the interface of a device.
type interfaceState struct {
	name string
	mac  frame.MAC
	mtu  int // of what is connected from now on
}

// mac is the device's Ethernet address.
func (d *Device) mac() frame.MAC { return d.state.Load().mac }

// mtu is the MTU of the interface, and no more than it was when the device was opened:
// drivers made room for that.
func (d *Device) mtu() int { return d.state.Load().mtu }

// follow keeps the device in step with the interface of the host it sits on, and what
// is behind it, until the host's side is closed.
func (d *Device) follow(host *hostnet.Interface) error {
	n, ok := d.resolver.(neighbours)
	if ok { // otherwise the kernel finds the way of every packet
		d.hops.tended.Store(true)
		d.following.Go(func() { d.hops.tend(n, d.done) })
	}
	return host.Watch(func(c hostnet.Change) {
		if c.Interface && !d.followInterface(host) {
			return
		}
		switch {
		case !ok:
		case c.Interface || c.Routes:
			d.hops.refresh(n, d.hops.all())
		default:
			d.hops.refresh(n, d.hops.leadingTo(c.Neighbours))
		}
	})
}

// followInterface takes over the state and the addresses of the interface. It reports
// false if it was removed.
func (d *Device) followInterface(host *hostnet.Interface) bool {
	state, err := host.State()
	if errors.Is(err, syscall.ENODEV) {
		d.vanish()
		return false
	}
	if err == nil {
		if moved, towards := d.setState(state); moved {
			host.Announce() // an error: the peers have to find out themselves
			for _, at := range towards {
				host.Verify(at) // the kernel has forgotten them
			}
		}
	}
	for _, s := range d.shards {
		s.port.Stats() // makes the driver look at the link
	}
	if addrs, err := host.Addrs(); err == nil {
		d.SetAddrs(addrs) // an error: the device is closed
	}
	return true
}

// setState takes over the present state of the interface. moved says that the device has
// another Ethernet address, towards are the neighbours in use.
func (d *Device) setState(s hostnet.State) (moved bool, towards []netip.Addr) {
	old := *d.state.Load()
	now := interfaceState{s.Name, s.MAC, min(s.MTU, d.info.MTU)}
	if d.info.MAC.IsZero() {
		now.mac = old.mac // the kernel's business
	}
	if now == old {
		return false, nil
	}
	d.state.Store(&now)
	if moved = now.mac != old.mac; moved {
		towards = d.hops.setMAC(now.mac)
	}
	d.raise(Event{Type: EventPortChange, Port: 1})
	if now.mtu < old.mtu {
		d.raiseTooLong(bth.ActiveMTU(now.mtu))
	}
	return moved, towards
}

// raiseTooLong raises an event for each queue pair with a path MTU that the interface no
// longer carries.
func (d *Device) raiseTooLong(most bth.MTU) {
	d.lockAll()
	defer d.unlockAll()
	for _, q := range d.demux.all() {
		if a, _ := q.engine.Query(); q.engine.Path() != nil && a.PathMTU > most {
			d.raise(Event{Type: EventPathMTU, QP: q})
		}
	}
}
