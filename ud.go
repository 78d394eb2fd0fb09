package roce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/qp"
)

// GRHLen is the length of the area in front of every received datagram: an
// IPv6 header, or 20 bytes and an IPv4 header. The completion's ByteLen
// includes it. See [Device.AHAttrFromWC].
const GRHLen = qp.GRHLen

// AHAttr is a destination (struct ibv_ah_attr with its GRH, which RoCE
// requires).
type AHAttr struct {
	DGID         GID
	SGIDIndex    int    // the device's address to send from
	FlowLabel    uint32 // determines the UDP source port; 0: the queue pair numbers determine it
	TrafficClass uint8
	HopLimit     uint8 // 0: the route's
	Port         uint8 // only port 1 exists; 0 means port 1
}

// CreateAH resolves an address (ibv_create_ah) for datagrams. It may wait for
// the answer of a neighbour. A multicast group needs no neighbour.
//
// As with rxe it fails with EINVAL if the port does not exist, or if the
// destination is missing or has another IP version than the source; with
// ENODATA if SGIDIndex has no address; and with ETIMEDOUT if the peer is not
// reachable. The error also wraps the resolver's error if that is different.
//
// An address handle never changes and need not be destroyed. Queue pairs of
// the device may share it, and a work request keeps it as long as it needs it.
func (d *Device) CreateAH(ctx context.Context, a AHAttr) (*AH, error) {
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	p, err := d.nic.Routes().Resolve(ctx, route.Way(a), frame.SourcePort(a.FlowLabel))
	if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
		err = fmt.Errorf("%w: %w", err, syscall.ETIMEDOUT)
	}
	if err != nil {
		return nil, errs.New("create ah", err, "%v", a.DGID)
	}
	return qp.NewAH(p), nil
}

// AHAttrFromWC returns the destination for an answer to a received datagram
// (ibv_init_ah_from_wc). wc is the datagram's completion, area the first
// [GRHLen] bytes of the receive buffer. The result has the datagram's source
// address as destination, its destination address as source, and its traffic
// class, flow label and hop limit.
//
// It fails with EINVAL if the completion has no GRH, or if the datagram was
// sent to a multicast group, so that the address of this device is unknown;
// with EPROTONOSUPPORT if the area has no header of a RoCEv2 packet (it was
// overwritten, or belongs to another completion); and with ENODATA if the
// datagram's destination is not an address of the device.
func (d *Device) AHAttrFromWC(wc *WC, area []byte) (AHAttr, error) {
	const op = "ah from wc"
	if wc == nil {
		return AHAttr{}, fail(op, syscall.EINVAL, "the completion is nil")
	}
	if wc.Flags&cq.GRH == 0 {
		return AHAttr{}, fail(op, syscall.EINVAL, "the completion of work request %d has no GRH", wc.ID)
	}
	if len(area) < GRHLen {
		return AHAttr{}, fail(op, syscall.EINVAL, "%d bytes of the receive buffer given, want the first %d", len(area), GRHLen)
	}
	g, err := frame.ParseGRH(area)
	if err != nil {
		return AHAttr{}, fail(op, syscall.EPROTONOSUPPORT, "%v", err)
	}
	if g.Dst.IsMulticast() {
		return AHAttr{}, fail(op, syscall.EINVAL, "the datagram was sent to the group %v; choose the address to answer from", g.Dst.Addr())
	}
	index, ok := d.nic.Routes().GIDs().Index(g.Dst)
	if !ok {
		return AHAttr{}, fail(op, errno.ENODATA, "the datagram came to %v, which is not an address of the device", g.Dst.Addr())
	}
	return AHAttr{DGID: g.Src, SGIDIndex: index, FlowLabel: g.FlowLabel, TrafficClass: g.TrafficClass, HopLimit: g.HopLimit, Port: 1}, nil
}

// CreateAHFromWC makes an address handle for an answer to a received datagram
// (ibv_create_ah_from_wc); see [Device.AHAttrFromWC]. As on Linux, the hop
// limit is that of the route: the rest of the sender's hop limit may not
// suffice for the answer.
func (d *Device) CreateAHFromWC(ctx context.Context, wc *WC, area []byte) (*AH, error) {
	a, err := d.AHAttrFromWC(wc, area)
	if err != nil {
		return nil, err
	}
	a.HopLimit = 0
	return d.CreateAH(ctx, a)
}

// checkAH refuses an address handle of another device, which would send with that
// device's addresses. It accepts one whose source address the device has lost, as
// Linux does.
func (q *QP) checkAH(wr *SendWR) error {
	// The service type first: AH lies apart from what the other services need of wr.
	if t := q.nic.Type(); t != qp.UD && t != qp.DCI || wr.AH == nil {
		return nil
	}
	return q.ours("post send", wr.AH)
}

// checkAV is checkAH for the address vectors of Modify.
func (q *QP) checkAV(a *Attr, mask AttrMask) error {
	for _, v := range []struct {
		bit AttrMask
		ah  *AH
	}{{qp.AttrAV, a.AV}, {qp.AttrAltPath, a.AltAV}} {
		if mask&v.bit != 0 && v.ah != nil {
			if err := q.ours("modify qp", v.ah); err != nil {
				return err
			}
		}
	}
	return nil
}

// ours refuses an address handle that another device made.
func (q *QP) ours(op string, ah *AH) error {
	if q.dev.nic.Routes().Owns((*frame.Path)(ah)) {
		return nil
	}
	return errs.On(op, q.Num().Object(), syscall.EINVAL, "the address handle %v is not of this device: make it by its CreateAH", ah)
}

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
