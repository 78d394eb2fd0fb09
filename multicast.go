package roce

import (
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/qp"
)

// QPNMulticast is the destination of datagrams to a multicast group.
const QPNMulticast = bth.QPNMulticast

// Limits of multicast, those of rxe (max_mcast_grp, max_mcast_qp_attach). The
// host's kernel may allow less.
const (
	MaxMulticastGroups = nic.MaxGroups
	MaxMulticastQPs    = nic.MaxGroupQPs // of one group
)

// Membership tells the network which multicast groups are wanted on a link, so
// that switches and the network card let them through (IGMP, MLD).
type Membership interface {
	// Join makes the host a member of a group until leave is called. A group is
	// joined once.
	Join(group netip.Addr) (leave func() error, err error)
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
	if err := q.checkMulticast("attach multicast", gid); err != nil {
		return err
	}
	return q.dev.nic.Attach(&q.nic, gid)
}

// DetachMulticast undoes [QP.AttachMulticast] (ibv_detach_mcast). It is EINVAL
// when the queue pair is not attached to the group.
func (q *QP) DetachMulticast(gid GID) error {
	if err := q.checkMulticast("detach multicast", gid); err != nil {
		return err
	}
	return q.dev.nic.Detach(&q.nic, gid)
}

func (q *QP) checkMulticast(op string, gid GID) error {
	if t := q.nic.Type(); t != qp.UD {
		return fail(op, syscall.EINVAL, "qp %v is a %v queue pair, only UD ones can be in a multicast group", q.Num(), t)
	}
	if !gid.IsMulticast() {
		return errs.On(op, q.Num().Object(), syscall.EINVAL, "%v is no multicast group", gid)
	}
	return nil
}
