package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/link"
)

// errRemoved is the error of calls on a NIC whose interface was removed.
var errRemoved = errs.New("device", fmt.Errorf("%w: %w", link.ErrNoDevice, syscall.ENODEV), "its network interface was removed; close it")

// interfaceState has the properties of a NIC's interface that the host may
// change.
type interfaceState struct {
	name string
	mac  frame.MAC
	mtu  int // of new connections
}

// MTU returns the MTU of the interface, but at most its value when the NIC was opened,
// because drivers reserved room for that.
func (n *NIC) MTU() int { return n.state.Load().mtu }

// LinkInfo describes the link, with the current name, Ethernet address and MTU of the
// interface, and the current mode of the first port.
func (n *NIC) LinkInfo() link.Info {
	info, now := n.info, n.state.Load()
	info.Interface, info.MAC, info.MTU, info.Mode = now.name, now.mac, now.mtu, n.shards[0].port.Info().Mode
	return info
}

// present fails if the network interface was removed. The caller has locked a shard.
// interfaceRemoved sets removed before it locks all shards, so it also ends work that the
// caller begins after a successful check.
func (n *NIC) present() error {
	if n.removed.Load() {
		return errRemoved
	}
	return nil
}

// Removed reports whether the network interface was removed.
func (n *NIC) Removed() bool { return n.removed.Load() }

// interfaceRemoved ends the work of a NIC whose network interface was removed: it
// flushes all work requests and ends connections and listeners. No lock is held.
func (n *NIC) interfaceRemoved() {
	if n.closing.Load() || n.removed.Swap(true) {
		return
	}
	n.Lock()
	for _, q := range n.demux.all() {
		q.flush()
	}
	n.Unlock()
	n.qp1.Removed(errRemoved)
	n.notify(Event{Type: EventDeviceFatal})
}

// Follow makes the NIC follow its interface of the host until host is closed. neighbours
// is nil if the kernel routes every packet. Follow calls changed with new addresses.
func (n *NIC) Follow(host *hostnet.Interface, neighbours route.Host, changed func([]netip.Addr)) error {
	if neighbours != nil {
		n.Go(n.routes.Follow(neighbours, n.done))
	}
	return host.Watch(func(c hostnet.Change) {
		if c.Interface && !n.followInterface(host, changed) {
			return
		}
		switch {
		case neighbours == nil:
		case c.Interface || c.Routes:
			n.routes.RoutesChanged(neighbours)
		default:
			n.routes.NeighboursChanged(neighbours, c.Neighbours)
		}
	})
}

// followInterface adopts the state and the addresses of the interface. It reports
// false if the interface was removed.
func (n *NIC) followInterface(host *hostnet.Interface, changed func([]netip.Addr)) bool {
	state, err := host.State()
	if errors.Is(err, syscall.ENODEV) {
		n.interfaceRemoved()
		return false
	}
	if err == nil {
		if moved, neighbours := n.setState(state); moved {
			host.Announce() // on an error the peers notice by themselves
			for _, at := range neighbours {
				host.Verify(at) // the kernel has dropped these neighbours
			}
		}
	}
	for _, s := range n.shards {
		s.port.Stats() // makes the driver look at the link
	}
	if addrs, err := host.Addrs(); err == nil {
		changed(addrs)
	}
	return true
}

// setState adopts the current state of the interface. moved tells whether the NIC has
// another Ethernet address; neighbours are those in use.
func (n *NIC) setState(s hostnet.State) (moved bool, neighbours []netip.Addr) {
	old := *n.state.Load()
	now := interfaceState{s.Name, s.MAC, min(s.MTU, n.info.MTU)}
	if n.info.MAC.IsZero() {
		now.mac = old.mac // the kernel writes it
	}
	if now == old {
		return false, nil
	}
	n.state.Store(&now)
	if moved = now.mac != old.mac; moved {
		neighbours = n.routes.SetMAC(now.mac)
	}
	n.notify(Event{Type: EventPortChange, Port: 1})
	if now.mtu < old.mtu {
		n.raisePathMTU(bth.ActiveMTU(now.mtu))
	}
	return moved, neighbours
}

// raisePathMTU raises an event for each queue pair with a path MTU that the interface no
// longer carries.
func (n *NIC) raisePathMTU(most bth.MTU) {
	n.Lock()
	defer n.Unlock()
	for _, q := range n.demux.all() {
		if a, _ := q.engine.Query(); q.engine.Path() != nil && a.PathMTU > most {
			n.notify(Event{Type: EventPathMTU, QP: q})
		}
	}
}
