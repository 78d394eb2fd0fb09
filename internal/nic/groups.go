package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Limits of multicast, those of rxe (max_mcast_grp, max_mcast_qp_attach). The host's
// kernel may allow less.
const (
	MaxGroups   = 8192
	MaxGroupQPs = 56 // of one group
)

// Membership joins multicast groups on a link (IGMP, MLD), so that switches
// and the network card deliver their datagrams.
type Membership interface {
	// Join makes the host a member of a group until leave is called. The NIC
	// joins a group only once at a time.
	Join(group netip.Addr) (leave func() error, err error)
}

// groups are the multicast groups that queue pairs are attached to.
type groups struct {
	// changing is held while a queue pair is attached or detached. Joining a group takes
	// some time, during which the shards continue.
	changing   sync.Mutex
	membership Membership // nil: the host need not join

	// byGID changes only while every shard is locked.
	byGID map[bth.GID]*group
}

// group is a multicast group.
type group struct {
	qps    []*QP
	shards []*Shard // of these queue pairs, each once
	leave  func() error
}

// set replaces the queue pairs of the group.
func (g *group) set(qps []*QP) {
	g.qps, g.shards = qps, nil
	for _, q := range qps {
		if !slices.Contains(g.shards, q.shard) {
			g.shards = append(g.shards, q.shard)
		}
	}
}

// Attach lets a UD queue pair receive the datagrams to a group. The host joins the group
// if the queue pair is the first. Attaching a queue pair again does nothing.
func (n *NIC) Attach(q *QP, gid bth.GID) error {
	n.groups.changing.Lock()
	defer n.groups.changing.Unlock()
	n.Lock()
	g, err := n.room(q, gid)
	n.Unlock()
	if err != nil || g != nil && slices.Contains(g.qps, q) {
		return err
	}
	if g == nil {
		g = new(group)
		if m := n.groups.membership; m != nil {
			if g.leave, err = m.Join(gid.Addr()); err != nil {
				if errors.Is(err, syscall.ENOBUFS) { // the kernel allows no more groups
					err = fmt.Errorf("%w: %w", err, syscall.ENOMEM)
				}
				return errs.New("attach multicast", err, "qp %v: join %v", q.Num(), gid.Addr())
			}
		}
	}
	n.Lock()
	defer n.Unlock()
	if n.closed || q.closed { // closed meanwhile
		if len(g.qps) == 0 && g.leave != nil {
			g.leave()
		}
		return errs.ErrClosed
	}
	g.set(append(g.qps, q))
	n.groups.byGID[gid] = g
	q.attached++
	return nil
}

// Detach undoes Attach. The host leaves the group if the queue pair was the last.
func (n *NIC) Detach(q *QP, gid bth.GID) error {
	n.groups.changing.Lock()
	defer n.groups.changing.Unlock()
	leave, err := n.removeFromGroup(q, gid)
	if err != nil || leave == nil {
		return err
	}
	if err := leave(); err != nil {
		return errs.New("detach multicast", err, "qp %v: leave %v", q.Num(), gid.Addr())
	}
	return nil
}

// room returns a group, or nil if it does not exist yet. It fails if the queue pair cannot be
// attached to the group. The caller has stopped the NIC.
func (n *NIC) room(q *QP, gid bth.GID) (*group, error) {
	const op = "attach multicast"
	g := n.groups.byGID[gid]
	switch {
	case n.closed || q.closed:
		return nil, errs.ErrClosed
	case g == nil && len(n.groups.byGID) >= MaxGroups:
		return nil, errs.New(op, syscall.ENOMEM, "qp %v: the device is in %d groups", q.Num(), len(n.groups.byGID))
	case g != nil && len(g.qps) >= MaxGroupQPs && !slices.Contains(g.qps, q):
		return nil, errs.New(op, syscall.ENOMEM, "qp %v: the group %v has %d queue pairs", q.Num(), gid.Addr(), len(g.qps))
	}
	return g, nil
}

// removeFromGroup removes a queue pair from a group. If it was the last one, the caller must
// call leave; otherwise leave is nil.
func (n *NIC) removeFromGroup(q *QP, gid bth.GID) (leave func() error, err error) {
	n.Lock()
	defer n.Unlock()
	if n.closed || q.closed {
		return nil, errs.ErrClosed
	}
	g := n.groups.byGID[gid]
	if g == nil || !slices.Contains(g.qps, q) {
		return nil, errs.New("detach multicast", syscall.EINVAL, "qp %v is not attached to %v", q.Num(), gid.Addr())
	}
	q.attached--
	g.set(slices.DeleteFunc(g.qps, func(o *QP) bool { return o == q }))
	if len(g.qps) > 0 {
		return nil, nil
	}
	delete(n.groups.byGID, gid)
	return g.leave, nil
}

// leaveGroups leaves all groups of a NIC that is being closed.
func (n *NIC) leaveGroups() error {
	t := &n.groups
	t.changing.Lock()
	defer t.changing.Unlock()
	n.Lock()
	left := t.byGID
	t.byGID = nil
	for _, g := range left {
		for _, q := range g.qps {
			q.attached--
		}
	}
	n.Unlock()
	var failed []error
	for _, g := range left {
		if g.leave != nil {
			failed = append(failed, g.leave())
		}
	}
	return errors.Join(failed...)
}

// receiveMulticast delivers a datagram to every queue pair of its group on this shard. It
// forwards the datagram to the other shards with queue pairs of the group, unless the
// datagram came from another shard.
func (s *Shard) receiveMulticast(now mono.Time, g *group, f *link.Frame, l frame.Layout, from origin) {
	p := &s.packet
	if p.DestQPN() != bth.QPNMulticast {
		s.drops.NoQP++
		return
	}
	if !s.intact(nil) {
		return
	}
	for _, q := range g.qps {
		if q.shard == s {
			q.engine.HandlePacket(now, p)
			s.touch(q)
		}
	}
	if from == fromShard {
		return
	}
	for _, to := range g.shards {
		if to != s && !to.forward(f, l, from.checked()) {
			s.drops.Overrun++
		}
	}
}
