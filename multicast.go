package roce

import (
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/qp"
)

// QPNMulticast is the destination queue pair number of datagrams to a
// multicast group.
const QPNMulticast = bth.QPNMulticast

// Limits of multicast, those of rxe (max_mcast_grp, max_mcast_qp_attach). The
// host's kernel may allow less.
const (
	MaxMulticastGroups = nic.MaxGroups
	MaxMulticastQPs    = nic.MaxGroupQPs // of one group
)

// Membership joins multicast groups on a link (IGMP, MLD), so that switches
// and the network card deliver their datagrams.
type Membership interface {
	// Join makes the host a member of a group until leave is called. The device
	// joins a group only once at a time.
	Join(group netip.Addr) (leave func() error, err error)
}

// AttachMulticast lets a UD queue pair receive the datagrams to a multicast
// group (ibv_attach_mcast), an IPv6 one or a v4-mapped IPv4 one: every attached
// queue pair gets a copy of each, if its state and Q_Key allow it. The device's
// own datagrams to a group also arrive at its attached queue pairs, including
// the sender, as with rxe and with adapters. The completion does not have the
// group; the destination in the GRH area does.
//
// The host joins the group when the first queue pair is attached and leaves it
// when the last one is detached; a call like rdma_join_multicast is not
// necessary. Attaching a queue pair again does nothing.
//
// It fails with EINVAL if the queue pair is not a UD queue pair or gid is not a
// multicast group, and with ENOMEM if there are too many groups, or too many
// queue pairs in the group.
//
// To send to a group, make an address handle of it and use [QPNMulticast]; the
// sender need not be attached.
func (q *QP) AttachMulticast(gid GID) error {
	if err := q.checkMulticast("attach multicast", gid); err != nil {
		return err
	}
	return q.dev.nic.Attach(&q.nic, gid)
}

// DetachMulticast undoes [QP.AttachMulticast] (ibv_detach_mcast). It fails
// with EINVAL if the queue pair is not attached to the group.
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
