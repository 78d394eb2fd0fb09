package rdmacm

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
)

// JoinConfig configures [ID.JoinMulticast].
type JoinConfig struct {
	// SendOnly: the queue pair is not attached, and the host does not join the group.
	SendOnly bool

	// Context is returned in the event.
	Context any
}

// group is a multicast group that an ID has joined, or is joining.
type group struct {
	id       *ID
	addr     netip.Addr
	sendOnly bool
	qp       *roce.QP // attached; guarded by the ID
}

func (g *group) gid() roce.GID { return bth.GIDFrom(g.addr) }

// JoinMulticast joins a multicast group, IPv4 or IPv6 (rdma_join_multicast,
// rdma_join_multicast_ex). It attaches the queue pair of the ID to the group,
// for which the host joins the group on the device's network (IGMP, MLD). For an
// ID without a queue pair it only returns the addresses; the program attaches
// its own queue pair with [roce.QP.AttachMulticast].
//
// The event is MulticastJoin, with the destination for the group in UD, or
// MulticastError. It fails with EINVAL for an ID that is not UD, before the
// ID is bound to a device, and if addr is not a group.
func (id *ID) JoinMulticast(ctx context.Context, addr netip.Addr, c *JoinConfig) error {
	const op = "join multicast"
	c = cmp.Or(c, &JoinConfig{})
	addr = addr.Unmap().WithZone("")
	if !addr.IsMulticast() {
		return id.fail(op, syscall.EINVAL, "%v is no multicast group", addr)
	}
	id.mu.Lock()
	if id.qpType != roce.UD || id.dev == nil || id.state != addrBound && id.state != addrResolved {
		defer id.mu.Unlock()
		return id.fail(op, syscall.EINVAL, "a %v ID in state %v; it must be UD, bound to a device, and not connecting", id.qpType, id.state)
	}
	if slices.ContainsFunc(id.groups, func(g *group) bool { return g.addr == addr }) {
		defer id.mu.Unlock()
		return id.fail(op, syscall.EADDRINUSE, "%v is joined already", addr)
	}
	g := &group{id: id, addr: addr, sendOnly: c.SendOnly}
	id.groups = append(id.groups, g)
	dev, from, tos := id.dev, specific(id.local.Addr()), id.opts.tos
	id.mu.Unlock()
	id.spawn(0, func(ctx context.Context) {
		r, err := agentOf(dev).Route(ctx, from, addr, tos)
		ev := &Event{Type: MulticastJoin, ID: id, Context: c.Context, group: g}
		id.mu.Lock()
		defer id.mu.Unlock()
		if !slices.Contains(id.groups, g) { // left meanwhile: the program expects no event for the group
			return
		}
		if err != nil {
			ev = failed(MulticastError, id, err)
			ev.Context = c.Context
			id.dropLocked(g)
		} else {
			ev.UD = &UDParam{AHAttr: roce.AHAttr(r.Way), QPN: roce.QPNMulticast, QKey: UDPQKey}
		}
		id.postLocked(ev)
	})
	return id.complete(ctx, MulticastJoin, MulticastError)
}

// joined attaches the queue pair, when the program takes the event.
func (g *group) joined(ev *Event) {
	id := g.id
	id.op.Lock()
	defer id.op.Unlock()
	id.mu.Lock()
	q := id.queues.qp
	left := !slices.Contains(id.groups, g) // meanwhile
	id.mu.Unlock()
	if g.sendOnly || left || q == nil {
		return
	}
	if err := q.AttachMulticast(g.gid()); err != nil {
		ev.Type, ev.Status, ev.Err, ev.UD = MulticastError, -int(errnoOf(err)), err, nil
		id.drop(g)
		return
	}
	id.locked(func() { g.qp = q })
}

// drop removes a group from the ID.
func (id *ID) drop(g *group) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.dropLocked(g)
}

// dropLocked is drop with id.mu locked.
func (id *ID) dropLocked(g *group) bool {
	n := len(id.groups)
	id.groups = slices.DeleteFunc(slices.Clone(id.groups), func(o *group) bool { return o == g })
	return len(id.groups) < n
}

// detach detaches the queue pair from the group.
func (g *group) detach() error {
	g.id.mu.Lock()
	q := g.qp
	g.qp = nil
	g.id.mu.Unlock()
	if q == nil {
		return nil
	}
	return q.DetachMulticast(g.gid())
}

// LeaveMulticast leaves a group, or cancels joining it (rdma_leave_multicast).
// It fails with EADDRNOTAVAIL if the ID has not joined the group. The
// completion queue may still have received datagrams.
func (id *ID) LeaveMulticast(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	id.op.Lock()
	defer id.op.Unlock()
	id.mu.Lock()
	i := slices.IndexFunc(id.groups, func(g *group) bool { return g.addr == addr })
	if i < 0 {
		defer id.mu.Unlock()
		return id.fail("leave multicast", syscall.EADDRNOTAVAIL, "%v is not joined", addr)
	}
	g := id.groups[i]
	channel := id.channel
	id.mu.Unlock()
	id.drop(g)
	channel.take(func(ev *Event) bool { return ev.group == g })
	return id.named("leave multicast", g.detach())
}
