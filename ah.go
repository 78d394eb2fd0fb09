package roce

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/qp"
)

// GRHLen is the room in front of every received datagram, which counts in its
// completion's ByteLen: an IPv6 header, or 20 bytes and an IPv4 header. See
// [Device.AHAttrFromWC].
const GRHLen = qp.GRHLen

// AHAttr says where to send (struct ibv_ah_attr with its GRH, which RoCE cannot
// do without).
type AHAttr struct {
	DGID         GID
	SGIDIndex    int    // the device's address to send from
	FlowLabel    uint32 // decides the UDP source port; 0: from the queue pair numbers
	TrafficClass uint8
	HopLimit     uint8 // 0: the route's
	Port         uint8 // only port 1 exists; 0 stands for it
}

// CreateAH resolves an address (ibv_create_ah), for the datagrams of a queue
// pair. It may wait for the neighbour's answer. A multicast group needs no
// asking.
//
// As with rxe it is EINVAL when the port does not exist, the destination is
// missing or not of the source's IP version, ENODATA when SGIDIndex names no
// address, and ETIMEDOUT when the peer cannot be reached; the error wraps the
// resolver's reason, too, if that is another.
//
// An address handle never changes and needs no destroying. It may be shared by
// queue pairs of the device, and a work request keeps it as long as needed.
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

// AHAttrFromWC says how to answer a received datagram (ibv_init_ah_from_wc): wc
// is its completion, area what is in the first [GRHLen] bytes of the receive
// buffer. The destination is where the datagram came from, the source the
// address it came to; traffic class, flow label and hop limit are those it came
// with.
//
// It is EINVAL when the completion has no GRH or the datagram was sent to a
// multicast group, which tells no address of this device, EPROTONOSUPPORT when
// the area holds no header of a RoCEv2 packet (it was overwritten, or is not of
// this completion), and ENODATA when the address it came to is none of the
// device's.
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

// CreateAHFromWC makes the address handle to answer a received datagram with
// (ibv_create_ah_from_wc); see [Device.AHAttrFromWC]. As on Linux the hop limit
// is the route's: what is left of the sender's need not suffice for the way
// back.
func (d *Device) CreateAHFromWC(ctx context.Context, wc *WC, area []byte) (*AH, error) {
	a, err := d.AHAttrFromWC(wc, area)
	if err != nil {
		return nil, err
	}
	a.HopLimit = 0
	return d.CreateAH(ctx, a)
}

// checkAH refuses an address handle of another device, which would send with foreign
// addresses. One whose address the device has lost since goes on to work, as on Linux.
func (q *QP) checkAH(wr *SendWR) error {
	if t := q.nic.Type(); wr.AH == nil || t != qp.UD && t != qp.DCI {
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

// ours refuses an address handle that the device of the queue pair has not made.
func (q *QP) ours(op string, ah *AH) error {
	if q.dev.nic.Routes().Owns((*frame.Path)(ah)) {
		return nil
	}
	return errs.On(op, q.Num().Object(), syscall.EINVAL, "the address handle %v is not of this device: make it by its CreateAH", ah)
}
