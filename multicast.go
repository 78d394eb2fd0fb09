package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// QPNMulticast is the destination of datagrams to a multicast group.
const QPNMulticast = bth.QPNMulticast

// Limits of multicast, those of rxe (max_mcast_grp, max_mcast_qp_attach). The
// host's kernel may allow less.
const (
	MaxMulticastGroups = 8192
	MaxMulticastQPs    = 56 // of one group
)

// Membership tells the network which multicast groups are wanted on a link, so
// that switches and the network card let them through (IGMP, MLD).
type Membership interface {
	// Join makes the host a member of a group until leave is called. A group is
	// joined once.
	Join(group netip.Addr) (leave func() error, err error)
}

// groups are the multicast groups that queue pairs are attached to.
type groups struct {
	// changing is held while somebody attaches or detaches, because joining a
	// group takes a while and the shards should not stand still meanwhile.
	changing   sync.Mutex
	membership Membership // nil: nobody has to be told

	// byGID changes only while every shard is locked.
	byGID map[bth.GID]*group
}

// group is a multicast group.
type group struct {
	qps    []*QP
	shards []*shard // of these queue pairs, each once
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

// AttachMulticast lets a UD queue pair receive the datagrams to a multicast
// group (ibv_attach_mcast), an IPv6 one or a v4-mapped IPv4 one: every queue
// pair that is attached gets a copy of each, if its state and Q_Key allow. What
// the device itself sends to a group comes back to its own queue pairs, the
// sender's included if that is attached, as with rxe and with adapters. The
// completion does not tell the group; the destination in the GRH area does.
//
// The host joins the group when the first queue pair is attached and leaves it
// when the last one is detached: nothing like rdma_join_multicast is needed
// besides. Attaching a queue pair again does nothing.
//
// It is EINVAL when the queue pair is not a UD one or gid is no multicast group,
// and ENOMEM when there are too many groups, or too many queue pairs in the
// group.
//
// To send to a group, make an address handle of it and use [QPNMulticast]; the
// sender need not be attached.
func (q *QP) AttachMulticast(gid GID) error {
	const op = "attach multicast"
	d := q.dev
	if err := q.checkMulticast(op, gid); err != nil {
		return err
	}
	d.groups.changing.Lock()
	defer d.groups.changing.Unlock()
	d.lockAll()
	g, err := d.groups.room(q, gid)
	d.unlockAll()
	if err != nil || g != nil && slices.Contains(g.qps, q) {
		return err
	}
	if g == nil {
		g = new(group)
		if m := d.groups.membership; m != nil {
			if g.leave, err = m.Join(gid.Addr()); err != nil {
				if errors.Is(err, syscall.ENOBUFS) { // the kernel allows no more
					err = fmt.Errorf("%w: %w", err, syscall.ENOMEM)
				}
				return fail(op, err, "qp %v: join %v", q.num, gid.Addr())
			}
		}
	}
	d.lockAll()
	defer d.unlockAll()
	if d.closed || q.closed { // meanwhile
		if len(g.qps) == 0 && g.leave != nil {
			g.leave()
		}
		return ErrClosed
	}
	g.set(append(g.qps, q))
	d.groups.byGID[gid] = g
	q.attached++
	return nil
}

// DetachMulticast undoes [QP.AttachMulticast] (ibv_detach_mcast). It is EINVAL
// when the queue pair is not attached to the group.
func (q *QP) DetachMulticast(gid GID) error {
	const op = "detach multicast"
	d := q.dev
	if err := q.checkMulticast(op, gid); err != nil {
		return err
	}
	d.groups.changing.Lock()
	defer d.groups.changing.Unlock()
	leave, err := d.groups.remove(q, gid)
	if err != nil || leave == nil {
		return err
	}
	if err := leave(); err != nil {
		return fail(op, err, "qp %v: leave %v", q.num, gid.Addr())
	}
	return nil
}

func (q *QP) checkMulticast(op string, gid GID) error {
	if t := q.engine.Type(); t != qp.UD {
		return fail(op, syscall.EINVAL, "qp %v is a %v queue pair, only UD ones can be in a multicast group", q.num, t)
	}
	if !gid.IsMulticast() {
		return fail(op, syscall.EINVAL, "qp %v: %v is no multicast group", q.num, gid)
	}
	return nil
}

// room returns a group, nil if it does not exist yet, and whether a queue pair
// may be attached to it. Called with the device locked.
func (t *groups) room(q *QP, gid bth.GID) (*group, error) {
	const op = "attach multicast"
	g := t.byGID[gid]
	switch {
	case q.dev.closed || q.closed:
		return nil, ErrClosed
	case g == nil && len(t.byGID) >= MaxMulticastGroups:
		return nil, fail(op, syscall.ENOMEM, "qp %v: the device is in %d groups", q.num, len(t.byGID))
	case g != nil && len(g.qps) >= MaxMulticastQPs && !slices.Contains(g.qps, q):
		return nil, fail(op, syscall.ENOMEM, "qp %v: the group %v has %d queue pairs", q.num, gid.Addr(), len(g.qps))
	}
	return g, nil
}

// remove takes a queue pair out of a group. leave, if not nil, is to be called
// because that was the last.
func (t *groups) remove(q *QP, gid bth.GID) (leave func() error, err error) {
	d := q.dev
	d.lockAll()
	defer d.unlockAll()
	if d.closed || q.closed {
		return nil, ErrClosed
	}
	g := t.byGID[gid]
	if g == nil || !slices.Contains(g.qps, q) {
		return nil, fail("detach multicast", syscall.EINVAL, "qp %v is not attached to %v", q.num, gid.Addr())
	}
	q.attached--
	g.set(slices.DeleteFunc(g.qps, func(o *QP) bool { return o == q }))
	if len(g.qps) > 0 {
		return nil, nil
	}
	delete(t.byGID, gid)
	return g.leave, nil
}

// leaveGroups is for a device that is being closed.
func (d *Device) leaveGroups() error {
	t := &d.groups
	t.changing.Lock()
	defer t.changing.Unlock()
	d.lockAll()
	left := t.byGID
	t.byGID = nil
	for _, g := range left {
		for _, q := range g.qps {
			q.attached--
		}
	}
	d.unlockAll()
	var errs []error
	for _, g := range left {
		if g.leave != nil {
			errs = append(errs, g.leave())
		}
	}
	return errors.Join(errs...)
}

// receiveMulticast hands a datagram to every queue pair of its group. One that
// arrived at another port of the device was handed on to this shard, and is not
// handed on again.
func (s *shard) receiveMulticast(now mono.Time, g *group, f *link.Frame, l frame.Layout, from origin) {
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
		if to != s && !to.forward(f, l) {
			s.drops.Overrun++
		}
	}
}
